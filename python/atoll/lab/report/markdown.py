"""Markdown: a section for each suite, a line for each row, a column for each target."""

from __future__ import annotations

from collections.abc import Sequence

from atoll.lab.record import Record
from atoll.lab.report.base import Report
from atoll.lab.report.figures import number
from atoll.lab.report.tables import CLOCKS, Cell, RowView, SuiteView, SummaryView, suite_views
from atoll.lab.report.words import (
    cautions,
    failed,
    host_line,
    leaders,
    load_line,
    options_line,
    overhead_line,
    ratio_text,
    says,
    summary_cell,
)

__all__ = ["MarkdownReport", "environment", "section"]


class MarkdownReport(Report):
    """For documents and pull requests."""

    name = "markdown"
    suffix = ".md"

    def render(self, records: Sequence[Record], reference: str | None = None) -> str:
        """The whole page."""
        parts = ["# Measured by `atoll lab`", LEGEND]
        parts += [section(view) for view in suite_views(records, reference)]
        parts += [environment(record, number) for number, record in enumerate(records, 1)]
        return "\n\n".join(part.strip() for part in parts) + "\n"


LEGEND = (
    "In a cell: the median until the work returned, then until it was durable; below it the ratio to the "
    "first target (more than 1 is slower), with its 95 % interval. Nothing is called faster or slower whose "
    "intervals touch."
)


def section(view: SuiteView, level: int = 2) -> str:
    """A suite of a run."""
    suite = view.record
    parts = [f"{'#' * level} {suite.name}: {suite.title}"]
    if suite.unavailable:
        return "\n\n".join([*parts, f"Not available: {_cell_text(suite.unavailable)}"])
    parts += cautions(view.run)
    if said := leaders(view):
        parts.append("\n".join(f"- {sentence}" for sentence in said))
    if view.rows:
        parts.append(_table(view))
    parts += [_summary(each, view) for each in view.summaries if each.rows]
    if per_file := _per_file(view):
        parts.append(per_file)
    if failures := failed(view):
        parts.append("\n".join(_failures(row, cell) for row, cell in failures))
    if view.outcomes:
        parts.append(_outcomes(view))
    parts += suite.notes
    parts.append(f"Run {view.number}: {options_line(view.run)}; suite version {suite.version}.")
    return "\n\n".join(parts)


def _lines(head: Sequence[str], rows: Sequence[Sequence[str]], right_from: int = 1) -> str:
    rule = ["---" if at < right_from else "--:" for at in range(len(head))]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *rows))


def _cell_text(text: str) -> str:
    """Without what would end a cell, or be taken for markup."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _table(view: SuiteView) -> str:
    targets = view.record.targets
    rows = [
        [_cell_text(row.record.name), *(_cell(row, row.cell(name)) for name in targets)] for row in view.rows
    ]
    return _lines(["row", *map(_cell_text, targets)], rows)


def _cell(row: RowView, cell: Cell) -> str:
    if cell.unavailable:
        return f"not available: {_cell_text(cell.unavailable)}"
    shown = [row.scale.text(each.median.value) for each in cell.clocks.values()]
    lines = [", durable ".join(shown)] if shown else []
    if cell.quoted and cell.quoted.verdict:
        said = says(row, cell)
        bold = said if said in ("no difference shown", "too few samples") else f"**{said}**"
        lines.append(f"{ratio_text(cell.quoted.ratio) if cell.quoted.ratio else ''} {bold}")
    elif cell.quoted and cell.quoted.ratio:
        lines.append(ratio_text(cell.quoted.ratio))
    if cell.failures:
        lines.append(f"**failed** {len(cell.failures)} of {len(cell.failures) + len(cell.samples)}")
    return "<br>".join(line.strip() for line in lines)


def _summary(summary: SummaryView, view: SuiteView) -> str:
    rows = []
    for at, name in enumerate(view.record.targets):
        cells = (summary_cell(view, summary, summary.lines[clock][at], clock) for clock in CLOCKS)
        rows.append([_cell_text(name), *cells])
    what = f"{summary.name} ({summary.kind} of {len(summary.rows)} rows)"
    return _lines([what, "until it returned", "until it was durable"], rows)


def _per_file(view: SuiteView) -> str:
    rows = []
    for row in view.rows:
        for cell in row.cells:
            if cell.per_file is None or (each := cell.per_file).wait is None:
                continue
            trips = "" if each.round_trips is None else number(each.round_trips)
            figures = [number(each.other * 1000), number(each.wait * 1000), trips]
            rows.append([_cell_text(row.record.name), _cell_text(cell.target), f"{cell.files:,}", *figures])
    if not rows:
        return ""
    wait = f"wait for each, against {view.reference}, ms"
    head = ["row", "target", "files", "ms a file", wait, "round trips a file"]
    return _lines(head, rows, right_from=2)


def _failures(row: RowView, cell: Cell) -> str:
    messages = dict.fromkeys(failure.message for failure in cell.failures)
    which = f"**{_cell_text(cell.target)} failed** in {_cell_text(row.record.name)}"
    return f"- {which}, {len(cell.failures)} times: {_cell_text('; '.join(messages))}"


def _outcomes(view: SuiteView) -> str:
    rows = [
        [
            _cell_text(each.target),
            *(f"{each.counts[kind]:,}" for kind in ("pass", "fail", "skip")),
            str(len(each.worse)),
        ]
        for each in view.outcomes
    ]
    worse = f"{view.reference} passes, it does not"
    parts = [_lines(["target", "pass", "fail", "skip", worse], rows)]
    for each in view.outcomes:
        alike: dict[str, list[str]] = {}
        for test, result in each.worse:
            alike.setdefault(result, []).append(test)
        tests = [f"- {_cell_text(result)}: {_cell_text(', '.join(names))}" for result, names in alike.items()]
        if tests:
            parts.append("\n".join([f"Of {each.target}, against {view.reference}:\n", *tests]))
    return "\n\n".join(parts)


def environment(record: Record, number: int, level: int = 2) -> str:
    """What a run was made on and with."""
    targets = [
        [
            _cell_text(each.name),
            f"`{_cell_text(each.spec)}`",
            _cell_text(each.unavailable or f"{each.file_system} ({each.mount_options})"),
            _cell_text(each.barrier.note),
            _cell_text(", ".join(f"{name} {version}" for name, version in each.versions.items())),
        ]
        for each in record.targets
    ]
    head = ["target", "written as", "file system", "durable when", "versions"]
    versions = ", ".join(f"{name} {version}" for name, version in record.host.versions.items())
    return "\n\n".join(
        [
            f"{'#' * level} Run {number}: the environment",
            f"{host_line(record)}, {load_line(record)}. Started {record.started}, ended {record.ended}. "
            f"atoll {record.lab}, {versions}.",
            f"`{' '.join(record.command)}`",
            overhead_line(record),
            _lines(head, targets, right_from=len(head)),
        ]
    )
