"""`calls`: its loops, its figures, its counts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll.lab import tracing
from atoll.lab.model import CheckFailed, Options, Unavailable
from atoll.lab.suites import call_loops, calls
from atoll.lab.trees import Blocks
from tests.lab.suites import figures, on_each_target, quick

QUICK = Options(quick=True)


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Path]:
    """The loops work in the current folder."""
    before = os.getcwd()
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)


@on_each_target
def test_every_step_has_a_figure_and_its_spread(home: Path, target: str) -> None:
    rows = figures(quick("calls", target, home))
    assert list(rows) == [step for loop in call_loops.loops(QUICK) for step in loop.steps]
    for row in rows.values():
        (sample,) = row.samples["it"]
        details = sample.details
        assert row.unit == "us" and sample.durable is None and len(sample.series) == 3
        assert 0 < details["p50"] <= details["p90"] <= details["p99"] <= details["max"]
        assert sample.value <= details["max"] and details["first"] <= details["max"]
    assert rows["full cycle"].samples["it"][0].details["calls"] == 50
    parts = [rows[step].samples["it"][0].value for step in call_loops.loops(QUICK)[1].steps]
    assert sum(parts[:-1]) == pytest.approx(parts[-1])


def test_a_traced_run_counts_durability_calls_in_rows_of_its_own(home: Path) -> None:
    try:
        tracing.choose(home)
    except Unavailable as error:
        pytest.skip(str(error))
    record = quick("calls", "folder", home, trace=True)
    counted = {row.name: row for row in record.rows if row.unit == "calls"}
    serverless = {name: "no process of the target" for name in counted if name.startswith(calls.SERVERS)}
    figures(record, serverless)
    found = {name: row.samples["it"][0].value for name, row in counted.items() if name not in serverless}
    assert found.pop("durability calls: append 4 KiB + fsync") == 1
    # The file that is overwritten is flushed once before.
    assert found.pop(calls.OUTSIDE) == 1
    assert len(found) == 6 and set(found.values()) == {0} and len(serverless) == 8
    assert "appended (10)" in record.notes[0]


def test_a_traced_run_counts_those_of_a_server_too(home: Path) -> None:
    if why := tracing.make("strace", home).missing():
        pytest.skip(why)
    record = quick("calls", "passthrough", home, trace=True)
    served = {
        name: row.samples["it"][0].value
        for name, row in figures(record).items()
        if name.startswith(calls.SERVERS)
    }
    # It hands each fsync on, and asks for nothing of its own.
    assert served.pop(f"{calls.SERVERS}: append 4 KiB + fsync") == 1
    assert served.pop(f"{calls.SERVERS}, outside of any loop") == 1
    assert len(served) == 6 and set(served.values()) == {0}


def test_the_pass_with_the_median_total_is_shown_and_every_pass_kept() -> None:
    passes = [{"a": [1000, 3000], "b": [9000, 1000]}, {"a": [5000, 5000], "b": [2000, 2000]}]
    passes.append({"a": [100, 100], "b": [3000, 4000]})
    found = calls.summary(passes, "b")
    assert found["b"].series == [5.0, 2.0, 3.5] and found["b"].mean == 3.5
    assert found["a"].mean == 0.1 and found["a"].details["calls"] == 2


def test_percentiles_are_times_that_were_taken() -> None:
    times = list(range(1, 101))
    assert [calls.percentile(times, share) for share in (50, 90, 99)] == [50, 90, 99]
    assert calls.percentile([7], 99) == 7


@pytest.mark.parametrize("change", ["truncate", "byte", "longer"])
def test_a_loop_sees_what_was_lost(inside: Path, change: str) -> None:
    blocks = Blocks(call_loops.SMALL, 1)
    data = blocks[0] + blocks[1]
    (inside / "file").write_bytes(data)
    call_loops.check_blocks("file", range(2), blocks)
    damaged = {"truncate": data[:-1], "byte": data[:5000] + b"\0" + data[5001:], "longer": data + b"x"}
    (inside / "file").write_bytes(damaged[change])
    with pytest.raises(CheckFailed):
        call_loops.check_blocks("file", range(2), blocks)


def test_loops_leave_the_folder_as_it_was(inside: Path) -> None:
    for loop in call_loops.loops(QUICK):
        parts: list[tuple[str, int]] = []
        taken = call_loops.in_own_folder(loop, lambda *part: parts.append(part))  # noqa: B023
        assert set(taken) == set(loop.steps)
        assert [name for name, _ in parts] == [part for part in loop.parts for _ in range(2)]
        assert {count for _, count in parts} <= {len(taken[loop.steps[-1]])}
    assert not list(inside.iterdir())
