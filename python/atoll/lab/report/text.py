"""The table at the end of `atoll lab run`: a line for each row and target."""

from __future__ import annotations

from collections.abc import Sequence

from atoll.lab.record import Record
from atoll.lab.report.base import Report
from atoll.lab.report.figures import number
from atoll.lab.report.tables import Cell, RowView, SuiteView, suite_views
from atoll.lab.report.words import cautions, leaders, overhead_line, ratio_text, says

__all__ = ["TextReport"]

#: Longer messages are cut in the table; the record has them whole.
_MESSAGE = 60
#: Columns that are set to the right.
_FIGURES = (2, 3)


class TextReport(Report):
    """For a terminal, without colours."""

    name = "text"
    suffix = ".txt"

    def render(self, records: Sequence[Record], reference: str | None = None) -> str:
        """The tables, one under the other."""
        parts = [sentence for record in records for sentence in cautions(record)]
        for view in suite_views(records, reference):
            parts += ["", *_suite(view)]
        parts += ["", *(line for record in records if (line := overhead_line(record)))]
        return "\n".join(parts).strip() + "\n"


def _suite(view: SuiteView) -> list[str]:
    suite = view.record
    lines = [f"{suite.name}: {suite.title}"]
    if suite.unavailable:
        return [*lines, f"  not available: {suite.unavailable}"]
    if view.reference is None:
        reasons = {
            f"  {cell.target} is not available: {cell.unavailable}"
            if cell.unavailable
            else f"  {cell.target} FAILED in {row.record.name}: {cell.failures[0].message}"
            for row in view.rows
            for cell in row.cells
            if cell.unavailable or cell.failures
        }
        return [*lines, *sorted(reasons)]
    head = ["row", "target", "returned", "durable", f"× {view.reference}", "", ""]
    table = [_cells(row, cell, first) for row in view.rows for first, cell in _marked(row)]
    lines += _columns(head, table)
    lines += leaders(view)
    return [*lines, *suite.notes]


def _marked(row: RowView) -> list[tuple[bool, Cell]]:
    return [(at == 0, cell) for at, cell in enumerate(row.cells)]


def _cells(row: RowView, cell: Cell, first: bool) -> list[str]:
    name = row.record.name if first else ""
    if cell.unavailable:
        return [name, cell.target, "not available", "", "", "", cell.unavailable[:_MESSAGE]]
    shown = {clock: row.scale.text(each.median.value) for clock, each in cell.clocks.items()}
    ratio, verdict = "", ""
    if cell.quoted:
        ratio = ratio_text(cell.quoted.ratio) if cell.quoted.ratio else ""
        verdict = says(row, cell)
    notes = []
    if cell.failures:
        notes.append(f"{len(cell.failures)} FAILED: {cell.failures[0].message[:_MESSAGE]}")
    elif cell.per_file:
        notes.append(f"{number(cell.per_file.other * 1000)} ms/file")
    returned = shown.get("returned", "FAILED" if cell.failures else "")
    return [name, cell.target, returned, shown.get("durable", ""), ratio, verdict, "; ".join(notes)]


def _columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as they must be: a terminal wraps what does not fit, and nothing is cut in a file."""
    if not rows:
        return []
    lines = [head, *rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    return [
        "  ".join(
            cell.rjust(width) if at in _FIGURES else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
