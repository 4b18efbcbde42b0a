"""`calls`: what a single call costs."""

from __future__ import annotations

import contextlib
import math
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from atoll.lab import tracing
from atoll.lab.model import Better, CheckFailed, Options, Row, Scenario, Suite, Summary, Unavailable
from atoll.lab.servers import family
from atoll.lab.suites.call_loops import Loop, Pass, in_own_folder, loops
from atoll.lab.tracing import Event, Tracer, Window
from atoll.lab.work import Work, make_durable

__all__ = ["Calls"]

CALLS = "durability calls"
OUTSIDE = "durability calls outside of any loop"
SERVERS = "durability calls of servers"


class Calls(Suite):
    """The cost of each call on a small file, one process, one call after the other."""

    name = "calls"
    title = "cost of single calls: create, write, close, delete, append, overwrite, fsync"
    about = (
        "Each call is timed by itself, as a page does it with the file system of a browser: new files of 4 "
        "KiB (created, written and closed one after the other; then all deleted; a full cycle is the sum of "
        "a file's four calls), appends of 4 KiB, 64 KiB and 1 MiB to one open file, overwrites of 4 KiB in "
        "random order, appends with an fsync after each. After a pass to warm up come five passes; the one "
        "with the median total is shown: the mean of its calls, with p50, p90, p99, max and the first call "
        "beside it, and the mean of each pass as the series. What is dirty is made durable before each pass, "
        "untimed; but for the fsync nothing here waits for a disk. The row `empty call` times a call of "
        "Python that does nothing in the same way: so much of every figure is the lab's own. With --trace a "
        "pass of its own under strace (or a preloaded library) counts the calls that ask for durability, by "
        "the loop that was running, those of the target's servers in rows of their own; what was traced is "
        "never timed."
    )

    summaries = (Summary(name="all calls, each once", kind="geometric mean", groups=("calls",)),)

    def scenarios(self, options: Options) -> Sequence[Scenario]:
        found = loops(options)
        made = [_clean(loop) for loop in found]
        return [*made, _traced(found)] if options.trace else made


def _clean(loop: Loop) -> Scenario:
    # The empty call says what the lab adds; no target is better at it.
    better: Better = "none" if loop.name == "empty call" else "lower"
    rows = tuple(
        Row(step, unit="us", better=better, durable=False, group="cycle" if step == "full cycle" else "calls")
        for step in loop.steps
    )

    def run(work: Work) -> None:
        passes: list[Pass] = []
        for number in range(1 + (3 if work.options.quick else 5)):
            make_durable(work.handle.barrier)
            taken = in_own_folder(loop, lambda name, calls: None)
            if number > 0:
                passes.append(taken)
        for step, figures in summary(passes, loop.steps[-1]).items():
            work.measure(step, figures.mean, details=figures.details, series=figures.series)

    # An overwritten file is there once; a little more for what a file system needs itself.
    return Scenario(loop.name, rows, run, bytes=2 * loop.bytes, files=loop.files + 10, warm_ups=0, limit=1800)


class Figures(msgspec.Struct, frozen=True):
    """Of one step; in microseconds."""

    mean: float
    details: dict[str, float]
    series: list[float]


def summary(passes: Sequence[Pass], whole: str) -> dict[str, Figures]:
    """Each step's figures of the pass whose total of `whole` is the median (the lower of two)."""
    order = sorted(range(len(passes)), key=lambda number: sum(passes[number][whole]))
    shown = passes[order[(len(order) - 1) // 2]]
    return {
        step: Figures(
            statistics.fmean(times) / 1e3,
            {
                **{f"p{share}": percentile(times, share) / 1e3 for share in (50, 90, 99)},
                "max": max(times) / 1e3,
                "first": times[0] / 1e3,
                "calls": len(times),
            },
            [statistics.fmean(each[step]) / 1e3 for each in passes],
        )
        for step, times in shown.items()
    }


def percentile(times: Sequence[int], share: int) -> int:
    """By nearest rank: a time that was really taken."""
    return sorted(times)[math.ceil(share / 100 * len(times)) - 1]


def _traced(found: Sequence[Loop]) -> Scenario:
    parts = [part for loop in found for part in loop.parts]
    names = [f"{what}: {part}" for what in (CALLS, SERVERS) for part in parts]
    rows = [
        Row(name, unit="calls", better="none", durable=False)
        for name in (*names, OUTSIDE, f"{SERVERS}, outside of any loop")
    ]
    return Scenario(
        "durability calls, traced",
        tuple(rows),
        _count,
        bytes=2 * max(loop.bytes for loop in found),
        files=max(loop.files for loop in found) + 10,
        warm_ups=0,
        reps=1,
        limit=1800,
    )


def _count(work: Work) -> None:
    """The loops once more, in a process of their own under a tracer, and the servers under another one."""
    pids = [pid for server in work.handle.servers for pid in family(server)]
    with tempfile.TemporaryDirectory(dir=work.scratch) as folder, contextlib.ExitStack() as stack:
        tracer = tracing.choose(Path(folder))
        served: list[Event] | None = None
        why = "no process of the target takes part in a write"
        if pids:
            try:
                served = stack.enter_context(tracer.attached(pids))
            except Unavailable as error:
                why = str(error)
        windows = _loops(work, tracer)
        stack.close()
        events = tracer.events()
    _give(work, CALLS, OUTSIDE, windows, events)
    outside = f"{SERVERS}, outside of any loop"
    if served is None:
        for name in (*(f"{SERVERS}: {window.name}" for window in windows), outside):
            work.unavailable(name, why)
    else:
        _give(work, SERVERS, outside, windows, served)
    synced = tracing.most_synced([*events, *(served or [])])
    files = [f"{Path(path).name or 'no file'} ({number})" for path, number in synced]
    work.note(
        f"{work.handle.name}: durability calls were counted with {tracer.name}; most often synced: "
        f"{', '.join(files) or 'nothing'}."
    )


def _loops(work: Work, tracer: Tracer) -> list[Window]:
    """Runs the loops under a tracer; returns when which was running."""
    done = subprocess.run(
        tracer.command([sys.executable, "-m", "atoll.lab.suites.call_loops"]),
        input=msgspec.json.encode(work.options),
        env=tracer.environment(),
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        raise CheckFailed(f"the traced loops ended with {done.returncode}: {last[0]}")
    return msgspec.json.decode(done.stdout, type=list[Window])


def _give(work: Work, what: str, outside: str, windows: Sequence[Window], events: Sequence[Event]) -> None:
    """Fills the rows of one kind: calls for durability in each round of a loop, and those between loops."""
    found = tracing.attribute(events, windows)
    for window in windows:
        own = Counter(event.call for event in found[window.name])
        work.measure(
            f"{what}: {window.name}",
            sum(own.values()) / window.calls,
            details={call: number / window.calls for call, number in own.items()},
        )
    work.measure(outside, len(found[""]), details=dict(Counter(event.call for event in found[""])))
