"""A picture of a suite as SVG: a lane for each row and target, samples as dots, the median as a bar, the
ratio's interval as a line, on a logarithmic axis of the cost against the reference; figures at the right.

Vega-Lite draws it (by vl-convert, which carries the renderer: no browser, no network). Colours are CSS
variables, so that one drawing serves light and dark; there is a wide and a narrow one, since text that
shrinks with its picture cannot be read on a phone.
"""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from typing import Any

from atoll.lab.report.figures import between, number
from atoll.lab.report.tables import Cell, RowView, SuiteView, clock_values, cost
from atoll.lab.report.words import ratio_text, says
from atoll.lab.stats import Spread

__all__ = ["COLOURS", "NARROW", "WIDE", "Size", "draw"]

#: Targets beyond this take the colours again from the first; lanes have names, so nothing rests on colour.
COLOURS = 8


@dataclass(frozen=True)
class Size:
    """Where a drawing's columns are, in pixels."""

    names: int
    axis: int
    median: int
    ratio: int
    interval: int
    """The columns at the right; without an interval there is room for none."""
    letters: int
    """That a name has room for."""

    @property
    def right(self) -> int:
        """What the columns at the right take."""
        return self.median + self.ratio + self.interval


WIDE = Size(names=170, axis=520, median=92, ratio=62, interval=116, letters=26)
NARROW = Size(names=92, axis=146, median=66, ratio=46, interval=0, letters=15)

LANE, TITLE, GAP, HEAD, FOOT = 17, 20, 9, 26, 30
FONT = "system-ui, sans-serif"


def draw(view: SuiteView, size: Size) -> str:
    """The picture as an `<svg>` element; empty where no row has a figure."""
    import vl_convert

    lanes, height = _lanes(view, size)
    if not any(lane["medians"] for lane in lanes):
        return ""
    text: str = vl_convert.vegalite_to_svg(_spec(lanes, height, size))
    return _cleaned(
        text, f"{view.record.name}: cost against {view.reference}; the table below has the same figures"
    )


def _lanes(view: SuiteView, size: Size) -> tuple[list[dict[str, Any]], int]:
    """What is drawn at which height, from the top."""
    lanes: list[dict[str, Any]] = []
    at = HEAD
    for row in view.rows:
        lanes.append({"y": at + TITLE / 2, "title": row.record.name, "medians": []})
        at += TITLE
        for number_, cell in enumerate(row.cells):
            lanes.append({"y": at + LANE / 2, "title": None, **_lane(view, row, cell, number_, size)})
            at += LANE
        at += GAP
    return lanes, at + FOOT


def _lane(view: SuiteView, row: RowView, cell: Cell, place: int, size: Size) -> dict[str, Any]:
    name = cell.target
    short = name if len(name) <= size.letters else name[: size.letters - 1] + "…"
    if "durable" not in cell.clocks and any("durable" in each.clocks for each in row.cells) and cell.clocks:
        short += " †"
    lane: dict[str, Any] = {
        "name": short,
        "colour": f"var(--t{place % COLOURS + 1})",
        "medians": [],
        "dots": [],
    }
    quoted, base = cell.quoted, row.cell(view.reference or name).clocks.get(cell.clock)
    lane["right"], lane["strong"] = _figures(row, cell)
    if quoted is None or base is None:
        return lane
    ratio = quoted.ratio or (Spread(1.0) if name == view.reference and quoted.median.positive else None)
    if ratio is None or row.record.better == "none":
        return lane
    for value in clock_values(cell.samples, cell.clock):
        each = cost(row.record, Spread(value), Spread(base.median.value))
        if each is not None:
            lane["dots"].append(each.value)
    lane["medians"] = [ratio.value]
    lane["interval"] = ratio.interval
    lane["says"] = _says(view, row, cell)
    return lane


