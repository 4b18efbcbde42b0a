"""Medians, geometric means, and how sure they are: percentile-bootstrap intervals, and what may be said.

scipy has a bootstrap, but weighs about 100 MB with what it needs; drawing again takes a few lines.
"""

from __future__ import annotations

import functools
import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "LEAST",
    "RESAMPLES",
    "Spread",
    "Verdict",
    "geometric_mean",
    "median",
    "sure",
    "total",
    "verdict",
]

#: How often samples are drawn again. The ends of an interval then move by less than they mean.
RESAMPLES = 2000
#: Samples below which no interval is given: of three against three, all on one side is chance in one run of
#: ten; of four against four in one of 35.
LEAST = 4
#: Share of the replicates beyond each end of an interval.
_TAIL = 0.025

Verdict = Literal["faster", "slower", "better", "worse", "no difference shown", "too few samples"]


@dataclass(frozen=True)
class Spread:
    """A figure, and what it would have been with other luck: the same figure of samples drawn again."""

    value: float
    replicates: tuple[float, ...] = ()
    """Empty: there were too few samples to say how sure the figure is."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """The ends of the 95 % interval; it always contains `value`."""
        if not self.replicates:
            return None
        ordered = sorted(self.replicates)
        cut = int(len(ordered) * _TAIL)
        return min(ordered[cut], self.value), max(ordered[-1 - cut], self.value)

    @property
    def positive(self) -> bool:
        """Whether it can be divided by, and be in a geometric mean."""
        return self.value > 0 and all(each > 0 for each in self.replicates)

    def __truediv__(self, other: Spread) -> Spread:
        """The ratio of two figures; `other` has to be positive."""
        return _combined((self, other), lambda pair: pair[0] / pair[1])


def exact(value: float) -> Spread:
    """A figure that has no spread: luck has no part in it."""
    return Spread(value, (value,) * RESAMPLES)


def median(samples: Sequence[float], stream: str) -> Spread:
    """The median of samples. `stream` seeds the drawing: samples that were taken independently of each other
    need streams of their own."""
    return _median(tuple(samples), stream)


@functools.lru_cache(maxsize=1 << 14)
def _median(samples: tuple[float, ...], stream: str) -> Spread:
    value = statistics.median(samples)
    if len(samples) < LEAST:
        return Spread(value)
    rng = random.Random(stream)
    drawn = (sorted(rng.choices(samples, k=len(samples))) for _ in range(RESAMPLES))
    low, high = (len(samples) - 1) // 2, len(samples) // 2
    return Spread(value, tuple((each[low] + each[high]) / 2 for each in drawn))


def geometric_mean(spreads: Sequence[Spread]) -> Spread:
    """Of positive figures."""
    return _combined(
        spreads, lambda values: math.exp(math.fsum(math.log(value) for value in values) / len(values))
    )


def total(spreads: Sequence[Spread]) -> Spread:
    """The sum of figures."""
    return _combined(spreads, math.fsum)


def _combined(spreads: Sequence[Spread], how: Callable[[Sequence[float]], float]) -> Spread:
    """A figure of figures; its replicates pair those of its parts, drawn independently of each other."""
    value = how([each.value for each in spreads])
    if not all(each.replicates for each in spreads):
        return Spread(value)
    return Spread(
        value, tuple(how(each) for each in zip(*(each.replicates for each in spreads), strict=True))
    )


def sure(ratio: Spread) -> bool:
    """Whether a ratio's whole interval is on one side of 1."""
    ends = ratio.interval
    return ends is not None and (ends[0] > 1 or ends[1] < 1)


def verdict(ours: Spread, reference: Spread, *, higher: bool = False, timed: bool = True) -> Verdict:
    """What may be said of a figure beside the reference's: never more than that no difference is shown, when
    their intervals touch, or when their ratio's contains 1.

    `higher` means that more is better; what is no time and no rate is "better" or "worse", not faster.
    """
    mine, theirs = ours.interval, reference.interval
    if mine is None or theirs is None:
        return "too few samples"
    apart = mine[1] < theirs[0] or theirs[1] < mine[0]
    if not apart or (reference.positive and not sure(ours / reference)):
        return "no difference shown"
    wins = (ours.value > reference.value) == higher
    if timed:
        return "faster" if wins else "slower"
    return "better" if wins else "worse"
