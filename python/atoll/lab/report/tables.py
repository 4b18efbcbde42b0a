"""What every report shows, without its form: rows, cells, ratios, summaries, who won and how sure that is.

Ratios are costs: how many times the reference's time (or size) a target took, or, where more is better, how
many times more the reference did. So 1 is the same, and more than 1 is worse, in every table and picture.

Nothing is pooled: a ratio is made of samples of one run, since only in one run targets took turns.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from atoll.errors import Usage
from atoll.lab import stats
from atoll.lab.calc import PerFile, per_file
from atoll.lab.model import Summary
from atoll.lab.record import Failure, Record, RowRecord, Sample, SuiteRecord
from atoll.lab.report.figures import Scale, scale_of
from atoll.lab.stats import Spread, Verdict

__all__ = [
    "CLOCKS",
    "Cell",
    "Clock",
    "Differing",
    "Line",
    "Measured",
    "RowView",
    "SuiteView",
    "SummaryView",
    "clock_values",
    "cost",
    "figure",
    "is_speed",
    "suite_views",
]

Clock = Literal["returned", "durable"]
CLOCKS: tuple[Clock, ...] = ("returned", "durable")


@dataclass(frozen=True)
class Measured:
    """A row on a target by one clock."""

    median: Spread
    ratio: Spread | None = None
    """The cost against the reference by the same clock; None on the reference itself, and where one of them
    has no such figure."""
    verdict: Verdict | None = None


@dataclass(frozen=True)
class Cell:
    """A row on a target."""

    target: str
    samples: list[Sample] = field(default_factory=list)
    clocks: Mapping[Clock, Measured] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    unavailable: str | None = None
    files: int | None = None
    """Files that the work makes or visits."""
    per_file: PerFile | None = None

    @property
    def clock(self) -> Clock:
        """The one that it is quoted by: durable, where the reference has it too."""
        only_returned = "returned" in self.clocks and self.clocks["returned"].ratio is not None
        durable = self.clocks.get("durable")
        return "durable" if durable and (durable.ratio or not only_returned) else "returned"

    @property
    def quoted(self) -> Measured | None:
        """By that clock."""
        return self.clocks.get(self.clock)

    @property
    def details(self) -> dict[str, float]:
        """The median of each further figure of the samples."""
        names = {name: None for sample in self.samples for name in sample.details}
        return {
            name: statistics.median(s.details[name] for s in self.samples if name in s.details)
            for name in names
        }


@dataclass(frozen=True)
class RowView:
    """A row on all targets."""

    record: RowRecord
    scale: Scale
    cells: list[Cell]

    def cell(self, target: str) -> Cell:
        """The cell of a target."""
        return next(cell for cell in self.cells if cell.target == target)


@dataclass(frozen=True)
class Line:
    """A summary on a target by one clock."""

    target: str
    figure: Spread | None
    """The sum of medians in seconds; None for a geometric mean, which is a ratio alone."""
    ratio: Spread | None
    """Against the reference; None on itself, and where rows are missing."""
    missing: list[str]
    """Rows that it lacks: failed, not available, or without this clock."""


@dataclass(frozen=True)
class SummaryView:
    """A figure over several rows."""

    name: str
    kind: str
    rows: list[str]
    lines: Mapping[Clock, list[Line]]


@dataclass(frozen=True)
class Differing:
    """Of a conformance suite: a target's tests."""

    target: str
    counts: dict[str, int]
    worse: list[tuple[str, str]]
    """Tests that the reference passes and this target does not, with what came of them."""


@dataclass(frozen=True)
class SuiteView:
    """A suite of a run."""

    record: SuiteRecord
    run: Record
    number: int
    """Of the run in the report, from 1."""
    reference: str | None
    """None: no target gave a sample."""
    rows: list[RowView]
    summaries: list[SummaryView]
    headline: SummaryView | None
    """The first geometric mean of the suite's own, else the one of the rows that all targets have; None where
    sizes or counts are among those."""
    outcomes: list[Differing]


def suite_views(records: Sequence[Record], reference: str | None = None) -> list[SuiteView]:
    """Each suite of each run, in order.

    Raises:
        Usage: no run has a target with the name of `reference`.
    """
    names = {name for record in records for suite in record.suites for name in suite.targets}
    if reference is not None and reference not in names:
        raise Usage(f"No record has a target '{reference}'; there are {', '.join(sorted(names)) or 'none'}.")
    return [
        _suite(suite, record, number, reference)
        for number, record in enumerate(records, 1)
        for suite in record.suites
    ]


def _suite(suite: SuiteRecord, run: Record, number: int, wanted: str | None) -> SuiteView:
    # The first target, unless it gave nothing: then the first one that did.
    order = [name for name in [wanted, *suite.targets] if name in suite.targets]
    with_samples = {name for row in suite.rows for name in row.samples} | set(suite.outcomes)
    reference = next((name for name in order if name in with_samples), None)
    rows = [_row(row, suite, number, reference, run.options.rtt) for row in suite.rows]
    summaries = [_summary(each, rows, suite.targets, reference) for each in suite.summaries]
    headline = next((each for each in summaries if each.kind == "geometric mean" and each.rows), None)
    if headline is None:
        headline = _headline(rows, suite, reference)
    return SuiteView(
        record=suite,
        run=run,
        number=number,
        reference=reference,
        rows=rows,
        summaries=summaries,
        headline=headline if headline.rows else None,
        outcomes=_outcomes(suite, reference),
    )


def clock_values(samples: Sequence[Sample], clock: Clock) -> list[float]:
    """The figures of samples by one clock; empty unless each of them has it."""
    if clock == "returned":
        return [sample.value for sample in samples]
    found = [sample.durable for sample in samples if sample.durable is not None]
    return found if len(found) == len(samples) else []


