"""`atoll op`."""

from __future__ import annotations

import click

from atoll.cli import common, output


@click.group("op", **common.COMMAND)
def command() -> None:
    """Show the operation log: every move of a branch or tag, by whom, and from which workspace."""


@click.command("log", **common.COMMAND)
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most this many."
)
@common.store_option
@common.json_option
def log(limit: int, store: str | None, as_json: bool) -> None:
    """List operations, newest first. `atoll undo N` takes one back.

    \b
    Examples:
      atoll op log
      atoll op log -n 5 --json
    """
    operations = common.open_store(store).operations(limit)
    if as_json:
        output.print_json({"operations": [output.operation_json(each) for each in operations]})
        return
    rows = [
        (str(each.seq), f"{each.time:%Y-%m-%d %H:%M:%S}", each.user, each.kind, each.note.replace("\n", " "))
        for each in operations
    ]
    output.table(("OP", "TIME", "USER", "KIND", "WHAT"), rows)


command.add_command(log)
