"""The sentences of a report: who won, by how much, how sure; what a cell says."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from atoll.lab import stats
from atoll.lab.record import Record
from atoll.lab.report.figures import between, duration, number
from atoll.lab.report.tables import Cell, Clock, Differing, Line, RowView, SuiteView, SummaryView
from atoll.lab.stats import Spread

__all__ = [
    "CLOCK_NAMES",
    "cautions",
    "failed",
    "filed",
    "host_line",
    "leaders",
    "load_line",
    "options_line",
    "overhead_line",
    "overview",
    "ratio_text",
    "says",
    "summary_cell",
    "tally",
]

#: From this share of the processors' time on a machine counts as busy.
BUSY = 0.1
CLOCK_NAMES: dict[Clock, str] = {"returned": "until the work returned", "durable": "until it was durable"}


def ratio_text(ratio: Spread) -> str:
    """A ratio with its interval: "1.10 (1.05 to 1.16)"."""
    ends = between(ratio)
    return number(ratio.value) + (f" ({ends})" if ends else "")


def leaders(view: SuiteView) -> list[str]:
    """Who won by each clock, by how much against the reference, and how sure that is; of rows that have no
    mean, the order in each; of tests, how many only the target does not pass."""
    if view.outcomes:
        return [_difference(view, each) for each in view.outcomes if each.target != view.reference]
    if view.headline is None or view.reference is None:
        return _rankings(view)
    said = []
    for clock, name in CLOCK_NAMES.items():
        lines = view.headline.lines[clock]
        ranked = sorted(
            (line for line in lines if not line.missing),
            key=lambda line: line.ratio.value if line.ratio else 1.0,
        )
        if len(ranked) > 1:
            rows = len(view.headline.rows)
            over = f"{view.headline.name}, geometric mean" if rows > 1 else view.headline.rows[0]
            said.append(f"{name[0].upper()}{name[1:]} ({over}): {_ranking(ranked, view.reference)}")
    # A clock that no row has a second of would say the same twice.
    durable = any("durable" in cell.clocks for row in view.rows for cell in row.cells)
    return said if durable else said[:1]


def _ranking(ranked: Sequence[Line], reference: str) -> str:
    first, second = ranked[0], ranked[1]
    one = Spread(1.0, (1.0,) * stats.RESAMPLES)
    ahead = (first.ratio or one) / (second.ratio or one)
    if ahead.interval is None:
        most = f"{first.target} took least, but there are too few samples to be sure of it"
    elif stats.sure(ahead):
        most = f"{first.target} took least"
    else:
        level = [
            line.target for line in ranked[1:] if not stats.sure((first.ratio or one) / (line.ratio or one))
        ]
        most = f"no difference is shown between {_listed([first.target, *level])}"
    against = [f"{line.target} {ratio_text(line.ratio)}" for line in ranked if line.ratio is not None]
    return f"{most}. Times what {reference} took: {', '.join(against)}."


def _difference(view: SuiteView, each: Differing) -> str:
    counts = ", ".join(f"{count:,} {kind}" for kind, count in each.counts.items())
    worse = f"{len(each.worse):,}" if each.worse else "none"
    return f"{each.target}: {counts}; of the tests that {view.reference} passes it does not pass {worse}."


def _rankings(view: SuiteView) -> list[str]:
    """The targets of each row, the best first, where there are two."""
    said, doubts = [], set()
    for row in view.rows:
        there = [cell for cell in row.cells if cell.clocks and not cell.failures]
        if len(there) < 2 or row.record.better == "none":
            continue
        clock: Clock = "durable" if all("durable" in cell.clocks for cell in there) else "returned"
        cells = [(cell, cell.clocks[clock].median) for cell in there]
        cells.sort(key=lambda each: each[1].value, reverse=row.record.better == "higher")
        order = ", ".join(f"{cell.target} {row.scale.text(figure.value)}" for cell, figure in cells)
        ahead = stats.verdict(cells[0][1], cells[1][1], higher=row.record.better == "higher")
        level = " (no difference is shown between the first two)" if ahead == "no difference shown" else ""
        said.append(f"{row.record.name}, best first: {order}{level}.")
        doubts.add(ahead)
    if "too few samples" in doubts:
        said.append(f"With fewer than {stats.LEAST} samples each, no order is sure.")
    return said


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def tally(view: SuiteView, target: str) -> dict[str, int]:
    """How many rows of a target came out how, against the reference; failures first."""
    order = (
        "failed",
        "filed",
        "faster",
        "better",
        "no difference shown",
        "slower",
        "worse",
        "too few samples",
    )
    counts = dict.fromkeys((*order, "not available"), 0)
    for row in view.rows:
        cell = row.cell(target)
        if cell.failures:
            said = "failed"
        elif cell.unavailable:
            said = "not available"
        elif cell.quoted and cell.quoted.verdict:
            said = cell.quoted.verdict
        else:
            continue
        counts[said] += 1
    return {said: count for said, count in counts.items() if count}


def says(row: RowView, cell: Cell) -> str:
    """The verdict on a cell. "To return": by that clock alone, where other targets have a durable one too."""
    quoted = cell.quoted
    if quoted is None or quoted.verdict is None:
        return ""
    two = any("durable" in each.clocks for each in row.cells)
    if two and cell.clock == "returned" and quoted.verdict in ("faster", "slower"):
        return f"{quoted.verdict} to return"
    return quoted.verdict


def summary_cell(view: SuiteView, summary: SummaryView, line: Line, clock: Clock) -> str:
    """A summary on a target: the sum, and the ratio with its interval; or why there is none."""
    if line.missing:
        cells = [row.cell(line.target) for row in view.rows]
        if clock == "durable" and not any("durable" in cell.clocks for cell in cells):
            return "no durable clock"
        return f"{len(line.missing)} of {len(summary.rows)} rows missing"
    parts = [] if line.figure is None else [duration(line.figure.value)]
    if line.ratio is not None:
        parts.append(ratio_text(line.ratio))
    elif line.target == view.reference:
        parts.append("1")
    return ", ".join(parts)


def overview(view: SuiteView, target: str, summary: SummaryView | None = None) -> tuple[Spread, Clock] | None:
    """A summary (the headline) of a target by the later clock that it and the reference have, and that
    clock."""
    chosen = summary or view.headline
    if chosen is None:
        return None
    durable = any("durable" in row.cell(target).clocks for row in view.rows)
    clocks: tuple[Clock, ...] = ("durable", "returned") if durable else ("returned",)
    for clock in clocks:
        for line in chosen.lines[clock]:
            if line.target == target and line.ratio is not None:
                return line.ratio, clock
    return None


def failed(view: SuiteView) -> list[tuple[RowView, Cell]]:
    """Every cell with a failure."""
    return [(row, cell) for row in view.rows for cell in row.cells if cell.failures]


def filed(view: SuiteView) -> list[tuple[RowView, Cell]]:
    """Every cell with times per file."""
    return [(row, cell) for row in view.rows for cell in row.cells if cell.per_file]


def cautions(record: Record) -> list[str]:
    """What a reader has to know before believing a run's figures."""
    said = []
    if record.partial:
        said.append(f"The run is partial: it was {record.partial}.")
    if record.options.quick:
        said.append("This was a quick run: it shows that the work runs; the figures mean nothing.")
    if record.options.scale != 1:
        said.append(
            f"This was {record.options.scale:g} of the full work: its figures do not stand beside those of a "
            "full run."
        )
    if record.host.busy_before is not None and record.host.busy_before > BUSY:
        said.append(
            f"The machine was busy when it began: other work took {record.host.busy_before:.0%} of its "
            "processors, and is in the figures."
        )
    said += record.host.cautions
    for target in record.targets:
        if target.unavailable:
            said.append(f"{target.name} was not available: {target.unavailable}.")
        elif target.died:
            said.append(f"{target.name} ended before the run did: {target.died}.")
    return said + record.notes


