"""The processes behind the `fuse` driver: killed at any moment, nobody notices more than a pause."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import atoll
from atoll import drivers
from atoll.drivers.base import MountOptions
from atoll.workspace import Workspace

KILLS = int(os.environ.get("ATOLL_KILLS", "10"))
#: What has to work while servers die, each in a folder of its own, to be run again and again.
WORK = {
    "tar": "mkdir -p $1 && tar -C $SOURCE -cf - . | tar -C $1 -xf - && diff -r $SOURCE $1 && rm -r $1",
    "git": (
        "git init -q $1 && cd $1 && cp -r $SOURCE/d1 . && git add -A && git -c user.name=a -c user.email=a@b"
        " commit -qm one && git mv d1 d2 && git -c user.name=a -c user.email=a@b commit -qm two &&"
        " git fsck --strict 2>&1 && git status --porcelain && cd .. && rm -rf $1"
    ),
    "append": (
        "for i in $(seq 300); do echo line $i >>$1 || exit 1; done; test $(wc -l <$1) = 300 &&"
        " tail -n 1 $1 | grep -qx 'line 300' && rm $1"
    ),
    "sqlite": (
        "for i in 1 2 3; do sqlite3 $1 'create table if not exists t(a); insert into t values(1);'"
        " || exit 1; done; test $(sqlite3 $1 'select count(*) from t; pragma integrity_check' | tr '\\n' ' '"
        " | sed 's/ok //') = 3 && rm $1"
    ),
}


@pytest.fixture
def workspace(store: atoll.Store, home: Path) -> Iterator[Workspace]:
    if (reason := drivers.get("fuse").unavailable(home, MountOptions())) is not None:
        pytest.skip(f"fuse: {reason}")
    with store.fork("main", "a").mount(driver="fuse") as mounted:
        yield mounted


def helpers_of(ws: Workspace, what: str) -> list[int]:
    """The processes of this kind that serve a workspace."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if what.encode() in words and any(word.startswith(os.fsencode(ws.folder)) for word in words):
                found.append(int(entry.name))
    return found


def server_of(ws: Workspace) -> int:
    """Its server; waited for while a new one is being started."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if found := helpers_of(ws, "live-server"):
            return found[0]
        time.sleep(0.002)
    raise AssertionError("no server is started any more")


def furnish(source: Path) -> None:
    rng = random.Random(5)
    for number in range(60):
        path = source / f"d{number % 3}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rng.randbytes(rng.choice([0, 100, 5_000, 200_000])))
        if number % 10 == 0:
            os.link(path, path.with_name(f"link{number}"))


@pytest.mark.timeout(180)
def test_servers_die_under_load(workspace: Workspace, home: Path) -> None:
    source = home / "load"
    furnish(source)
    stop = threading.Event()
    rounds = dict.fromkeys(WORK, 0)
    wrong: list[str] = []

    def again_and_again(name: str) -> None:
        while not stop.is_set() and not wrong:
            command = ["sh", "-c", WORK[name], "sh", str(workspace.path / f"{name}-work")]
            done = subprocess.run(
                command,
                env={**os.environ, "SOURCE": str(source)},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode != 0:
                wrong.append(f"{name}: {done.returncode} {done.stdout[-2000:]} {done.stderr[-2000:]}")
            rounds[name] += 1

    threads = [threading.Thread(target=again_and_again, args=[name]) for name in WORK]
    for thread in threads:
        thread.start()
    rng = random.Random(3)
    killed: set[int] = set()
    try:
        while len(killed) < KILLS and not wrong:
            time.sleep(rng.uniform(0.05, 0.4))
            pid = server_of(workspace)
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong, wrong[0]
    assert len(killed) >= KILLS and all(rounds.values()), rounds
    # Only the time of the folder that all of it was in.
    assert {change.path for change in workspace.status().changes} <= {""}


def test_an_open_file_without_a_name_outlives_its_server(workspace: Workspace) -> None:
    (workspace.path / "kept").write_text("kept")
    with open(workspace.path / "gone", "w+b") as file:
        file.write(b"before " * 50_000)
        file.flush()
        (workspace.path / "gone").unlink()
        os.kill(server_of(workspace), signal.SIGKILL)
        file.write(b"after")
        file.flush()
        file.seek(0)
        assert file.read() == b"before " * 50_000 + b"after"
    assert not (workspace.path / "gone").exists() and (workspace.path / "kept").read_text() == "kept"


def test_a_commit_is_of_one_moment(workspace: Workspace, store: atoll.Store) -> None:
    """Somebody writes A and then B for ever: no commit has B ahead of A, though nobody waits for it."""
    code = (
        "import itertools, os, sys\n"
        "a, b = (os.open(os.path.join(sys.argv[1], n), os.O_WRONLY | os.O_CREAT) for n in 'ab')\n"
        "for i in itertools.count():\n"
        "    text = b'%09d' % i\n"
        "    os.pwrite(a, text, 0); os.pwrite(b, text, 0)\n"
    )
    writer = subprocess.Popen(["python3", "-c", code, str(workspace.path)])
    try:
        while not (workspace.path / "b").exists() or (workspace.path / "b").stat().st_size == 0:
            assert writer.poll() is None
        seen = []
        for _ in range(15):
            commit = workspace.commit("while it is written").commit
            first, second = (int(store.read(commit, name)) for name in "ab")
            assert second <= first <= second + 1
            seen.append(first)
        assert seen == sorted(seen) and seen[-1] > seen[0], "the writer went on"
    finally:
        writer.kill()
        writer.wait()
    workspace.commit("the end")


def test_both_processes_die_and_the_next_mount_has_everything(
    workspace: Workspace, store: atoll.Store
) -> None:
    (workspace.path / "f").write_bytes(b"x" * 100_000)
    for what in ("live-supervisor", "live-server"):
        for pid in helpers_of(workspace, what):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while not workspace.cut_off and time.monotonic() < deadline:
        time.sleep(0.01)
    # Never an empty folder: whoever looks is told.
    with pytest.raises(OSError):
        list(workspace.path.iterdir())
    notes: list[str] = []
    store.mount("a", note=notes.append)
    assert len(notes) == 1 and "mounted again" in notes[0]
    assert (workspace.path / "f").read_bytes() == b"x" * 100_000
    assert [change.path for change in workspace.status().changes] == ["f"]
    workspace.commit("all of it")