def _figures(row: RowView, cell: Cell) -> tuple[list[str], bool]:
    """The text of the columns at the right of a lane, and whether a difference is shown."""
    quoted = cell.quoted
    if quoted is None:
        return ["not available", "", ""] if cell.unavailable else ["FAILED", "", ""], not cell.unavailable
    ratio = "" if quoted.ratio is None else number(quoted.ratio.value)
    interval = "" if quoted.ratio is None else between(quoted.ratio)
    shown = [row.scale.text(quoted.median.value), ratio, interval]
    if cell.failures:
        return [*shown[:2], f"{len(cell.failures)} FAILED"], True
    return shown, quoted.verdict in ("faster", "slower", "better", "worse")


def _says(view: SuiteView, row: RowView, cell: Cell) -> str:
    """A lane in words, for those who point at it, step to it, or listen to it."""
    parts = []
    for clock, measured in cell.clocks.items():
        values = clock_values(cell.samples, clock)
        span = f"{number(min(values) * row.scale.factor)} to {row.scale.text(max(values))}"
        parts.append(f"{clock} {row.scale.text(measured.median.value)} (samples {span})")
    if cell.quoted and cell.quoted.ratio:
        parts.append(f"{ratio_text(cell.quoted.ratio)} times {view.reference}, {says(row, cell)}")
    parts += [f"{name} {number(value)}" for name, value in cell.details.items()]
    return f"{row.record.name}, {cell.target}: {'; '.join(part.rstrip(', ') for part in parts)}"


def _spec(lanes: list[dict[str, Any]], height: int, size: Size) -> dict[str, Any]:
    drawn = [lane for lane in lanes if lane["medians"]]
    costs = [
        value for lane in drawn for value in (*lane["dots"], *lane["medians"], *(lane["interval"] or ()))
    ]
    low, high = min(0.8, *costs) / 1.08, max(1.25, *costs) * 1.08
    ticks = _ticks(low, high, size.axis // 52)
    x: dict[str, Any] = {
        "field": "x",
        "type": "quantitative",
        "scale": {"type": "log", "domain": [low, high], "nice": False},
    }
    y = {
        "field": "y",
        "type": "quantitative",
        "scale": {"domain": [0, height], "range": [0, height]},
        "axis": None,
    }

    def layer(mark: dict[str, Any], values: list[dict[str, Any]], **channels: Any) -> dict[str, Any]:
        return {"data": {"values": values}, "mark": mark, "encoding": {"y": y, **channels}}

    def text(pixel: int, values: list[dict[str, Any]], **mark: Any) -> dict[str, Any]:
        style = {"type": "text", "align": "right", "baseline": "middle", "font": FONT, "fontSize": 12}
        style |= {"aria": False, **mark}
        return layer(style, values, x={"value": pixel}, text={"field": "text"})

    colour = {"field": "colour", "type": "nominal", "scale": None}
    places = [{"y": lane["y"], "colour": lane.get("colour"), "lane": lane} for lane in lanes]
    titles = [{"y": p["y"], "text": p["lane"]["title"]} for p in places if p["lane"]["title"]]
    names = [{"y": p["y"], "text": p["lane"]["name"]} for p in places if "name" in p["lane"]]
    figures = [p for p in places if "right" in p["lane"]]
    ends = [size.axis + size.median, size.axis + size.median + size.ratio, size.axis + size.right]
    columns = [
        text(
            end,
            [{"y": p["y"], "text": p["lane"]["right"][at]} for p in figures if p["lane"]["strong"] is strong],
            **look,
        )
        for at, end in enumerate(ends[: 3 if size.interval else 2])
        for strong, look in (
            (True, {"color": "var(--ink)", "fontWeight": 600}),
            (False, {"color": "var(--dim)"}),
        )
    ]
    grid = [{"x": tick, "y": HEAD - 6, "y2": height - FOOT, "text": f"{tick:g}×"} for tick in ticks]
    points = [p for p in places if p["lane"]["medians"]]
    dots = [{"x": x_, "y": p["y"], "colour": p["colour"]} for p in points for x_ in p["lane"]["dots"]]
    medians = [
        {"x": p["lane"]["medians"][0], "y": p["y"], "colour": p["colour"], "says": p["lane"]["says"]}
        for p in points
    ]
    spans = [
        {"x": p["lane"]["interval"][0], "x2": p["lane"]["interval"][1], "y": p["y"], "colour": p["colour"]}
        for p in points
        if p["lane"]["interval"]
    ]
    one = [{"x": 1, "y": HEAD - 6, "y2": height - FOOT}]
    y2, x = {"field": "y2"}, {**x, "axis": None}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": size.axis,
        "height": height,
        "padding": {"left": size.names, "right": size.right, "top": 0, "bottom": 0},
        "autosize": {"type": "none"},
        "background": None,
        "config": {"view": {"stroke": None}},
        "layer": [
            layer({"type": "rule", "color": "var(--line)", "aria": False}, grid, x=x, y2=y2),
            layer({"type": "rule", "color": "var(--ink)", "aria": False, "opacity": 0.55}, one, x=x, y2=y2),
            *(
                layer(
                    {
                        "type": "text", "font": FONT, "fontSize": 11, "color": "var(--dim)", "aria": False,
                        "yOffset": offset,
                    },
                    [{**each, "y": place} for each in grid],
                    x=x, text={"field": "text"},
                )
                for place, offset in ((HEAD - 6, -9), (height - FOOT, 11))
            ),
            text(-size.names, titles, align="left", fontWeight=600, color="var(--ink)"),
            text(-10, names, color="var(--dim)"),
            *columns,
            layer(
                {"type": "rule", "strokeWidth": 1.5, "opacity": 0.6, "aria": False},
                spans, x=x, x2={"field": "x2"}, color=colour,
            ),
            layer(
                {"type": "point", "filled": True, "size": 20, "opacity": 0.5, "aria": False},
                dots, x=x, color=colour,
            ),
            layer(
                {"type": "tick", "orient": "vertical", "thickness": 3, "size": 13, "cornerRadius": 1},
                medians, x=x, color=colour, description={"field": "says"},
            ),
        ],
    }  # fmt: skip


