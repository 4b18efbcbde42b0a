"""Scenarios over several workspaces and their history: what a base is, what a stop leaves, forks' cost."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import atoll
from atoll import errors
from atoll.run.active import freezer
from atoll.workspace import Workspace
from tests.compat.conftest import Bench, Tools, standing_still
from tests.conftest import ATOLL
from tests.drivers.picture import differences, take


def test_a_child_sees_nothing_of_later_edits(bench: Bench) -> None:
    """Case 8: after a fork the folder is edited and imported again, and the parent's workspace is edited and
    committed: the child, mounted before or after, stays on what it was forked at."""
    for name in ("a", "d/b", "d/c"):
        (bench.project / name).parent.mkdir(exist_ok=True)
        (bench.project / name).write_text(f"first {name}\n")
    bench.imported()
    parent = bench.fork("parent")
    (parent.path / "d" / "b").write_text("parent\n")
    parent.commit("one")
    before = bench.fork("before", "parent")
    expected = take(before)
    bench.store.fork("parent", "after")
    # Unread so far in the child: what is changed, replaced, removed, added.
    (bench.project / "a").write_text("host\n")
    (bench.project / "d" / "c").unlink()
    bench.imported()
    (parent.path / "a").write_text("parent again\n")
    (parent.path / "d" / "b").unlink()
    (parent.path / "d" / "new").write_text("new\n")
    (parent.path / "d").rename(parent.path / "e")
    parent.commit("two")
    after = bench.store.mount("after", driver=bench.driver)
    with parent, before, after:
        for child in (before, after):
            assert differences(take(child), expected) == []
            assert child.status().changes == ()
            (child.path / "d" / "b").write_text("child\n")
        assert not (parent.path / "d").exists() and (bench.project / "a").read_text() == "host\n"


ROUND = """
import os, sys, time
turn = int(sys.argv[1])
assert sorted(os.listdir(".")) == sorted(["base", *(f"f{n}" for n in range(turn))]), os.listdir(".")
for n in range(turn):
    assert open(f"f{n}").read() == "x" * n * 1000 + "end"
with open("base", "a") as file:
    file.write(f"{turn}\\n")
with open(f"f{turn}", "w") as file:
    file.write("x" * turn * 1000 + "end")
print("ready", flush=True)
time.sleep(600)
"""


def test_stops_and_starts(bench: Bench) -> None:
    """Case 10: ten times: write, be stopped (SIGTERM to the run, kill -9 of it, or of the command), go on:
    everything is there each time, and no file more."""
    (bench.project / "base").write_text("base\n")
    bench.imported()
    bench.store.fork("main", "r")
    said: list[str] = []
    for turn in range(10):
        words = [ATOLL, "run", "-q", "--on", "r", "--driver", bench.driver, "--"]
        with subprocess.Popen(
            [*words, sys.executable, "-c", ROUND, str(turn)],
            cwd=bench.project,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None and process.stdout.readline() == "ready\n", turn
            if turn % 2:
                process.terminate()
            else:
                process.kill()
            said.append(process.stdout.read())
        if turn % 2 == 0:
            # Nobody committed: what was written is in the workspace, and is the next run's.
            (ws,) = bench.store.workspaces()
            assert (ws.path / f"f{turn}").exists()
            if turn % 4 == 0:
                ws.commit(f"turn {turn}")
            assert ws.umount().kept == (turn % 4 != 0)
    assert said == [""] * 10
    entries = {entry.path: entry.size for entry in bench.store.ls("r")}
    assert entries == {"base": 25, **{f"f{turn}": turn * 1000 + 3 for turn in range(10)}}


def test_what_forks_cost(bench: Bench) -> None:
    """Case 18: many branches of one tree, five small edits each: the store grows by little more than the
    edits, and nothing of a workspace is left."""
    for number in range(300):
        file = bench.project / f"d{number % 20}" / f"f{number}"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(os.urandom(20_000))
    bench.imported()
    stats = bench.store.stats()
    assert stats["pack_bytes"] > 5 << 20
    forks = 20 if bench.overlay else 8
    for number in range(forks):
        ws = bench.fork(f"w{number}")
        if bench.overlay:
            used = sum(file.lstat().st_blocks for file in ws.folder.rglob("*")) * 512
            assert used < 100_000
        for edit in range(5):
            (ws.path / f"d{edit}" / f"f{edit}").write_bytes(os.urandom(1000))
        ws.commit("edited")
        assert not ws.umount().kept
    after = bench.store.stats()
    edits = forks * 5 * 1000
    grown = after["pack_bytes"] + after["log_bytes"] - stats["pack_bytes"] - stats["log_bytes"]
    assert edits <= grown < edits + forks * 10_000
    assert after["objects"] - stats["objects"] < forks * 5 * 4
    assert list((bench.store.path / "workspaces").iterdir()) == []


def test_a_mount_inside_of_what_is_imported(bench: Bench, tools: Tools, home: Path) -> None:
    """Case 22: a folder that holds a store and mounts of it is imported: both are left out and said, and a
    walk ends; a workspace cannot be mounted inside of its own base."""
    (bench.project / "f").write_text("f")
    bench.imported()
    with pytest.raises(errors.Usage):
        bench.store.fork("main", "inner").mount(bench.project / "mnt", driver=bench.driver)
    outer = home / "outer"
    (outer / "sub").mkdir(parents=True)
    (outer / "sub" / "own").write_text("own")
    with (
        bench.fork("a") as ws,
        bench.store.fork("main", "b").mount(outer / "mnt", driver=bench.driver) as inside,
    ):
        (inside.path / "written").write_text("in the workspace")
        with atoll.create(outer / "store") as store:
            result = store.import_folder(outer, branch="main")
            skipped = {(each.path, each.reason) for each in result.skipped}
            assert ("store", "store") in skipped
            if bench.driver != "copy":
                assert ("mnt", "mount") in skipped
            with store.fork("main", "c").mount(home / "c", driver=bench.driver) as copy:
                listed = tools("find", ".", "-name", "own", "-o", "-name", "f", cwd=copy).split()
                assert "./sub/own" in listed
                assert ("./mnt/f" in listed) == (bench.driver == "copy")
                assert not (copy.path / "store").exists() or not any((copy.path / "store").iterdir())
        assert ws.status().changes == ()
        inside.commit("written")


STEPS = """
import os, sys
folder = sys.argv[1]
def put(name, number):
    with open(f"{folder}/{name}~", "w") as file:
        file.write(f"{number}\\n" * 300)
    os.rename(f"{folder}/{name}~", f"{folder}/{name}")
