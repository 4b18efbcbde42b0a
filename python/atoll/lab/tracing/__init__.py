"""Counts the durability system calls of a program and all that it starts, by one of two tracers.

`strace` sees every call whatever the program is, and slows it down two to five times; `preload` (a library
that is compiled on demand) costs next to nothing, and sees only calls that go through the C library. Both
give the same events. What was traced is never timed.

    tracer = choose(folder)
    subprocess.run(tracer.command(["program"]), env=tracer.environment())
    for event in tracer.events(): ...
"""

from __future__ import annotations

import importlib
from pathlib import Path

from atoll.lab.model import Unavailable
from atoll.lab.tracing.events import DURABILITY_CALLS, Event, Tracer, Window, attribute, most_synced

__all__ = [
    "DURABILITY_CALLS",
    "TRACERS",
    "Event",
    "Tracer",
    "Window",
    "attribute",
    "choose",
    "make",
    "most_synced",
]

#: By name, the one that sees most first.
TRACERS: dict[str, str] = {
    "strace": "atoll.lab.tracing.strace:Strace",
    "preload": "atoll.lab.tracing.preload:Preload",
}


def make(name: str, folder: Path) -> Tracer:
    """A tracer that keeps its files in a folder of its own."""
    module, _, kind = TRACERS[name].partition(":")
    made: Tracer = getattr(importlib.import_module(module), kind)(folder)
    return made


def choose(folder: Path, names: tuple[str, ...] = tuple(TRACERS)) -> Tracer:
    """The first of the named tracers that works here. Raises `Unavailable` with the reason of each."""
    reasons = []
    for name in names:
        tracer = make(name, folder)
        if (why := tracer.missing()) is None:
            return tracer
        reasons.append(f"{name}: {why}")
    raise Unavailable("nothing can count system calls here (" + "; ".join(reasons) + ")")
