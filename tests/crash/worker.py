"""`python -m tests.crash.worker JOB STORE SOURCE`: works until it dies, and says how far it came."""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

import atoll
from atoll import machine

FILES = 120


def content(name: str, size: int = 5000) -> bytes:
    """Bytes of a name's own."""
    return random.Random(name).randbytes(size)


def say(what: object) -> None:
    """One line, which the test waits for."""
    print(what, flush=True)


def import_folder(store: atoll.Store, source: Path) -> None:
    store.import_folder(source, branch="main")
    say("done")


def small_commits(store: atoll.Store, source: Path) -> None:
    """They stand in the log whole."""
    workspace = store.fork("main", "a").mount(driver=os.environ["ATOLL_TEST_DRIVER"])
    for number in range(10_000):
        (workspace.path / f"new{number}").write_bytes(content(f"new{number}"))
        workspace.commit(f"number {number}")
        say(number)


def _large_commit(store: atoll.Store) -> atoll.Workspace:
    workspace = store.fork("main", "a").mount(driver=os.environ["ATOLL_TEST_DRIVER"])
    for number in range(FILES):
        (workspace.path / f"n{number}").write_bytes(content(f"n{number}"))
    (workspace.path / "d0" / "f0").write_bytes(b"edited")
    (workspace.path / "d1").rename(workspace.path / "moved")
    (workspace.path / "large").unlink()
    workspace.commit("all of it")
    return workspace


def large_commit(store: atoll.Store, source: Path) -> None:
    """New, edited, moved and deleted files, none of them synced."""
    _large_commit(store)
    say("done")


def commit_and_go_on(store: atoll.Store, source: Path) -> None:
    """After the commit a few more files, and those are synced."""
    workspace = _large_commit(store)
    time.sleep(0.1)  # the clock of files is coarse, and a person is slower
    for name in ("later", "n1", "d2/f2"):
        with (workspace.path / name).open("wb") as file:
            file.write(b"later " + content(name))
            file.flush()
            os.fsync(file.fileno())
    (workspace.path / "n2").unlink()
    os.fsync(os.open(workspace.path, os.O_RDONLY))
    say("done")


def fsync(store: atoll.Store, source: Path) -> None:
    """A new file and an inherited one, not committed."""
    workspace = store.fork("main", "a").mount(driver=os.environ["ATOLL_TEST_DRIVER"])
    for name in ("new", "d0/f0"):
        with (workspace.path / name).open("r+b" if "/" in name else "wb") as file:
            file.write(content(name))
            file.flush()
            os.fsync(file.fileno())
    os.fsync(os.open(workspace.path, os.O_RDONLY))
    say("done")


def umount(store: atoll.Store, source: Path) -> None:
    workspace = store.fork("main", "a").mount(driver=os.environ["ATOLL_TEST_DRIVER"])
    (workspace.path / "new").write_bytes(content("new"))
    assert workspace.umount().kept
    say("done")


def names(store: atoll.Store, source: Path) -> None:
    for name in ("a", "b"):
        store.fork("main", name)
    store.drop("b")
    store.tag("v1", "main")
    store.rename_branch("a", "c")
    say("done")


def collect(store: atoll.Store, source: Path) -> None:
    """Imports, throws away and frees, again and again."""
    for number in range(10_000):
        folder = source / f"d{number % 7}"
        (folder / "more").write_bytes(content(f"more{number}", 200_000))
        store.import_folder(folder, branch=f"b{number}")
        store.drop(f"b{number}")
        store.gc(expire_days=0)
        say(number)


JOBS = {
    job.__name__: job
    for job in (
        import_folder,
        small_commits,
        large_commit,
        commit_and_go_on,
        fsync,
        umount,
        names,
        collect,
    )
}

if __name__ == "__main__":
    # The machine that is about to go down: the test's own processes are those of the next start.
    machine.boot_id = lambda: "the start before"
    name, where, source = sys.argv[1:]
    JOBS[name](atoll.open(store=where), Path(source))
    time.sleep(600)
