"""Samples, medians and records: targets take turns, every sample is kept, a figure stands beside its bar."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCHEMA = 1

Sample = Callable[[], float]
"""One run of a target: prepares, does the work, returns the seconds of the timed part."""


@dataclass
class Row:
    """One figure: samples by target, what is made of them, and the most that it may be."""

    name: str
    samples: dict[str, list[float]]
    unit: str
    figure: float
    bar: float | None
    how: str
    """What the figure is, in words: "median atoll / median tar | zstd"."""
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def holds(self) -> bool | None:
        """Whether the figure keeps to its bar; None where there is none."""
        return None if self.bar is None else self.figure <= self.bar

    def record(self) -> dict[str, Any]:
        """The row for the JSON record."""
        return {
            "name": self.name,
            "unit": self.unit,
            "samples": self.samples,
            "medians": {target: statistics.median(values) for target, values in self.samples.items()},
            "how": self.how,
            "figure": self.figure,
            "bar": self.bar,
            "holds": self.holds,
            **({"notes": self.notes} if self.notes else {}),
        }


@dataclass
class Options:
    """What a benchmark is run with."""

    runs: int
    place: Path
    """A folder on the disk that is measured."""
    atoll: Path
    env: dict[str, str]
    scale: float = 1.0
    """Share of the full number of files, for a quick look; figures of docs/PERFORMANCE.md have 1."""

    def count(self, full: int) -> int:
        """A number of files, scaled."""
        return max(10, round(full * self.scale))


def progress(text: str) -> None:
    """A line for whoever watches."""
    print(f"  {text}", file=sys.stderr, flush=True)


def timed(work: Callable[[], object]) -> float:
    """Seconds that `work` takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def interleave(targets: Mapping[str, Sample], runs: int, warm_up: int = 0) -> dict[str, list[float]]:
    """`runs` samples of each target, taking turns, every second time backwards; warm-ups are not kept."""
    samples: dict[str, list[float]] = {name: [] for name in targets}
    for number in range(-warm_up, runs):
        order = list(targets.items())
        for name, sample in order if number % 2 == 0 else reversed(order):
            seconds = sample()
            if number >= 0:
                samples[name].append(seconds)
                progress(f"{name} {number + 1}/{runs}: {seconds * 1000:.2f} ms")
    return samples


def scaled(samples: Mapping[str, Sequence[float]], factor: float) -> dict[str, list[float]]:
    """Samples in another unit (1000: milliseconds)."""
    return {name: [value * factor for value in values] for name, values in samples.items()}


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def ratio_row(name: str, samples: dict[str, list[float]], ours: str, base: str, bar: float | None) -> Row:
    """A row whose figure is the ratio of two medians; samples are in seconds, shown in milliseconds."""
    figure = median(samples[ours]) / median(samples[base])
    return Row(name, scaled(samples, 1000), "ms", figure, bar, f"median {ours} / median {base}")


def number(value: float) -> str:
    """A figure with about three digits that mean something."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 1 else f"{value:.2g}"


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a table."""
    lines = ["| what | medians | figure | bar | holds | the figure is |", "|---|---|--:|--:|---|---|"]
    for row in rows:
        medians = ", ".join(f"{t} {number(median(v))} {row.unit}" for t, v in row.samples.items())
        bar = "" if row.bar is None else number(row.bar)
        holds = {True: "yes", False: "**no**", None: ""}[row.holds]
        lines.append(f"| {row.name} | {medians} | {number(row.figure)} | {bar} | {holds} | {row.how} |")
    return "\n".join(lines) + "\n"


def write(name: str, rows: Sequence[Row], host: dict[str, Any], folder: Path) -> Path:
    """Write NAME.json and NAME.md; returns the path of the record."""
    folder.mkdir(parents=True, exist_ok=True)
    record = {"schema": SCHEMA, "benchmark": name, "host": host, "rows": [row.record() for row in rows]}
    path = folder / f"{name}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    (folder / f"{name}.md").write_text(markdown(rows))
    return path


def settle() -> None:
    """Write out what is dirty, so that no sample pays for the one before it."""
    os.sync()
