"""`atoll mount`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

import click

from atoll.cli import common, output

if TYPE_CHECKING:
    from atoll.workspace import Workspace


@click.command("mount", **common.COMMAND)
@click.argument("branch", required=False, shell_complete=common.BRANCH)
@click.argument("directory", required=False, metavar="[DIR]", type=click.Path())
@click.option(
    "--driver",
    type=click.Choice(["auto", "overlay", "fuse", "copy"]),
    default="auto",
    show_default=True,
    help=(
        "How: overlay (the kernel's, at full speed), fuse (a server of atoll's own, also for an ordinary"
        " user; commits are of one moment) or copy (a plain folder); auto takes overlay where it works, else"
        " copy."
    ),
)
@click.option(
    "--fsync",
    type=click.Choice(["full", "commit"]),
    default="full",
    show_default=True,
    help="commit: what programs sync is durable with the next commit only (overlay's volatile).",
)
@click.option(
    "--scratch",
    metavar="disk|memory[:SIZE]",
    default="disk",
    show_default=True,
    help="Where uncommitted changes live; memory is lost with the power.",
)
@click.option("--all", "every", is_flag=True, help="Mount again what was mounted before a crash or a reboot.")
@common.store_option
@common.json_option
def command(
    branch: str | None,
    directory: str | None,
    driver: str,
    fsync: Literal["full", "commit"],
    scratch: str,
    every: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Make BRANCH a writable folder: DIR, which must be empty or not exist, else a managed place.

    Stdout is the folder's path and nothing else. A workspace that was unmounted with uncommitted changes, or
    lost by a crash, comes back with them; so does one whose server was killed (its files then answer
    "Transport endpoint is not connected").

    \b
    Examples:
      cd "$(atoll mount try-1)"
      atoll mount try-1 /srv/try-1 --driver overlay
      atoll mount --all
    """
    from atoll.errors import Usage

    opened = common.open_store(store)
    if every:
        if branch is not None:
            raise Usage("--all mounts what there is; leave the branch out.")
        mounted = [
            opened.mount(workspace.branch, note=common.note)
            for workspace in opened.workspaces()
            if workspace.settings.get("present") and (not workspace.mounted or workspace.cut_off)
        ]
    else:
        if branch is None:
            raise Usage("Name a branch to mount, or give --all.")
        with common.progress(f"mount {branch}") as progress:
            mounted = [
                opened.mount(
                    branch,
                    directory,
                    driver=driver,
                    fsync=fsync,
                    scratch=scratch,
                    note=common.note,
                    progress=progress,
                )
            ]
        _tell_what_leads_out(mounted[0])
    for workspace in mounted:
        _warn(workspace)
    if as_json:
        documents = [document(workspace) for workspace in mounted]
        output.print_json({"workspaces": documents} if every else documents[0])
    else:
        output.print_names([os.fsencode(workspace.path) for workspace in mounted], False)


def _tell_what_leads_out(workspace: Workspace) -> None:
    """A plain mount is not at the path that was imported: what names that path leads programs out of it."""
    from atoll.run.outside import sentence

    origin = workspace.store.ref(workspace.branch).folder
    if origin is not None and os.path.isdir(origin) and (line := sentence(workspace.path, origin)):
        common.note(f"{line} `atoll exec {workspace.branch} -- COMMAND` shows the workspace at that path.")


def _warn(workspace: Workspace) -> None:
    """What points at the imported folder leads out of a workspace that is not shown at its path."""
    from atoll.run.outside import sentence

    folder = workspace.store.ref(workspace.branch).folder
    if folder is not None and (line := sentence(workspace.path, folder)) is not None:
        common.note(f"{line} `atoll exec {workspace.branch} -- COMMAND` shows it at that path.")


def document(workspace: Workspace) -> dict[str, object]:
    """A workspace as JSON."""
    where = workspace._record["mountpoint"]
    return {
        "branch": workspace.branch,
        "id": workspace.id,
        "driver": workspace.driver,
        "mounted": workspace.mounted,
        **output.path_json(os.fsencode(where or "")),
        "base": workspace.base,
        "head": workspace.head,
        "fsync": workspace.settings.get("fsync", "full"),
        "scratch": workspace.settings.get("scratch", "disk"),
        "created": output.time_json(workspace._record["created_ns"]),
    }