def options_line(record: Record) -> str:
    """What was asked for, in words."""
    options = record.options
    parts = [f"{options.reps} samples of each row", f"seed {options.seed}"]
    if options.quick:
        parts.append("quick")
    if options.scale != 1:
        parts.append(f"scale {options.scale:g}")
    if options.rtt is not None:
        parts.append(f"round trip {number(options.rtt * 1000)} ms")
    return ", ".join(parts)


def overhead_line(record: Record) -> str:
    """What the lab's own clocks and barrier add to each timed row, by target; empty where it is not known."""
    medians = [
        f"{name} {duration(statistics.median(samples))}"
        for name, samples in record.overhead.items()
        if samples
    ]
    return f"The lab's own overhead, both clocks around nothing: {', '.join(medians)}." if medians else ""


def host_line(record: Record) -> str:
    """The machine in one line."""
    host = record.host
    virtual = f", {host.virtual}" if host.virtual else ""
    memory = f"{host.memory_bytes / 2**30:.0f} GiB"
    return f"{host.cpus} × {host.cpu}{virtual}, {memory}, Linux {host.kernel}"


def load_line(record: Record) -> str:
    """How busy the machine was."""
    host = record.host
    before = f"load {number(host.load_before[0])} before" if host.load_before else "load not known"
    return before + (f", {number(host.load_after[0])} after" if host.load_after else "")
