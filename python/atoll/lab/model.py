"""What the parts of the lab say to each other: options, rows, scenarios, suites, targets, handles.

A suite has scenarios. A scenario is a piece of work in a fresh folder of a target; it fills one or more
rows. The runner repeats every scenario on every target, each sample in a process of its own (`worker.py`),
so that a target which hangs or dies takes nothing with it. What crosses into that process is a `Job`: plain
data, no objects.
"""

from __future__ import annotations

import abc
import contextlib
import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, TypeVar

import msgspec

from atoll.errors import Usage

if TYPE_CHECKING:
    from atoll.lab.work import Work

__all__ = [
    "Barrier",
    "Better",
    "CheckFailed",
    "Handle",
    "Job",
    "Options",
    "Row",
    "Scenario",
    "Suite",
    "Summary",
    "Target",
    "Tool",
    "Unavailable",
    "nearest",
]

Better = Literal["lower", "higher", "none"]
Value = TypeVar("Value", bound=str)


class CheckFailed(Exception):
    """The work was done, but its result is wrong: a target that drops data must not win."""


class Unavailable(Exception):
    """This cannot be measured here; the sentence says why, and what would bring it. Never counted as zero."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a run was asked for; the same for every suite and target."""

    reps: int = 5
    """Samples of each row."""
    seed: int = 1
    """Orders the targets in each repetition, and makes the data."""
    quick: bool = False
    """Small work that shows that a suite runs; its figures mean nothing."""
    scale: float = 1.0
    """Share of the full work."""
    trace: bool = False
    """Count system calls too, in runs of their own."""
    repo: str | None = None
    """A git repository to take history from."""
    snapshots: int = 157
    rtt: float | None = None
    """Seconds of one round trip, for the figures that are derived from it."""
    online: bool = False
    """Allow work that asks a package registry inside the clock."""

    def count(self, full: int, quick: int) -> int:
        """How many of something: `quick` for a quick run, else the scaled full number."""
        return quick if self.quick else max(quick, round(full * self.scale))


