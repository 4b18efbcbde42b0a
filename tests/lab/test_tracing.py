"""Both tracers see the same durability calls of the same program."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from atoll.lab import tracing
from atoll.lab.model import Unavailable
from atoll.lab.tracing import Event, Tracer, Window

PROGRAM = """
import mmap, os, subprocess, sys, threading
folder = sys.argv[1]
file = os.open(f"{folder}/flushed", os.O_RDWR | os.O_CREAT)
os.write(file, bytes(4096))
for _ in range(7):
    os.fsync(file)
for _ in range(3):
    os.fdatasync(file)
os.sync()
mapped = mmap.mmap(file, 4096)
mapped[0] = 1
mapped.flush()
for flag in (os.O_SYNC, os.O_DSYNC, 0):
    os.close(os.open(f"{folder}/opened", os.O_WRONLY | os.O_CREAT | flag, 0o600))
try:
    os.fsync(999)
except OSError:
    pass
thread = threading.Thread(target=os.fsync, args=(file,))
thread.start()
thread.join()
# Closes every descriptor in the child, the tracer's too, before it starts the other program.
child = "import os, sys; os.fsync(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT))"
subprocess.run([sys.executable, "-c", child, f"{folder}/a b"], check=True, close_fds=True)
"""

WANTED = {
    ("fsync", "flushed"): 8,
    ("fdatasync", "flushed"): 3,
    ("sync", ""): 1,
    ("msync", "?"): 1,
    ("open", "opened"): 2,
    ("fsync", "a b"): 1,
}


def tracer(name: str, tmp_path: Path) -> Tracer:
    folder = tmp_path / "tracer"
    folder.mkdir()
    made = tracing.make(name, folder)
    if (why := made.missing()) is not None:
        pytest.skip(f"{name}: {why}")
    return made


@pytest.mark.parametrize("name", tracing.TRACERS)
def test_a_tracer_sees_each_call_of_a_program_its_threads_and_its_children(tmp_path: Path, name: str) -> None:
    made = tracer(name, tmp_path)
    began = time.time()
    command = made.command([sys.executable, "-c", PROGRAM, str(tmp_path)])
    subprocess.run(command, env=made.environment(), check=True, timeout=60)
    ended = time.time()
    events = made.events()
    assert Counter((event.call, Path(event.path).name) for event in events) == WANTED
    assert events == sorted(events, key=lambda event: event.time)
    # strace prints times rounded to microseconds.
    assert all(began - 1e-5 <= event.time <= ended and event.duration >= 0 for event in events)
    assert {event.path for event in events if event.call == "fdatasync"} == {str(tmp_path / "flushed")}


def test_what_runs_already_is_traced_for_a_while_and_goes_on(tmp_path: Path) -> None:
    made = tracer("strace", tmp_path)
    script = (
        "import os\nfor line in iter(input, 'end'): os.fsync(os.open(line, os.O_CREAT)); print(flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdin and program.stdout

        def sync(name: str) -> None:
            assert program.stdin and program.stdout
            print(tmp_path / name, file=program.stdin, flush=True)
            program.stdout.readline()

        sync("before")
        with made.attached([program.pid]) as events:
            sync("traced")
        sync("after")
        print("end", file=program.stdin, flush=True)
        assert program.wait(20) == 0
    assert [(event.call, Path(event.path).name) for event in events] == [("fsync", "traced")]
    assert made.events() == []


def test_a_process_that_is_gone_cannot_be_traced(tmp_path: Path) -> None:
    made = tracer("strace", tmp_path)
    with subprocess.Popen(["true"]) as program:
        program.wait()
        with (
            pytest.raises(Unavailable, match="cannot trace the target's servers"),
            made.attached([program.pid]),
        ):
            pass


@pytest.mark.parametrize("name", tracing.TRACERS)
def test_a_program_that_syncs_nothing_has_no_events_and_its_own_exit_code(tmp_path: Path, name: str) -> None:
    made = tracer(name, tmp_path)
    done = subprocess.run(made.command(["sh", "-c", "exit 3"]), env=made.environment(), timeout=60)
    assert done.returncode == 3
    assert made.events() == []


def test_events_belong_to_the_window_that_they_began_in() -> None:
    events = [
        Event(time=at, duration=9, call="fsync", path=path)
        for at, path in ((0.5, "a"), (1, "b"), (2.5, "b"), (9, ""))
    ]
    windows = [Window(name="one", start=1, end=2, calls=1), Window(name="two", start=2, end=3, calls=1)]
    found = tracing.attribute(events, windows)
    assert {name: [event.time for event in own] for name, own in found.items()} == {
        "": [0.5, 9],
        "one": [1],
        "two": [2.5],
    }
    assert tracing.most_synced(events, 1) == [("b", 2)]


def test_without_a_tracer_the_reasons_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match=r"package strace.*package gcc"):
        tracing.choose(tmp_path)
