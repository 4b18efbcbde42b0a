"""`atoll undo`."""

from __future__ import annotations

import click

from atoll.cli import common, output


@click.command("undo", **common.COMMAND)
@click.argument("operation", required=False, type=int)
@common.store_option
@common.json_option
def command(operation: int | None, store: str | None, as_json: bool) -> None:
    """Take an operation back: the newest that is not taken back, or number OPERATION of `atoll op log`.

    Branches go back to where they were, dropped ones return. Files in mounted workspaces stay as they are
    (what the commit held is uncommitted again), except after `restore`, which is taken back in the folder
    too. Undoing an undo does it again. Raises an error, and changes nothing, when a branch moved since.

    \b
    Examples:
      atoll undo
      atoll undo 12
    """
    undone = common.open_store(store).undo(operation)
    if as_json:
        output.print_json({"undone": output.operation_json(undone)})
        return
    print(f"undone: {undone.seq} {undone.kind}: {undone.note}")
    for move in undone.moves:
        old = move.old[:12] if move.old else "gone"
        new = move.new[:12] if move.new else "gone"
        print(f"  {move.kind} {move.name}: {new} -> {old}")
