"""What atoll has to reach in the lab's records: the bars of docs/PERFORMANCE.md."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from atoll.lab.record import Record
from atoll.lab.report.figures import number
from atoll.lab.report.tables import SuiteView, suite_views
from atoll.lab.report.words import overview, ratio_text
from atoll.lab.stats import Spread

__all__ = ["BARS", "Bar", "Reached"]


@dataclass(frozen=True)
class Bar:
    """A cost that a target may have at most, in times of a reference."""

    what: str
    record: str
    """The run's name in `scripts/lab.py`."""
    suite: str
    ours: str
    reference: str
    most: float
    summary: str | None = None
    """The name of one of the suite's summaries; None: each row has to keep to it."""
    rows: str = ""
    """A pattern of the names of the rows that count."""


_NINE, _TWELVE = "nine rows without forks", "sum of twelve"
BARS = (
    Bar("nine jobs without forks", "fs-bench", "fs-bench", "atoll-memory", "tmpfs", 1.2, _NINE),
    Bar("nine jobs without forks", "fs-bench", "fs-bench", "atoll", "disk", 1.2, _NINE),
    Bar("sum of twelve jobs", "fs-bench", "fs-bench", "atoll-memory", "tmpfs", 1.06, _TWELVE),
    Bar("sum of twelve jobs", "fs-bench", "fs-bench", "atoll", "disk", 1.2, _TWELVE),
    Bar("npm ci, both sizes", "install", "install", "atoll", "disk", 1.15, rows="^npm ci"),
    Bar("npm ci, both sizes", "install", "install", "atoll-memory", "tmpfs", 1.25, rows="^npm ci"),
    Bar("git clone", "install", "clone", "atoll", "disk", 1.25),
    Bar("each row", "smallfile", "smallfile", "atoll", "overlay", 1.3),
    Bar("each row", "mdtest", "mdtest", "atoll", "overlay", 1.3),
    Bar("each job: 0.9 of the bandwidth or IOPS", "fio", "fio", "atoll", "disk", 1 / 0.9),
    Bar("each row: ahead", "smallfile", "smallfile", "atoll", "passthrough", 1.0),
    Bar("each row: ahead", "mdtest", "mdtest", "atoll", "passthrough", 1.0),
    Bar("each job: ahead", "fio", "fio", "atoll", "passthrough", 1.0),
    Bar("twenty copies ready", "workflow", "workflow", "atoll fork", "cp -a", 1 / 20, rows=r"copies ready$"),
    Bar(
        "twenty copies ready", "workflow", "workflow", "atoll fork", "worktree + install", 1 / 20,
        rows=r"copies ready$",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Reached:
    """What came of a bar."""

    bar: Bar
    figure: str
    """The ratio, or the worst row with its own; in words where there is none."""
    holds: bool | None
    """None: not measured."""
    beyond: tuple[str, ...] = ()
    """Rows beyond it, with their ratios."""


def reach(bar: Bar, records: Mapping[str, Record]) -> Reached:
    """Looks a bar up in the records of the runs, by the later clock that both targets have."""
    record = records.get(bar.record)
    suite = next((each for each in record.suites if each.name == bar.suite), None) if record else None
    if record is None or suite is None or not {bar.ours, bar.reference} <= set(suite.targets):
        return Reached(bar, "not measured", None)
    view = next(each for each in suite_views([record], bar.reference) if each.record is suite)
    if view.reference != bar.reference:
        return Reached(bar, f"{bar.reference} gave no figure", None)
    return _rows(bar, view) if bar.summary is None else _summary(bar, view)


def _summary(bar: Bar, view: SuiteView) -> Reached:
    summary = next(each for each in view.summaries if each.name == bar.summary)
    found = overview(view, bar.ours, summary)
    if found is None:
        return Reached(bar, "rows are missing", False)
    return Reached(bar, f"{ratio_text(found[0])}, {found[1]}", found[0].value <= bar.most)


def _rows(bar: Bar, view: SuiteView) -> Reached:
    found: list[tuple[str, Spread]] = []
    missing = []
    for row in view.rows:
        cell = row.cell(bar.ours)
        if row.record.better == "none" or not re.search(bar.rows, row.record.name):
            continue
        if cell.failures:
            missing.append(f"{row.record.name} failed")
        elif cell.quoted is not None and cell.quoted.ratio is not None:
            found.append((row.record.name, cell.quoted.ratio))
    if not found:
        return Reached(bar, missing[0] if missing else "not measured", False if missing else None)
    name, worst = max(found, key=lambda each: each[1].value)
    beyond = [f"{name} {number(ratio.value)}" for name, ratio in found if ratio.value > bar.most]
    which = f"{name}: " if len(found) > 1 else ""
    return Reached(bar, which + ratio_text(worst), not beyond and not missing, (*missing, *beyond))
