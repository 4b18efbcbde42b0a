"""Locks between processes and events of changes, on inherited and new files."""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.compat.conftest import Bench

#: Takes a lock, says so, and holds it until its input ends: kind, path, and whether to wait for it.
HOLDER = """
import fcntl, os, struct, sys
kind, path, wait = sys.argv[1], sys.argv[2], sys.argv[3] == "wait"
file = os.open(path, os.O_RDWR)
print("begun", flush=True)
if kind == "flock":
    fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
elif kind == "fcntl":
    fcntl.lockf(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 10, 5)
else:
    command = fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK
    fcntl.fcntl(file, command, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 5, 10, 0))
print("held", flush=True)
sys.stdin.read()
"""
KINDS = ("flock", "fcntl", "ofd")


@contextmanager
def holder(kind: str, path: Path, wait: bool) -> Iterator[subprocess.Popen[str]]:
    """A process that takes the lock and holds it; killed at the end."""
    words = [sys.executable, "-c", HOLDER, kind, os.fspath(path), "wait" if wait else "try"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "begun\n"
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def free(kind: str, path: Path) -> bool:
    """Whether this process can have the lock now."""
    file = os.open(path, os.O_RDWR)
    try:
        if kind == "flock":
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        elif kind == "fcntl":
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5)
        else:
            wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 5, 10, 0)
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, wanted)
    except BlockingIOError:
        return False
    finally:
        os.close(file)
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_locks_between_processes(bench: Bench, kind: str) -> None:
    """Case 28: flock, fcntl and OFD locks exclude each other's holders, through a commit of the workspace; a
    killed holder's lock is free at once, and a waiter gets it."""
    (bench.project / "old").write_bytes(bytes(100))
    (bench.project / "other").write_bytes(bytes(100))
    bench.imported()
    with bench.fork("a") as ws:
        (ws.path / "new").write_bytes(bytes(100))
        for name in ("old", "new"):
            path = ws.path / name
            with holder(kind, path, wait=False) as first:
                assert said(first) == "held\n"
                assert not free(kind, path) and free(kind, ws.path / "other")
                with holder(kind, path, wait=True) as second:
                    ws.commit("while locked")
                    assert not free(kind, path)
                    first.kill()
                    assert said(second) == "held\n"
                    assert not free(kind, path)
            assert free(kind, path)


def test_many_waiters_hold_nobody_up(bench: Bench) -> None:
    """Case 28: forty processes that wait for a lock leave the workspace to everybody else, and each gets its
    turn."""
    (bench.project / "lock").write_bytes(bytes(100))
    (bench.project / "data").write_bytes(b"data" * 50_000)
    bench.imported()
    with bench.fork("a") as ws:
        path = ws.path / "lock"
        with ExitStack() as stack:
            first = stack.enter_context(holder("fcntl", path, wait=False))
            assert said(first) == "held\n"
            waiting = {}
            for _ in range(40):
                process = stack.enter_context(holder("fcntl", path, wait=True))
                assert process.stdout is not None
                waiting[process.stdout.fileno()] = process
            assert (ws.path / "data").read_bytes() == b"data" * 50_000
            (ws.path / "more").write_text("more")
            ws.commit("while they wait")
            first.kill()
            while waiting:
                (ready, *others), _, _ = select.select(list(waiting), [], [])
                assert not others
                process = waiting.pop(ready)
                assert said(process) == "held\n"
                process.kill()


# -- events --------------------------------------------------------------------------------------------------

CREATE, MODIFY, DELETE, MOVED_FROM, MOVED_TO, ATTRIB = 0x100, 0x2, 0x200, 0x40, 0x80, 0x4
_NAMES = {
    CREATE: "create",
    MODIFY: "modify",
    DELETE: "delete",
    MOVED_FROM: "from",
    MOVED_TO: "to",
    ATTRIB: "attrib",
}
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def watched(folder: Path) -> Iterator[int]:
    """A descriptor that tells what changes in a folder."""
    file = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    assert file >= 0
    try:
        assert _libc.inotify_add_watch(file, os.fsencode(folder), sum(_NAMES)) >= 0, ctypes.get_errno()
        yield file
    finally:
        os.close(file)


def told(file: int) -> set[tuple[str, str]]:
    """What was told so far. The kernel queues an event before the call that caused it returns."""
    try:
        data = os.read(file, 1 << 16)
    except BlockingIOError:
        return set()
    found, at = set(), 0
    while at < len(data):
        _, mask, _, length = struct.unpack_from("iIII", data, at)
        name = data[at + 16 : at + 16 + length].rstrip(b"\0").decode()
        found.add((_NAMES.get(mask & 0xFFF, str(mask)), name))
        at += 16 + length
    return found


def test_changes_are_told(bench: Bench) -> None:
    """Case 27: inotify tells of every change in the workspace, of inherited and new files, by this process
    and another, also of what a restore does; and a commit tells nothing, for it changes nothing."""
    for name in ("a", "b", "c"):
        (bench.project / "dir" / name).parent.mkdir(exist_ok=True)
        (bench.project / "dir" / name).write_text(name)
    bench.imported()
    with bench.fork("w") as ws, watched(ws.path / "dir") as file:
        folder = ws.path / "dir"
        (folder / "new").write_text("new")
        assert told(file) >= {("create", "new"), ("modify", "new")}
        with open(folder / "a", "a") as inherited:
            inherited.write("more")
        assert ("modify", "a") in told(file)
        (folder / "b").rename(folder / "moved")
        (folder / "c").unlink()
        assert told(file) >= {("from", "b"), ("to", "moved"), ("delete", "c")}
        subprocess.run(
            ["sh", "-c", "echo x >> a; chmod 600 moved; mkdir sub"], cwd=folder, check=True, timeout=60
        )
        assert told(file) >= {("modify", "a"), ("attrib", "moved"), ("create", "sub")}
        ws.commit("work")
        assert told(file) == set()
        ws.restore("main")
        assert {name for _, name in told(file)} >= {"a", "b", "c", "new", "moved", "sub"}