number = 0
while not os.path.exists(f"{folder}/end"):
    number += 1
    put("A", number)
    put("B", number)
    if number == 20:
        open(f"{folder}/begun", "w").close()
"""


def pair(bench: Bench) -> tuple[int, int]:
    """A and B in the branch's newest commit, each of them whole."""
    found = []
    for name in "AB":
        words = bench.store.read("w", name).decode().split()
        assert len(words) == 300 and len(set(words)) == 1
        found.append(int(words[0]))
    return found[0], found[1]


def begun(ws: Workspace) -> None:
    while not (ws.path / "begun").exists():
        time.sleep(0.01)


@pytest.fixture
def counters(bench: Bench) -> Iterator[Workspace]:
    """A workspace with A and B."""
    for name in ("A", "B"):
        (bench.project / name).write_text("0\n" * 300)
    bench.imported()
    with bench.fork("w") as ws:
        yield ws


def test_commits_while_somebody_writes(bench: Bench, counters: Workspace) -> None:
    """Case 25: a writer replaces A, then B, without a pause. A commit is refused, with the branch where it
    was, or holds whole files; one that is made while the writer stands still never has B ahead of A."""
    ws = counters
    with subprocess.Popen([sys.executable, "-c", STEPS, os.fspath(ws)], text=True) as process:
        try:
            begun(ws)
            for _ in range(6):
                head = bench.store.resolve("w")
                try:
                    ws.commit("moving")
                    pair(bench)
                except errors.Changed:
                    assert bench.store.resolve("w") == head
                with standing_still(process):
                    ws.commit("standing")
                a, b = pair(bench)
                assert b in (a, a - 1)
        finally:
            process.kill()
    ws.commit("end")


def test_commits_while_a_run_writes(bench: Bench, counters: Workspace) -> None:
    """Case 25: the same writer under atoll, which can hold it still: no commit is refused, and B is never
    ahead of A."""
    ws = counters
    words = [sys.executable, "-c", STEPS, "."]
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(ws.run, words)
        try:
            begun(ws)
            if freezer(ws.folder) is None:
                pytest.skip("no cgroup can be made here")
            for _ in range(6):
                ws.commit("moving")
                a, b = pair(bench)
                assert b in (a, a - 1)
        finally:
            (ws.path / "end").touch()
        assert ended.result().returncode == 0
    ws.commit("end")
