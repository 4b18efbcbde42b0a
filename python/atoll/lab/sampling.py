"""One sample from the outside: starts the process, follows its events, ends it when it takes too long."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from typing import Any

import msgspec

from atoll.lab.folders import SAMPLE
from atoll.lab.model import Job
from atoll.lab.mounts import kill

__all__ = ["Taken", "take"]


@dataclass
class Taken:
    """What came of a job."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    """`row` events: row, value, durable, details, series."""
    unavailable: dict[str, str] = field(default_factory=dict)
    outcomes: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    overhead: list[float] = field(default_factory=list)
    failed: str | None = None
    is_unavailable: bool = False
    """The work itself said that it cannot be had here; else `failed` is a failure."""
    hung: bool = False
    during: str | None = None
    """The row whose clock was running last."""


def take(job: Job, limit: float) -> Taken:
    """Runs a job in a process group of its own. A process that stays longer than `limit` seconds is killed,
    with everything that it started; a kill that does not help (the kernel waits for a dead server) is
    waited for no more than five seconds."""
    taken = Taken()
    # A file, not a pipe: what the work leaves behind may hold it open for ever.
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "atoll.lab.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            env={**os.environ, **SAMPLE},
        )
        assert process.stdin and process.stdout
        ended = False
        try:
            with contextlib.suppress(BrokenPipeError):  # it ended at once; how, is told below
                process.stdin.write(msgspec.json.encode(job))
                process.stdin.close()
            _follow(process, taken, time.monotonic() + limit)
            ended = process.poll() is not None
        finally:
            if process.poll() is None:
                kill(process, 5)
            process.stdout.close()
        said = os.pread(errors.fileno(), 8192, max(0, os.fstat(errors.fileno()).st_size - 8192))
    if taken.hung:
        taken.failed = f"did not end within {limit:.0f} s" + (f" (in {taken.during})" if taken.during else "")
    elif taken.failed is None and process.returncode != 0:
        last = said.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        how = f"signal {-process.returncode}" if process.returncode < 0 else f"code {process.returncode}"
        taken.failed = f"the sample's process ended with {how}: {last[0]}" if ended else "it did not end"
    return taken


def _follow(process: subprocess.Popen[bytes], taken: Taken, deadline: float) -> None:
    """Notes events until there are no more, or until the deadline."""
    assert process.stdout
    events = process.stdout.fileno()
    heard = b""
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([events], [], [], min(left, 1.0))[0]:
            continue
        data = os.read(events, 1 << 16)
        if not data:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
            return
        *lines, heard = (heard + data).split(b"\n")
        for line in lines:
            _note(taken, msgspec.json.decode(line))
    taken.hung = True


def _note(taken: Taken, event: dict[str, Any]) -> None:
    match event["event"]:
        case "begin":
            taken.during = event["row"]
        case "row":
            taken.during = None
            taken.rows.append(event)
        case "unavailable":
            taken.unavailable[event["row"]] = event["message"]
        case "outcome":
            taken.outcomes[event["test"]] = event["result"]
        case "note":
            taken.notes.append(event["message"])
        case "overhead":
            taken.overhead = event["samples"]
        case "failed":
            taken.failed = event["message"]
            taken.is_unavailable = event["unavailable"]
