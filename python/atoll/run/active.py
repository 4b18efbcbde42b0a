"""Which commands run in a workspace now: records that launchers keep in `workspaces/ID/runs`, locked while
they live.

A command holds a workspace through its own mount namespace, where a look at working directories and open
files finds nothing; so unmount asks here, and capture freezes here."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.errors import Busy

if TYPE_CHECKING:
    from atoll.drivers.base import Freeze

__all__ = ["Running", "freezer", "in_use", "refuse_if_running", "running"]

#: How long the kernel may take to freeze a group (a process in a system call delays it).
_FREEZE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Running:
    """A command in a workspace."""

    pid: int
    """Its first process."""
    program: str
    cgroup: str | None
    freezer: tuple[str, str, str] | None
    """The file that freezes it, and what is written to it to freeze and to thaw."""

    def __str__(self) -> str:
        return f"{self.program or 'a command'} (pid {self.pid})"


def running(folder: Path) -> list[Running]:
    """The commands in the workspace whose folder in the store this is. Records of launchers that are gone
    count while processes are in their cgroup, and are removed afterwards."""
    found: list[Running] = []
    try:
        names = sorted(name for name in os.listdir(folder / "runs") if name.endswith(".json"))
    except OSError:
        return found
    for name in names:
        path = folder / "runs" / name
        try:
            with open(path, "rb") as file:
                alive = _locked(file.fileno())
                record = _parse(file.read())
        except OSError:
            continue
        if record is not None and (alive or _pids(record.cgroup)):
            found.append(record)
        elif alive:
            # It has just begun and has not written yet.
            found.append(Running(int(name.removesuffix(".json")), "", None, None))
        else:
            with contextlib.suppress(OSError):
                os.unlink(path)
            if record is not None and record.cgroup is not None:
                # Only an empty cgroup can be removed.
                with contextlib.suppress(OSError):
                    os.rmdir(record.cgroup)
    return found


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


def _parse(text: bytes) -> Running | None:
    try:
        raw = json.loads(text)
        freezer = raw["freezer"]
        return Running(
            pid=raw["pid"],
            program=raw["program"],
            cgroup=raw["cgroup"],
            freezer=None if freezer is None else (freezer["file"], freezer["freeze"], freezer["thaw"]),
        )
    except (ValueError, KeyError, TypeError):
        return None


def _pids(cgroup: str | None) -> set[int]:
    """The processes in a cgroup and below it."""
    found: set[int] = set()
    for folder, _, files in os.walk(cgroup) if cgroup is not None else ():
        if "cgroup.procs" in files:
            with contextlib.suppress(OSError):
                text = Path(folder, "cgroup.procs").read_text()
                found.update(int(line) for line in text.split())
    return found


@contextlib.contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Holds the workspace against unmounting from before a command is started. The launcher's record goes on
    holding it when this process dies."""
    fd = os.open(folder / "inuse", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        yield
    finally:
        os.close(fd)


def refuse_if_running(folder: Path, branch: str) -> None:
    """Called with the workspace's lock held, before it is unmounted.

    Raises:
        Busy: A command runs in it; names the program and its pid.
    """
    found = running(folder)
    if not found:
        try:
            fd = os.open(folder / "inuse", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            if not _exclusive(fd):
                raise Busy(f"A command is being started in '{branch}'; unmount it when that has ended.")
        finally:
            os.close(fd)
        return
    names = ", ".join(str(each) for each in found[:5])
    raise Busy(
        f"'{branch}' cannot be unmounted while commands run in it: {names}; end them and unmount it again.",
        details={"running": [{"pid": each.pid, "program": each.program} for each in found]},
    )


def _exclusive(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def freezer(folder: Path) -> Freeze | None:
    """Freezes (True) and thaws (False) the commands in a workspace; None when there is none that can be
    frozen. A command that this very process belongs to is left out: it would wait for itself."""
    own = os.getpid()
    targets = [
        each.freezer for each in running(folder) if each.freezer is not None and own not in _pids(each.cgroup)
    ]
    if not targets:
        return None

    def switch(freeze: bool) -> None:
        for file, on, off in targets:
            # A command that has ended meanwhile holds nothing up.
            with contextlib.suppress(OSError):
                Path(file).write_text(on if freeze else off)
        if freeze:
            for file, _, _ in targets:
                _await_frozen(file)

    return switch


def _await_frozen(file: str) -> None:
    state = Path(file) if file.endswith("freezer.state") else Path(file).with_name("cgroup.events")
    until = time.monotonic() + _FREEZE_SECONDS
    while time.monotonic() < until:
        try:
            text = state.read_text()
        except OSError:
            return
        if text.strip() == "FROZEN" or "frozen 1" in text.splitlines():
            return
        time.sleep(0.001)
