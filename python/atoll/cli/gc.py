"""`atoll gc`."""

from __future__ import annotations

import re

import click

from atoll.cli import common, output

_UNITS = {"s": 1 / 86400, "m": 1 / 1440, "h": 1 / 24, "d": 1.0, "w": 7.0}


@click.command("gc", **common.COMMAND)
@click.option(
    "--expire",
    default="14d",
    show_default=True,
    metavar="AGE|now",
    help="Operations older than this cannot be undone any more: what only they need is freed. 12h, 7d, now.",
)
@click.option("--dry-run", "-n", is_flag=True, help="Only say what would be freed.")
@click.option("--thorough", is_flag=True, help="Rewrite packs that are only a little dead, too.")
@common.store_option
@common.json_option
def command(expire: str, dry_run: bool, thorough: bool, store: str | None, as_json: bool) -> None:
    """Free what no branch, tag, workspace or young operation needs. Others may work in the store meanwhile.

    \b
    Examples:
      atoll gc
      atoll gc --expire now        also what was dropped just now; ends its undo
    """
    with common.progress("gc"):
        result = common.open_store(store).gc(expire_days=_days(expire), dry_run=dry_run, thorough=thorough)
    if as_json:
        output.print_json({**result, "dry_run": dry_run})
        return
    for key, value in result.items():
        shown = output.size(value) if "bytes" in key and isinstance(value, int) else value
        print(f"{key.replace('_', ' ')}: {shown}")


def _days(text: str) -> float:
    from atoll.errors import Usage

    if text == "now":
        return 0.0
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text)
    if found is None:
        raise Usage(f"'{text}' is no age; write for example 12h, 7d or now.")
    return float(found[1]) * _UNITS[found[2]]