def _ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers on a logarithmic axis, as many as there is room for."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    choices: tuple[tuple[float, ...], ...] = ((1, 1.2, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))
    for steps in choices:
        found = [step * 10.0**decade for decade in decades for step in steps]
        found = [tick for tick in found if low <= tick <= high]
        if len(found) <= max(most, 2):
            return [float(f"{tick:.6g}") for tick in found]
    every = math.ceil(len(found) / max(most, 2))
    return [float(f"{tick:.6g}") for tick in found if round(math.log10(tick)) % every == 0]


_SVG = "http://www.w3.org/2000/svg"
_NOISE = ("class", "role", "aria-roledescription", "aria-label", "aria-hidden", "pointer-events")


def _cleaned(svg: str, label: str) -> str:
    """Without the renderer's own roles, which say little; each median has its words as a title instead."""
    ET.register_namespace("", _SVG)
    root = ET.fromstring(svg)
    for element in root.iter():
        said = element.attrib.pop("aria-label", None) if element.tag == f"{{{_SVG}}}path" else None
        for name in _NOISE:
            element.attrib.pop(name, None)
        for name, value in element.attrib.items():
            # A hundredth of a pixel is seen by nobody.
            element.set(name, re.sub(r"-?\d+\.\d{3,}", lambda match: f"{float(match[0]):.2f}", value))
        if said:
            element.attrib |= {"role": "img", "aria-label": said, "class": "median", "tabindex": "-1"}
            ET.SubElement(element, f"{{{_SVG}}}title").text = said
    root.attrib |= {"role": "group", "aria-label": label, "tabindex": "0"}
    return ET.tostring(root, encoding="unicode")
