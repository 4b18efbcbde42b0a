"""`atoll import`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from atoll.cli import common, output

if TYPE_CHECKING:
    from atoll.results import ImportResult


@click.command("import", **common.COMMAND)
@click.argument("directory", required=False, metavar="[DIR]", type=click.Path())
@click.option("--branch", "-b", default="main", show_default=True, help="The branch; it need not exist.")
@click.option("--message", "-m", help="The commit's message.")
@click.option(
    "--exclude",
    multiple=True,
    metavar="PATTERN",
    help="Leave out, in .gitignore syntax, now and in later imports; may be repeated.",
)
@click.option("--no-exclude", is_flag=True, help="Leave nothing out any more.")
@click.option(
    "--skip-unreadable", is_flag=True, help="Leave out what cannot be read instead of stopping there."
)
@click.option("--replace", is_flag=True, help="Let this folder take the place of another one on the branch.")
@click.option("--tar", "tar", metavar="FILE", help="Import a tar archive instead of a folder; - is stdin.")
@common.store_option
@common.json_option
def command(
    directory: str | None,
    branch: str,
    message: str | None,
    exclude: tuple[str, ...],
    no_exclude: bool,
    skip_unreadable: bool,
    replace: bool,
    tar: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Make the present state of DIR a commit on a branch.

    DIR is, by default, the imported project that the current folder lies in, else the current folder. The
    first time a store is made, and its place said; again later only what changed is read. Everything is
    imported, git-ignored files and `.git` too; an `.atollignore` file leaves out what it names, in .gitignore
    syntax. Returns when the commit would survive a power cut.

    \b
    Examples:
      atoll import                            this folder, on `main`
      atoll import ~/src/app --branch app --store /srv/history
      atoll import --exclude '*.log' -m "before the upgrade"
      atoll import --tar - --branch x < in.tar
    """
    from atoll import finding, registry
    from atoll.errors import Usage
    from atoll.store import Store

    if tar is not None and directory is not None:
        raise Usage("A folder and --tar exclude each other; give one of them.")
    if directory is None:
        found = registry.project_of(os.curdir)
        folder = found[0] if found else Path(os.path.realpath(os.curdir))
    else:
        folder = Path(os.path.realpath(os.path.expanduser(directory)))
        if not folder.is_dir():
            what = "is not a folder" if folder.exists() else "does not exist"
            raise Usage(f"{folder} {what}; name the folder to import (or --tar FILE for an archive).")
    _refuse_own_workspace(folder)
    native, made = finding.store_for_import(folder, store)
    opened = Store(native)
    if made:
        common.note(f"A store was made at {opened.path}.")
    with common.progress("import") as progress:
        if tar is not None:
            source = sys.stdin.buffer if tar == "-" else tar
            result = opened.import_tar(source, branch=branch, message=message, progress=progress)
        else:
            result = opened.import_folder(
                folder,
                branch=branch,
                message=message,
                exclude=exclude or (() if no_exclude else None),
                skip_unreadable=skip_unreadable,
                replace=replace,
                progress=progress,
            )
    if as_json:
        output.print_json(
            {"store": os.fspath(opened.path), "made_store": made, "branch": branch, **_document(result)}
        )
        return
    _say(result, branch)


def _refuse_own_workspace(folder: Path) -> None:
    """`atoll run` shows a workspace at the path that was imported: an import there would bring its
    files to the project's branch."""
    from atoll.errors import Usage

    if "ATOLL_WORKSPACE" not in os.environ:
        return
    try:
        mounts = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return
    # Only a run's mount namespace has something mounted exactly there.
    where = os.fsencode(folder).replace(b"\\", b"\\134").replace(b" ", b"\\040")
    if any(line.split(b" ")[4] == where for line in mounts):
        raise Usage(
            "This folder is a workspace here, not the project; `atoll commit` commits it to its branch."
        )


def _document(result: ImportResult) -> dict[str, object]:
    return {
        "commit": result.commit,
        "changed": result.changed,
        "operation": result.operation,
        "stored_bytes": result.stored_bytes,
        "files": result.files,
        "dirs": result.dirs,
        "read_files": result.read_files,
        "read_bytes": result.read_bytes,
        "unchanged": result.unchanged,
        "ignored": result.ignored,
        "skipped": [
            {**output.path_json(os.fsencode(each.path)), "reason": each.reason} for each in result.skipped
        ],
        "secrets": [output.path_json(os.fsencode(path)) for path in result.secrets],
        "rewritten": [output.path_json(os.fsencode(path)) for path in result.rewritten],
    }


_REASONS = {
    "mount": "another file system is mounted there",
    "store": "it is an atoll store",
    "vanished": "it vanished meanwhile",
    "unreadable": "it cannot be read",
    "worktree": "it administers a git worktree outside of the folder",
}


def _say(result: ImportResult, branch: str) -> None:
    for each in result.skipped[:20]:
        common.note(
            f"{output.shown(os.fsencode(each.path))} was left out: {_REASONS.get(each.reason, each.reason)}."
        )
    if len(result.skipped) > 20:
        common.note(f"{len(result.skipped) - 20} more paths were left out; --json lists all.")
    for path in result.rewritten:
        common.note(f"{output.shown(os.fsencode(path))} held an absolute path; it is relative in the commit.")
    if result.secrets:
        names = ", ".join(output.shown(os.fsencode(path)) for path in result.secrets[:5])
        more = f" and {len(result.secrets) - 5} more" if len(result.secrets) > 5 else ""
        common.note(
            f"These look like secrets and are in the commit: {names}{more}; --exclude or .atollignore leaves"
            " them out."
        )
    if not result.changed:
        print(f"{branch} {result.commit[:12]}: nothing changed ({result.files:,} files)")
        return
    print(
        f"{branch} {result.commit[:12]}: {result.files:,} files, {result.read_files:,} read "
        f"({output.size(result.read_bytes)}), store grew by {output.size(result.stored_bytes)}"
    )