def figure(row: RowRecord, values: Sequence[float], stream: str) -> Spread:
    """The median of a row's samples; with an exact row, where they are all the same, nothing is unsure."""
    return stats.exact(values[0]) if row.exact and len(set(values)) == 1 else stats.median(values, stream)


def cost(row: RowRecord, ours: Spread, reference: Spread) -> Spread | None:
    """How many times the reference's a figure is, turned round where more is better; None for a figure of
    zero."""
    if not (ours.positive and reference.positive):
        return None
    return reference / ours if row.better == "higher" else ours / reference


def _row(
    row: RowRecord, suite: SuiteRecord, number: int, reference: str | None, rtt: float | None
) -> RowView:
    medians: dict[str, dict[Clock, Spread]] = {}
    for name, samples in row.samples.items():
        medians[name] = {
            clock: figure(row, values, f"{number} {suite.name} {row.name} {name}")
            for clock in CLOCKS
            if (values := clock_values(samples, clock))
        }
    cells = []
    for name in suite.targets:
        failures = row.failures.get(name, [])
        base = medians.get(reference or "", {}) if name != reference else {}
        clocks = {
            clock: _measured(row, spread, base.get(clock), bool(failures))
            for clock, spread in medians.get(name, {}).items()
        }
        cell = Cell(
            target=name,
            samples=row.samples.get(name, []),
            clocks=clocks,
            failures=failures,
            unavailable=row.unavailable.get(name),
        )
        cells.append(_with_files(row, cell, base, rtt))
    shown = [each.median.value for cell in cells for each in cell.clocks.values()]
    return RowView(row, scale_of(row.unit, shown), cells)


def _measured(row: RowRecord, ours: Spread, reference: Spread | None, failed: bool) -> Measured:
    if reference is None:
        return Measured(ours)
    ratio = cost(row, ours, reference)
    # What failed in some repetitions has its median shown, but wins nothing.
    if row.better == "none" or failed:
        return Measured(ours, ratio)
    return Measured(
        ours, ratio, stats.verdict(ours, reference, higher=row.better == "higher", timed=is_speed(row))
    )


def is_speed(row: RowRecord) -> bool:
    """Whether it is a time or a rate, which are faster or slower; sizes and counts are better or worse."""
    return row.unit in ("s", "ms", "us", "ns", "IOPS") or row.unit.endswith("/s")


def _with_files(row: RowRecord, cell: Cell, base: Mapping[Clock, Spread], rtt: float | None) -> Cell:
    """The cell with its times per file, where the row or its samples say how many there are."""
    measured = cell.quoted
    files = row.files or round(cell.details.get("files", 0))
    if not files or row.unit != "s" or measured is None:
        return cell
    local = base.get(cell.clock)
    each = per_file(files, measured.median.value, None if local is None else local.value, rtt)
    return replace(cell, files=files, per_file=each)


def _headline(rows: Sequence[RowView], suite: SuiteRecord, reference: str | None) -> SummaryView:
    """Over the rows that every target could have: what one cannot do (commit, say) is not held against it,
    while a failure is. There is none over sizes or counts."""
    there = [name for name in suite.targets if any(row.cell(name).samples for row in rows)]
    common = [row for row in rows if not any(row.cell(name).unavailable for name in there)]
    if not all(is_speed(row.record) for row in common if row.record.better != "none"):
        common = []
    name = "all rows" if len(common) == len(rows) else f"the {len(common)} rows that all have"
    groups = tuple({row.record.group: None for row in common})
    return _summary(
        Summary(name=name, kind="geometric mean", groups=groups), common, suite.targets, reference
    )


def _summary(
    summary: Summary, rows: Sequence[RowView], targets: Sequence[str], reference: str | None
) -> SummaryView:
    covered = [row for row in rows if row.record.group in summary.groups and row.record.better != "none"]
    lines = {clock: [_line(summary, covered, name, reference, clock) for name in targets] for clock in CLOCKS}
    return SummaryView(summary.name, summary.kind, [row.record.name for row in covered], lines)


def _line(
    summary: Summary, rows: Sequence[RowView], target: str, reference: str | None, clock: Clock
) -> Line:
    found, missing = [], []
    for row in rows:
        # Work that leaves nothing to become durable has one clock, which serves as both.
        of_row: Clock = clock if row.record.durable else "returned"
        cell = row.cell(target)
        measured = cell.clocks.get(of_row)
        complete = measured is not None and not cell.failures
        if measured is None or not complete or (target != reference and measured.ratio is None):
            missing.append(row.record.name)
        else:
            base = row.cell(reference or target).clocks.get(of_row)
            found.append((measured, base))
    ratio = figure = None
    if rows and not missing:
        if summary.kind == "sum":
            figure = stats.total([measured.median for measured, _ in found])
            theirs = stats.total([base.median for _, base in found if base is not None])
            ratio = figure / theirs if target != reference else None
        elif target != reference:
            ratio = stats.geometric_mean([each.ratio for each, _ in found if each.ratio is not None])
    return Line(target, figure, ratio, missing)


def _outcomes(suite: SuiteRecord, reference: str | None) -> list[Differing]:
    passed = {
        test
        for test, result in suite.outcomes.get(reference or "", {}).items()
        if result.partition(":")[0] == "pass"
    }
    made = []
    for name in suite.targets:
        if name not in suite.outcomes:
            continue
        counts = {"pass": 0, "fail": 0, "skip": 0}
        worse = []
        for test, result in suite.outcomes[name].items():
            kind = result.partition(":")[0]
            counts[kind] = counts.get(kind, 0) + 1
            if test in passed and kind != "pass":
                worse.append((test, result))
        made.append(Differing(name, counts, worse))
    return made
