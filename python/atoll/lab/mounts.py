"""Mounts that are the lab's own, and programs that may never come back.

A process that asks a file system whose server hangs cannot always be killed: the kernel waits for an answer
that is on its way. So nothing here waits without a bound, and the lab itself touches a target only in
processes of their own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from atoll.errors import Busy
from atoll.lab import host
from atoll.lab.model import Unavailable

__all__ = ["answers", "bounded", "is_mounted", "kill", "mount", "mount_tmpfs", "mounts_below", "unmount"]

#: Seconds that a file system has to answer `stat -f`.
PATIENCE = 10.0
#: Seconds that a mount may still be in use: a process that was ended goes a moment later.
BUSY = 5.0

#: Processes that were killed and have not ended: the kernel waits for a server on their behalf.
_stuck: list[subprocess.Popen[Any]] = []


def bounded(command: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str] | None:
    """A program to its end, with what it printed; None when it did not end within `seconds`: then it is
    killed, and not waited for."""
    process = subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        kill(process)
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()
        return None
    return subprocess.CompletedProcess(list(command), process.returncode, out, err)


def kill(process: subprocess.Popen[Any], seconds: float = 1.0) -> None:
    """Ends a process that leads a group, with that group. One that does not go is waited for no longer than
    `seconds`, and reaped by a later call."""
    _stuck[:] = [each for each in _stuck if each.poll() is None]
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        _stuck.append(process)


def answers(folder: Path) -> str | None:
    """Why a file system does not answer there; None when it does."""
    done = bounded(["stat", "-f", os.fspath(folder)], PATIENCE)
    if done is None:
        return f"it does not answer within {PATIENCE:.0f} s"
    if done.returncode == 0:
        return None
    # Of "stat: cannot read ... information for '...': REASON" the reason.
    return done.stderr.strip().rpartition(": ")[2] or f"`stat -f` ended with {done.returncode}"


def is_mounted(point: Path) -> bool:
    """Whether something is mounted exactly there."""
    return _kind(point) is not None


def _kind(point: Path) -> str | None:
    kinds = [each.kind for each in host.mounts() if each.point == os.fspath(point)]
    return kinds[-1] if kinds else None


def mounts_below(folder: Path) -> list[Path]:
    """What is mounted below a folder, the innermost first."""
    inside = [each.point for each in host.mounts() if each.point.startswith(f"{folder}/")]
    return [Path(point) for point in sorted(inside, key=lambda point: point.count("/"), reverse=True)]


def mount(cleanup: contextlib.ExitStack, point: Path, *words: str) -> None:
    """`mount WORDS POINT`, in a folder that this makes; `cleanup` takes it down. Raises `Unavailable`."""
    point.mkdir()
    # Before the mount: an interrupt in the middle of it must not leave it behind.
    cleanup.callback(unmount, point)
    done = bounded(["mount", *words, os.fspath(point)], 60)
    if done is None or done.returncode != 0:
        why = "it does not come back" if done is None else done.stderr.strip()
        raise Unavailable(f"`mount {' '.join(words)}` failed: {why}")


def mount_tmpfs(cleanup: contextlib.ExitStack, point: Path) -> None:
    """A tmpfs of the lab's own."""
    mount(cleanup, point, "-t", "tmpfs", "atoll-lab")


def unmount(point: Path, end: Callable[[], None] | None = None) -> None:
    """Takes down what is mounted at `point`.

    `end` ends the server of a FUSE mount at once, and is called when that does not answer: such a mount can
    hang whoever asks for it. Only a FUSE mount without its server is ever detached lazily, when a process
    still stands in it: nothing can be written through it any more. Any other lazy detach would let the file
    system go on writing while the next work is timed.

    Raises:
        Busy: something still uses the mount.
    """
    fuse = (_kind(point) or "").startswith("fuse")
    dead = False
    if fuse and end is not None and answers(point) is not None:
        end()
        dead = True
    command = ["umount"] if host.may_mount() else ["fusermount3", "-u"]
    deadline = time.monotonic() + BUSY
    while is_mounted(point):
        done = bounded([*command, os.fspath(point)], 120)
        if done is not None and time.monotonic() < deadline:
            time.sleep(0.0 if done.returncode == 0 else 0.1)
            continue
        if not fuse or end is None or dead:
            break
        end()
        dead = True
        deadline = time.monotonic() + BUSY
    if dead and is_mounted(point):
        bounded([*command, *(["-l"] if host.may_mount() else ["-z"]), os.fspath(point)], 20)
    if is_mounted(point):
        raise Busy(f"{point} is still in use; end what uses it and unmount it.")
