"""A sample's view of its target: the folder, the clocks, the checks."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from atoll.lab.host import find_program
from atoll.lab.model import Barrier, CheckFailed, Handle, Options, Row, Scenario, Unavailable

__all__ = ["Work", "drop_caches", "make_durable"]

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_MAP_FAILED = ctypes.c_void_p(-1).value

Emit = Callable[[str, dict[str, object]], None]
"""Takes an event's kind and its fields."""


class Work:
    """What a scenario is given. Its rows must be those that the scenario declared."""

    def __init__(
        self, handle: Handle, scenario: Scenario, options: Options, rep: int, folder: Path, emit: Emit
    ) -> None:
        self.handle = handle
        self.options = options
        self.rep = rep
        self.folder = folder
        """A fresh, empty folder on the target."""
        self.scratch = Path(handle.scratch)
        """A folder on the disk for inputs, shared by all samples of the run."""
        self.rng = random.Random(options.seed)
        """The same numbers on each target and in each repetition."""
        self._rows = {row.name: row for row in scenario.rows}
        self._emit = emit
        self._is_cold = False

    @contextlib.contextmanager
    def timed(self, name: str, **details: float) -> Iterator[dict[str, float]]:
        """Both clocks around a part of the work, as a row. What is dirty already is made durable before,
        untimed. What is put into the yielded dictionary is kept beside the figure."""
        row = self._rows[name]
        self._check_cache(row)
        barrier = self.handle.barrier
        make_durable(barrier)
        self.begin(name)
        more: dict[str, float] = dict(details)
        began = time.perf_counter()
        yield more
        returned = time.perf_counter() - began
        durable = None
        if row.durable and barrier.kind != "none":
            make_durable(barrier)
            durable = time.perf_counter() - began
        self._emit("row", {"row": name, "value": returned, "durable": durable, "details": more, "series": []})

    def begin(self, name: str) -> None:
        """Says which row is being taken, for the message when the sample does not end."""
        self._emit("begin", {"row": name})

    def measure(
        self,
        name: str,
        value: float,
        *,
        durable: float | None = None,
        details: Mapping[str, float] | None = None,
        series: Sequence[float] = (),
    ) -> None:
        """A figure that is no clock of ours, in the row's unit."""
        fields: dict[str, object] = {"row": name, "value": value, "durable": durable}
        self._check_cache(self._rows[name])
        self._emit("row", fields | {"details": dict(details or {}), "series": list(series)})

    def _check_cache(self, row: Row) -> None:
        """A row that calls its caches cold has to have emptied them just before."""
        if row.cache == "cold" and not self._is_cold:
            raise CheckFailed(f"{row.name} is said to be cold, but nothing emptied the caches")
        self._is_cold = False

    def unavailable(self, name: str, why: str) -> None:
        """A row that cannot be had on this target."""
        assert name in self._rows, name
        self._emit("unavailable", {"row": name, "message": why})

    def outcome(self, test: str, result: str) -> None:
        """Of a conformance test: "pass", "fail: REASON" or "skip: REASON"."""
        self._emit("outcome", {"test": test, "result": result})

    def note(self, sentence: str) -> None:
        """Something that a reader of the suite's table has to know."""
        self._emit("note", {"message": sentence})

    def check(self, holds: bool, sentence: str) -> None:
        """Raises `CheckFailed` with the sentence unless it holds."""
        if not holds:
            raise CheckFailed(sentence)

    def commit(self, name: str) -> None:
        """A row: the command that makes what the target holds a commit."""
        if not self.handle.commit:
            self.unavailable(name, "this target has no commits")
            return
        with self.timed(name):
            self.run(self.handle.commit)

    def run(
        self,
        command: Sequence[str],
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        good: Sequence[int] = (0,),
    ) -> str:
        """A program to its end, in `folder`; returns its output. Raises `CheckFailed` with its last words."""
        environment = None if env is None else {**os.environ, **env}
        program = find_program(command[0]) or command[0]
        done = subprocess.run(
            [program, *command[1:]], cwd=cwd or self.folder, env=environment, capture_output=True, check=False
        )
        if done.returncode not in good:
            said = (done.stderr.strip() or done.stdout.strip()).decode(errors="replace").splitlines()
            last = " / ".join(said[-3:])
            raise CheckFailed(
                f"`{' '.join(command)[:120]}` ended with {done.returncode}: {last or 'no message'}"
            )
        return done.stdout.decode(errors="replace")

    def shell(self, script: str, cwd: Path | None = None) -> str:
        """A script of bash; it stops at the first command that fails."""
        return self.run(("bash", "-ec", script), cwd)

    def cold(self, *files: Path) -> None:
        """Empties the kernel's caches and sees that `files` are no longer in them.

        Raises:
            Unavailable: without root, or where the cache does not let go: memory is never cold.
        """
        make_durable(self.handle.barrier)
        drop_caches()
        for file in files:
            # A page or two may have been read again by somebody else.
            if (share := _cached_share(file)) > 0.01:
                raise Unavailable(f"{share:.0%} of {file.name} is still in memory after drop_caches")
        self._is_cold = True


def make_durable(barrier: Barrier) -> None:
    """Waits until everything that was written is durable, as the target's barrier does it."""
    if barrier.kind == "command":
        done = subprocess.run(list(barrier.command), capture_output=True, check=False)
        if done.returncode != 0:
            message = done.stderr.decode(errors="replace").strip()
            raise CheckFailed(f"the durability barrier {barrier.command[0]} failed: {message}")
    for path in barrier.paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            if barrier.kind == "fsync":
                os.fsync(descriptor)
            elif _libc.syncfs(descriptor) != 0:
                # Python has no syncfs; `sync -f` would add the start of a process to each clock.
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), path)
        finally:
            os.close(descriptor)


def drop_caches() -> None:
    """Lets the kernel forget pages, entries and inodes. Raises `Unavailable` without root."""
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError as error:
        raise Unavailable("cold caches need root (/proc/sys/vm/drop_caches)") from error


def _cached_share(file: Path) -> float:
    """Share of a file's pages that are in memory; 0 where the file system cannot say."""
    size = file.stat().st_size
    pages = -(-size // mmap.PAGESIZE)
    descriptor = os.open(file, os.O_RDONLY)
    try:
        address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    finally:
        os.close(descriptor)
    if address == _MAP_FAILED:
        return 0.0
    resident = (ctypes.c_ubyte * pages)()
    # Python's mmap gives its address away only when it may be written to.
    failed = _libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), resident) != 0
    _libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))
    return 0.0 if failed else sum(each & 1 for each in resident) / pages
