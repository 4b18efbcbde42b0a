"""How figures are written for people: three digits that mean something, and the unit that fits."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from atoll.lab.stats import Spread

__all__ = ["Scale", "between", "duration", "number", "scale_of"]

_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


@dataclass(frozen=True)
class Scale:
    """The unit that a row is shown in, and what its figures are multiplied by for it."""

    unit: str
    factor: float = 1.0

    def text(self, value: float) -> str:
        """A figure with its unit; what is counted is whole."""
        if self.factor == 1 and self.unit not in _TIMES and value == round(value):
            return f"{value:,.0f} {self.unit}".rstrip()
        return f"{number(value * self.factor)} {self.unit}".rstrip()

    def between(self, spread: Spread) -> str:
        """The interval of a figure, without its unit; empty where there is none."""
        return between(spread, self.factor)


def scale_of(unit: str, values: Iterable[float]) -> Scale:
    """Of a row: seconds are shown as ms where the smallest figure is below a second, bytes as MB."""
    if unit == "s":
        small = min((value for value in values if value > 0), default=1.0) < 1
        return Scale("ms", 1e3) if small else Scale("s")
    if unit in ("B", "bytes"):
        large = max(values, default=0) >= 1e4
        return Scale("MB", 1e-6) if large else Scale("bytes")
    return Scale({"us": "µs", "count": ""}.get(unit, unit))


def number(value: float) -> str:
    """A figure with three digits that mean something (two below 0.1), or all that are before the point."""
    size = abs(value)
    if size == 0 or size >= 99.95:
        return f"{value:,.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    if size >= 0.0995:
        return f"{value:.2f}"
    return f"{value:.{1 - math.floor(math.log10(size))}f}"


def between(spread: Spread, factor: float = 1.0) -> str:
    """The ends of a figure's interval: "1.05 to 1.16"; empty where there is none, or it is exact."""
    ends = spread.interval
    return (
        ""
        if ends is None or ends[0] == ends[1]
        else f"{number(ends[0] * factor)} to {number(ends[1] * factor)}"
    )


def duration(seconds: float) -> str:
    """A time in the unit that fits: "0.5 ms", "12.4 s"."""
    unit = next((unit for unit, size in _TIMES.items() if abs(seconds) >= size), "ns")
    if seconds == 0:
        unit = "s"
    return f"{number(seconds / _TIMES[unit])} {'µs' if unit == 'us' else unit}"
