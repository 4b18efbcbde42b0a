"""`atoll umount`."""

from __future__ import annotations

import os

import click

from atoll.cli import common, output


@click.command("umount", **common.COMMAND)
@click.argument("workspaces", nargs=-1, metavar="[WORKSPACE]...", shell_complete=common.WORKSPACE)
@click.option("--all", "every", is_flag=True, help="All workspaces of the store.")
@common.store_option
@common.json_option
def command(workspaces: tuple[str, ...], every: bool, store: str | None, as_json: bool) -> None:
    """Take a workspace's folder away. Uncommitted changes are kept for the next mount, and said.

    WORKSPACE is a branch or any path in the workspace.

    \b
    Examples:
      atoll umount try-1
      atoll umount --all
    """
    if every:
        found = [workspace for workspace in common.open_store(store).workspaces() if workspace.mounted]
    else:
        found = [common.workspace_of(store, name) for name in workspaces or (None,)]
    # A process's working folder keeps a mount busy; this process's own must not be the reason.
    os.chdir("/")
    documents = []
    for workspace in found:
        result = workspace.umount(note=common.note)
        documents.append(
            {
                "branch": workspace.branch,
                "kept": result.kept,
                "changes": result.changes,
                "place": result.place,
            }
        )
        if result.kept and not as_json:
            common.note(
                f"{result.changes:,} uncommitted changes of '{workspace.branch}' are kept in {result.place}; "
                f"`atoll mount {workspace.branch}` brings them back."
            )
    if as_json:
        output.print_json({"workspaces": documents})
