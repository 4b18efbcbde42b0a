"""What the tracers have in common: events, and the loops that they belong to."""

from __future__ import annotations

import abc
import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import msgspec

from atoll.lab.model import Unavailable

__all__ = ["DURABILITY_CALLS", "Event", "Tracer", "Window", "attribute", "most_synced"]

#: Every call that asks for durability. `open` stands for one with O_SYNC or O_DSYNC; msync counts with
#: MS_SYNC. Not seen by either tracer: io_uring's fsync, and writes with RWF_SYNC.
DURABILITY_CALLS = ("fsync", "fdatasync", "sync_file_range", "syncfs", "sync", "msync", "open")


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One durability call that succeeded."""

    time: float
    """When it began, in seconds since 1970 (CLOCK_REALTIME)."""
    duration: float
    """In seconds."""
    call: str
    """One of `DURABILITY_CALLS`."""
    path: str
    """Of its file; "?" where that cannot be told, empty for a call that has none."""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A loop of the traced program, between two readings of CLOCK_REALTIME."""

    name: str
    start: float
    end: float
    calls: int
    """How often the loop went round."""


class Tracer(abc.ABC):
    """Runs a program so that its durability calls are written down. Used once."""

    name: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        """`folder` is empty, on a disk, not on what is measured, and takes the tracer's files."""
        self.folder = folder

    @abc.abstractmethod
    def missing(self) -> str | None:
        """Why it does not work here, and what would bring it; None when it does."""

    @abc.abstractmethod
    def command(self, command: Sequence[str]) -> list[str]:
        """The command to start instead of `command`."""

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment to start it with."""
        return dict(os.environ if base is None else base)

    def attached(self, pids: Sequence[int]) -> contextlib.AbstractContextManager[list[Event]]:
        """Traces processes that run already, and what they start, as long as the block lasts; the list holds
        what they did when it has ended. Raises `Unavailable` where that cannot be."""
        raise Unavailable(f"{self.name} cannot trace what runs already")

    @abc.abstractmethod
    def events(self) -> list[Event]:
        """What the program and its children did, in the order of time; read when they have ended."""


def attribute(events: Iterable[Event], windows: Sequence[Window]) -> dict[str, list[Event]]:
    """The events of each loop, and under "" those outside of any: an event belongs to the window that it
    began in."""
    found: dict[str, list[Event]] = {name: [] for name in ("", *(window.name for window in windows))}
    for event in events:
        name = next((each.name for each in windows if each.start <= event.time <= each.end), "")
        found[name].append(event)
    return found


def most_synced(events: Iterable[Event], limit: int = 5) -> list[tuple[str, int]]:
    """The paths with the most events, with their number."""
    return Counter(event.path for event in events).most_common(limit)
