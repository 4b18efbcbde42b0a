"""Medians, intervals and verdicts: what must hold for any samples."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.lab import stats

times = st.lists(st.floats(1e-6, 1e4), min_size=stats.LEAST, max_size=12)


@given(times, times)
@settings(max_examples=50, deadline=None)
def test_an_interval_contains_its_figure(a: list[float], b: list[float]) -> None:
    first, second = stats.median(a, "a"), stats.median(b, "b")
    for spread in (first, second, first / second, stats.total([first, second])):
        ends = spread.interval
        assert ends is not None and ends[0] <= spread.value <= ends[1]
    assert first.value == statistics.median(a)
    low, high = first.interval or (0, 0)
    assert min(a) <= low and high <= max(a)


@given(times, times)
@settings(max_examples=50, deadline=None)
def test_a_ratio_turned_round_is_its_inverse(a: list[float], b: list[float]) -> None:
    first, second = stats.median(a, "a"), stats.median(b, "b")
    there, back = first / second, second / first
    assert there.value * back.value == pytest.approx(1)
    (low, high), (low_back, high_back) = there.interval or (0, 0), back.interval or (0, 0)
    assert low * high_back == pytest.approx(1)
    assert high * low_back == pytest.approx(1)
    opposite = {"faster": "slower", "slower": "faster"}
    said = stats.verdict(first, second)
    assert stats.verdict(second, first) == opposite.get(said, said)


@given(times)
@settings(max_examples=50, deadline=None)
def test_the_same_samples_show_no_difference(a: list[float]) -> None:
    first, second = stats.median(a, "a"), stats.median(a, "b")
    assert (first / second).value == 1
    assert stats.verdict(first, second) == "no difference shown"


@given(times, times)
@settings(max_examples=100, deadline=None)
def test_overlapping_samples_of_which_none_is_apart_never_win(a: list[float], b: list[float]) -> None:
    first, second = stats.median(a, "a"), stats.median(b, "b")
    (low, high), (low_b, high_b) = first.interval or (0, 0), second.interval or (0, 0)
    if low <= high_b and low_b <= high:
        assert stats.verdict(first, second) == "no difference shown"


def test_the_interval_of_a_ratio_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = random.Random(4)
    truth, hits, runs = 1.3, 0, 200
    for run in range(runs):
        a = [truth * rng.lognormvariate(0, 0.2) for _ in range(7)]
        b = [rng.lognormvariate(0, 0.2) for _ in range(7)]
        ratio = stats.median(a, f"a{run}") / stats.median(b, f"b{run}")
        low, high = ratio.interval or (0, 0)
        hits += low <= truth <= high
    assert 0.90 <= hits / runs <= 1.0


def test_too_few_samples_have_no_interval_and_no_verdict() -> None:
    few, many = stats.median([1.0, 1.0, 1.0], "a"), stats.median([9.0] * 5, "b")
    assert few.interval is None and (few / many).interval is None
    assert stats.verdict(few, many) == "too few samples"


def test_a_clear_difference_is_said_in_the_right_direction() -> None:
    low, high = stats.median([1, 1.1, 1.2, 1.3], "a"), stats.median([5, 5.1, 5.2, 5.3], "b")
    assert stats.verdict(low, high) == "faster"
    assert stats.verdict(low, high, higher=True) == "slower"
    assert stats.verdict(high, low, higher=True, timed=False) == "better"


def test_the_same_stream_gives_the_same_interval() -> None:
    samples = [1.0, 2.0, 4.0, 8.0, 16.0]
    assert stats.median(samples, "x") == stats.median(samples, "x")
    assert stats.median(samples, "x").replicates != stats.median(samples, "y").replicates


def test_a_geometric_mean_of_ratios() -> None:
    parts = [stats.Spread(2.0), stats.Spread(8.0)]
    assert stats.geometric_mean(parts).value == pytest.approx(4)
    assert stats.total(parts).value == 10
