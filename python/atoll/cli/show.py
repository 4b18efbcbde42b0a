"""`atoll show`."""

from __future__ import annotations

import json

import click

from atoll.cli import common, output
from atoll.cli.status import print_changes
from atoll.history import Change


@click.command("show", **common.COMMAND)
@click.argument("reference", required=False, metavar="[COMMIT]", shell_complete=common.REF)
@click.option("--patch", "-p", is_flag=True, help="Show the changes as a patch.")
@common.store_option
@common.json_option
def command(reference: str | None, patch: bool, store: str | None, as_json: bool) -> None:
    """Show a commit, its metadata, and what it changed against its first parent.

    \b
    Examples:
      atoll show main
      atoll show try-1~1 --patch
    """
    import sys

    from atoll import _native

    opened = common.open_store(store)
    commit = opened.commit(common.reference_or_here(opened, reference))
    parent = commit.parents[0] if commit.parents else None
    if parent is None and not as_json:
        changes = None
    else:
        changes = [Change._of(change) for change in _native.changes(opened.native, parent, commit.id)]
    if as_json:
        document = output.commit_json(commit)
        output.print_json({**document, "changes": [output.change_json(change) for change in changes or []]})
        return
    print(output.colour(f"commit {commit.id}", "yellow"))
    print(f"Tree:     {commit.tree}")
    print(f"Content:  {commit.content}")
    for each in commit.parents:
        print(f"Parent:   {each}")
    print(f"Author:   {commit.author}")
    print(f"Date:     {commit.time:%Y-%m-%d %H:%M:%S %z}")
    summary = commit.summary
    print(f"Holds:    {summary.files:,} files, {summary.dirs:,} folders, {output.size(summary.bytes)}")
    for key, value in sorted(commit.meta.items()):
        print(f"Meta:     {key} = {json.dumps(value, ensure_ascii=False)}")
    print("".join(f"\n    {line}" for line in commit.message.splitlines()) + "\n")
    if changes is None:
        print("The first commit of its history: everything in it is new.")
    elif patch and parent is not None:
        sys.stdout.flush()
        sys.stdout.buffer.write(opened.patch(parent, commit.id))
    else:
        print_changes(changes)
