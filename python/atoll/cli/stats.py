"""`atoll stats`."""

from __future__ import annotations

import click

from atoll.cli import common, output


@click.command("stats", **common.COMMAND)
@common.store_option
@common.json_option
def command(store: str | None, as_json: bool) -> None:
    """Show what the store holds, how large it is, and its durability profile.

    \b
    Examples:
      atoll stats
      atoll stats --json
    """
    opened = common.open_store(store)
    stats = opened.stats()
    if as_json:
        output.print_json(stats)
        return
    width = max(len(key) for key in stats)
    for key, value in stats.items():
        shown = output.size(value) if key.endswith("bytes") and isinstance(value, int) else value
        print(
            f"{key.replace('_', ' ').ljust(width)}  {shown:,}"
            if isinstance(shown, int)
            else f"{key.replace('_', ' ').ljust(width)}  {shown}"
        )
