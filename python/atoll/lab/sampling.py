"""One sample from the outside: starts the process, follows its events, ends it when it takes too long."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import msgspec

from atoll.lab.folders import SAMPLE
from atoll.lab.model import Job

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
    process = subprocess.Popen(
        [sys.executable, "-m", "atoll.lab.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, **SAMPLE},
    )
    assert process.stdin and process.stdout and process.stderr
    said = b""
    ended = False
    try:
        process.stdin.write(msgspec.json.encode(job))
        process.stdin.close()
        said = _follow(process, taken, time.monotonic() + limit)
        ended = process.poll() is not None
    finally:
        if process.poll() is None:
            _kill(process)
        process.stdout.close()
        process.stderr.close()
    if taken.hung:
        taken.failed = f"did not end within {limit:.0f} s" + (f" (in {taken.during})" if taken.during else "")
    elif taken.failed is None and process.returncode != 0:
        last = said.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        how = f"signal {-process.returncode}" if process.returncode < 0 else f"code {process.returncode}"
        taken.failed = f"the sample's process ended with {how}: {last[0]}" if ended else "it did not end"
    return taken


def _follow(process: subprocess.Popen[bytes], taken: Taken, deadline: float) -> bytes:
    """Until the process has closed both its outputs, or the deadline; returns the end of its stderr."""
    assert process.stdout and process.stderr
    open_ends = {process.stdout.fileno(): b"", process.stderr.fileno(): b""}
    events, errors = open_ends
    with selectors.DefaultSelector() as selector:
        for descriptor in open_ends:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                taken.hung = True
                break
            for key, _ in selector.select(min(left, 1.0)):
                data = os.read(key.fd, 1 << 16)
                if not data:
                    selector.unregister(key.fd)
                    continue
                open_ends[key.fd] += data
                if key.fd == events:
                    *lines, open_ends[events] = open_ends[events].split(b"\n")
                    for line in lines:
                        _note(taken, msgspec.json.decode(line))
                else:
                    open_ends[errors] = open_ends[errors][-8192:]
    if not taken.hung:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
    return open_ends[errors]


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


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=5)
