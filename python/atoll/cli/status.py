"""`atoll status`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from atoll.cli import common, output
from atoll.cli.mount import document

if TYPE_CHECKING:
    from atoll.history import Change


@click.command("status", **common.COMMAND)
@click.argument("workspace", required=False, shell_complete=common.WORKSPACE)
@click.option("-z", "null", is_flag=True, help="Only names, each ended by a zero byte.")
@common.store_option
@common.json_option
def command(workspace: str | None, null: bool, store: str | None, as_json: bool) -> None:
    """Show where a workspace is, how durable it is, and what it changed since its last commit.

    WORKSPACE is a branch or any path in the workspace, and may be left out inside of one. Letters: A added, D
    deleted, M modified, R renamed, T another kind of file, m only mode, owner or attributes.

    \b
    Examples:
      atoll status try-1
      atoll status --json
    """
    found = common.workspace_of(store, workspace)
    status = found.status()
    if as_json:
        changes = [output.change_json(change) for change in status.changes]
        output.print_json({**document(found), "moved": status.moved, "changes": changes})
        return
    if null:
        output.print_names([change.path_bytes for change in status.changes], True)
        return
    state = "mounted at" if found.mounted else "not mounted; last at"
    print(
        f"{output.colour(found.branch, 'bold')}  {state} {output.shown(os.fsencode(found.path))} "
        f" ({found.driver})"
    )
    print(f"base {found.base[:12]}  last commit {found.head[:12]}")
    if found.settings.get("fsync") == "commit":
        print("fsync: not durable before the next commit (--fsync=commit)")
    elif str(found.settings.get("scratch", "disk")).startswith("memory"):
        print("fsync: in memory only; commit to keep (--scratch memory)")
    if status.moved:
        print(
            f"The branch moved elsewhere since; `atoll commit {found.branch} --to NEW` keeps this workspace's"
            " changes."
        )
    print_changes(status.changes)


def print_changes(changes: Sequence[Change]) -> None:
    """One line for each changed path."""
    styles = {"A": "green", "D": "red", "M": "yellow", "R": "cyan", "T": "yellow", "m": "blue"}
    if not changes:
        print("nothing changed")
    for change in changes:
        name = output.shown(change.path_bytes)
        if change.old_path_bytes is not None:
            name = f"{output.shown(change.old_path_bytes)} -> {name}"
        print(f"{output.colour(change.letter, styles[change.letter])} {name}")