class Barrier(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a target's data durable.

    `syncfs` on each of `paths`; `fsync` of each of `paths` (a folder); `command`, run to its end and then
    `syncfs` on each of `paths`; `none`: nothing is known that would, so there is no durable clock. syncfs
    never reaches a FUSE server, so for one it has to be given the file system that its data lie on, or
    another kind.
    """

    kind: Literal["syncfs", "fsync", "command", "none"]
    note: str
    """A sentence for the report: what is waited for, and what it does not cover."""
    paths: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


class Handle(msgspec.Struct, frozen=True, kw_only=True):
    """A running target, as the process of a sample sees it."""

    name: str
    kind: str
    root: str
    """A folder on the target that belongs to this run."""
    scratch: str
    """A folder on the disk, not on the target, for inputs."""
    barrier: Barrier
    commit: tuple[str, ...] = ()
    """A command that makes what the target holds a commit; empty where there is no such thing."""
    servers: tuple[int, ...] = ()
    """Processes that were started to serve it, the one that mounts first; their children serve it too."""
    facts: dict[str, str] = {}
    """Whatever else the target's own suites need to know (store, branch, ...)."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One sample: a scenario on a target, once."""

    suite: str
    scenario: str
    options: Options
    handle: Handle
    rep: int
    """Below zero: a warm-up, which is not kept."""


@dataclass(frozen=True)
class Row:
    """One line of the table: a figure that each sample of a scenario gives."""

    name: str
    unit: str = "s"
    better: Better = "lower"
    durable: bool = True
    """Whether the timed work leaves something that has to become durable; then there are two clocks."""
    group: str = ""
    """Rows that are summed up together, or are alike in what dominates them: "forks", "zeros", "random"."""
    files: int | None = None
    """Files that the work makes or visits, for figures per file. Where only the inputs tell, None, and each
    sample of the row says it in its detail `files`."""
    needs_commit: bool = False
    cache: Literal["warm", "cold", "new"] = "warm"
    """State of the caches when the clock starts; "new": the work reads nothing that was there before."""
    exact: bool = False
    """A count or size that the work alone determines: one sample says all, and any difference is one."""


@dataclass(frozen=True)
class Tool:
    """A program that a scenario needs: its name on PATH, and what brings it."""

    name: str
    package: str
    """In words: "Debian's package fio", "`cargo install fsx`"."""
    version: tuple[str, ...] = ("--version",)
    """What it is asked for its version with, for the record."""


@dataclass(frozen=True)
class Scenario:
    """A piece of work in a fresh, empty folder of a target, and the rows that it fills.

    `run` times its parts with `work.timed(row)` and gives other figures with `work.measure(row, ...)`; it
    checks what it did and raises `CheckFailed` when that is wrong. Everything outside of `timed` is set-up.
    """

    name: str
    rows: tuple[Row, ...]
    run: Callable[[Work], None]
    tools: tuple[Tool, ...] = ()
    bytes: int = 0
    """Space that it needs on the target at once."""
    files: int = 0
    """Files and folders that it makes at once."""
    warm_ups: int = 1
    reps: int | None = None
    """Samples, where they are always a fixed number (a counted or a very long piece of work)."""
    limit: float = 900.0
    """Seconds after which a sample is ended and called a failure."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A figure over several rows of a suite."""

    name: str
    kind: Literal["geometric mean", "sum"]
    """Of the ratios of medians to the reference target; or the sum of medians."""
    groups: tuple[str, ...]
    """The rows' groups that it covers."""


class Suite(abc.ABC):
    """A documented piece of work, the same on every target."""

    name: ClassVar[str]
    title: ClassVar[str]
    """One line for `atoll lab suites` and the report."""
    about: ClassVar[str] = ""
    """A paragraph: what is done, what it says and what it does not say, where the shape comes from."""
    summaries: ClassVar[tuple[Summary, ...]] = ()
    version: ClassVar[int] = 1
    """Goes up when the work changes: records of different versions are not compared."""

    @abc.abstractmethod
    def scenarios(self, options: Options) -> Sequence[Scenario]:
        """The work, for these options. Must be the same in the runner and in a sample's process."""

    def prepare(self, options: Options, scratch: Path) -> None:  # noqa: B027
        """Brings inputs into `scratch` (shared by all targets, outside of every clock): packages,
        repositories.

        Raises `Unavailable` when they cannot be had.
        """

    def contenders(self, options: Options) -> Sequence[Target] | None:
        """Targets of its own, for a suite that does not compare folders; None: those of the command line."""
        return None


class Target(abc.ABC):
    """Something that gives a folder to work in. Started once for a run, stopped at its end whatever
    happens."""

    kind: ClassVar[str]
    title: ClassVar[str]
    """One line for `atoll lab targets`."""
    syntax: ClassVar[str] = ""
    """How it is written on the command line, when not by its kind and argument alone."""
    arguments: ClassVar[tuple[str, ...]] = ()
    """The arguments that there are, the first one for none; empty: any text, or none."""
    keys: ClassVar[Mapping[str, str] | None] = None
    """The settings that it takes, with what each means; None: any."""

    def __init__(
        self, name: str, spec: str, argument: str = "", settings: Mapping[str, str] | None = None
    ) -> None:
        """`spec` is what the user wrote: `KIND:argument,key=value,...`. Raises `Usage` for what makes no
        sense."""
        self.name = name
        self.spec = spec
        self.argument = argument or next(iter(self.arguments), "")
        self.settings = dict(settings or {})
        self.cleanup = contextlib.ExitStack()
        """What `start` brought up, as what takes it down again: pushed step by step, so that a start which
        fails in the middle is taken back too."""
        if self.arguments and self.argument not in self.arguments:
            raise Usage(f"There is no target '{self.kind}:{argument}'{nearest(argument, self.arguments)}")
        known = self.settings if self.keys is None else self.keys
        for key in self.settings:
            if key not in known:
                raise Usage(f"The target {self.kind} has no setting '{key}'{nearest(key, known)}")
        self.check()

    def check(self) -> None:  # noqa: B027
        """Raises `Usage` for settings that make no sense."""

    def choice(self, key: str, *values: Value) -> Value:
        """The setting of this name, one of `values`; the first one when it is not given. Raises `Usage`."""
        given = self.settings.get(key, values[0])
        for value in values:
            if value == given:
                return value
        raise Usage(f"'{given}' is no {key} of the target {self.kind}{nearest(given, values)}")

    def missing(self) -> str | None:
        """A sentence that names what is missing here and what brings it; None when it can be started."""
        return None

    def folders(self) -> Sequence[Path]:
        """Folders of the user's that it works in; no two runs may have one at the same time."""
        return ()

    @abc.abstractmethod
    def start(self, scratch: Path) -> Handle:
        """Brings it up. `scratch` is an empty folder on the disk for its own files; raises `Unavailable`."""

    def stop(self) -> None:
        """Takes everything down that `start` brought up, also when only a part of it came up. Idempotent."""
        self.cleanup.close()

    def versions(self) -> dict[str, str]:
        """Programs that it consists of, with their versions."""
        return {}


def nearest(name: str, known: Iterable[str]) -> str:
    """How a sentence about an unknown name ends: with the nearest ones, or with all of them."""
    near = difflib.get_close_matches(name, known, n=3)
    return f"; did you mean {' or '.join(near)}?" if near else f"; there are {', '.join(known)}."
