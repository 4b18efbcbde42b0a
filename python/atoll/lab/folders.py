"""The folders of runs: one run at a time in a place, and nothing left of one that died.

A run works in a folder of its own below its place, and holds a lock on it as long as it lives. The kernel
lets go of the lock when the process ends, however it does, so a folder that can be locked is a leftover: the
next run in that place takes it down first. Processes of a run are known by `ATOLL_LAB_RUN` in their
environment, which holds that folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from atoll.errors import AtollError, Busy, PermissionDenied
from atoll.lab.mounts import bounded, mounts_below, unmount
from atoll.lab.servers import end_history_servers

__all__ = ["SAMPLE", "claimed", "clear_leftovers", "made", "remove", "run_folder"]

#: How the folders of runs are called.
PREFIX = ".atoll-lab."
#: The variable that all processes of a run inherit, and that of samples: those are ended first.
RUN = "ATOLL_LAB_RUN"
SAMPLE = {"ATOLL_LAB_SAMPLE": "1"}


@contextlib.contextmanager
def claimed(place: Path, others: Iterable[Path]) -> Iterator[None]:
    """Keeps other runs out of `place` and of the folders of targets: two at once would measure each other.

    Raises:
        Busy: one is there.
        PermissionDenied: a folder cannot be read.
    """
    with contextlib.ExitStack() as stack:
        for folder in dict.fromkeys(each.resolve() for each in (place, *others) if each.is_dir()):
            try:
                descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            except OSError as error:
                raise PermissionDenied(
                    f"{folder} cannot be read ({error.strerror}); name a folder of your own."
                ) from error
            stack.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise Busy(
                    f"Another run of the lab works in {folder}; wait for it, or name another folder."
                ) from error
            except OSError:
                pass  # a file system without locks
        yield


@contextlib.contextmanager
def made(parent: Path) -> Iterator[Path]:
    """A new folder in `parent`, locked; removed at the end.

    Raises:
        PermissionDenied: `parent` cannot be written to.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent.resolve()))
    except OSError as error:
        raise PermissionDenied(
            f"{parent} cannot be written to ({error.strerror}); name a folder of your own."
        ) from error
    # Conformance tests work as other users too, who have to get to theirs.
    folder.chmod(0o711)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield folder
    finally:
        remove(folder)
        os.close(descriptor)


@contextlib.contextmanager
def run_folder(place: Path, notes: list[str]) -> Iterator[Path]:
    """The folder of a run. At the end every process of the run is ended, and everything below it is
    unmounted and removed; what cannot be is said in `notes`."""
    with made(place) as folder:
        before = os.environ.get(RUN)
        os.environ[RUN] = os.fspath(folder)
        try:
            yield folder
        finally:
            if before is None:
                del os.environ[RUN]
            else:
                os.environ[RUN] = before
            try:
                _take_down(folder)
            except AtollError as error:
                notes.append(f"The run could not take everything down: {error}")


def clear_leftovers(parent: Path) -> list[str]:
    """Takes down and removes what runs that died have left in `parent`; a sentence for each."""
    said = []
    for folder in parent.resolve().glob(f"{PREFIX}*") if parent.is_dir() else ():
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _take_down(folder)
            remove(folder)
            said.append(f"{folder} was left by a run that died, and was removed.")
        except BlockingIOError:
            pass  # that run lives
        except (AtollError, OSError) as error:
            said.append(f"{folder} was left by a run that died, and cannot be removed: {error}")
        finally:
            os.close(descriptor)
    return said


def remove(folder: Path) -> None:
    """Removes a folder, never across a mount; bounded, since what lies below may hang."""
    bounded(["rm", "-rf", "--one-file-system", "--", os.fspath(folder)], 600)


def _take_down(folder: Path) -> None:
    """Ends the processes of a run and unmounts everything below its folder.

    First the samples, which use the mounts; then the mounts: a server whose mount is gone ends by itself, and
    is given a moment for that.
    """
    _end(folder, signal.SIGKILL, SAMPLE)
    for point in mounts_below(folder):
        with contextlib.suppress(Busy):
            unmount(point, end=lambda: _end(folder, signal.SIGKILL))
    end_history_servers(folder)
    _end(folder, signal.SIGTERM)
    deadline = time.monotonic() + 5
    while _processes(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    _end(folder, signal.SIGKILL)
    for point in mounts_below(folder):
        unmount(point, end=lambda: None)


def _end(folder: Path, number: signal.Signals, having: Mapping[str, str] | None = None) -> None:
    for pid in _processes(folder, having):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
            os.kill(pid, number)


def _processes(folder: Path, having: Mapping[str, str] | None = None) -> list[int]:
    """Living processes that were started for the run in this folder, with these variables too."""
    wanted = {RUN: os.fspath(folder), **(having or {})}
    needles = {os.fsencode(f"{name}={value}") for name, value in wanted.items()}
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            # A process that has ended, but was not waited for, has an empty environment.
            if needles <= set((entry / "environ").read_bytes().split(b"\0")):
                found.append(int(entry.name))
    return found
