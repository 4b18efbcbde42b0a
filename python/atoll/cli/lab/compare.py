"""`atoll lab compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from atoll.cli import common, output

if TYPE_CHECKING:
    from atoll.lab.compare import Change
    from atoll.lab.stats import Spread


@click.command("compare", **common.COMMAND)
@click.argument("old", type=click.Path())
@click.argument("new", type=click.Path())
@click.option(
    "--threshold",
    type=click.FloatRange(min=1.0),
    default=1.1,
    show_default=True,
    help="A regression is a ratio whose whole interval is above this.",
)
@common.json_option
def command(old: str, new: str, threshold: float, as_json: bool) -> int:
    """Compare two records of the same work: each row of NEW in times of OLD, more than 1 is worse.

    Exit code 0: no regression is shown; 1: there is one, or a row fails now that did not.

    \b
    Examples:
      atoll lab compare runs/before.json runs/after.json
      atoll lab compare runs/before.json runs/after.json --threshold 1.25 --json
    """
    from atoll.lab.compare import compare
    from atoll.lab.record import load

    found = compare(load(Path(old)), load(Path(new)), threshold)
    if as_json:
        output.print_json(
            {
                "threshold": threshold,
                "changes": [_json(change) for change in found.changes],
                "regressions": len(found.regressions),
                "notes": found.notes,
            }
        )
        return 1 if found.regressions else 0
    for note in found.notes:
        common.note(note)
    output.table(
        ["suite", "row", "target", "clock", "old", "new", "new / old", ""],
        [_line(change) for change in found.changes],
    )
    count = len(found.regressions)
    print(f"{count} of {len(found.changes)} are regressions (threshold {threshold}).")
    return 1 if count else 0


def _line(change: Change) -> list[str]:
    from atoll.lab.report.figures import scale_of
    from atoll.lab.report.words import ratio_text

    both = [spread for spread in (change.old, change.new) if spread]
    scale = scale_of(change.unit, [spread.value for spread in both])
    shown = [scale.text(spread.value) if spread else "-" for spread in (change.old, change.new)]
    ratio = ratio_text(change.ratio) if change.ratio else ""
    note = " ".join(part for part in ("REGRESSION" if change.regression else "", change.note) if part)
    return [change.suite, change.row, change.target, change.clock, *shown, ratio, note]


def _json(change: Change) -> dict[str, Any]:
    return {
        "suite": change.suite,
        "row": change.row,
        "target": change.target,
        "unit": change.unit,
        "clock": change.clock,
        "old": _spread(change.old),
        "new": _spread(change.new),
        "ratio": _spread(change.ratio),
        "regression": change.regression,
        "note": change.note,
    }


def _spread(spread: Spread | None) -> dict[str, float | None] | None:
    if spread is None:
        return None
    low, high = spread.interval or (None, None)
    return {"median": spread.value, "low": low, "high": high}
