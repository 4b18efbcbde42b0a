"""Suites and a target as another package would bring them; tests install this file as a distribution."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from atoll import lab

VICTIM = "victim"


class Example(lab.Suite):
    """One scenario with one row."""

    title = "an example"
    limit = 60.0
    needs: tuple[lab.Tool, ...] = ()
    space = 0

    def scenarios(self, options: lab.Options) -> Sequence[lab.Scenario]:
        made = lab.Scenario(
            "write", (lab.Row("write"),), self.work, self.needs, bytes=self.space, limit=self.limit
        )
        return [made]

    def work(self, work: lab.Work) -> None:
        _write(work)


def _write(work: lab.Work, before: Callable[[], None] = lambda: None) -> None:
    with work.timed("write"):
        before()
        for number in range(10):
            (work.folder / f"f{number}").write_text(str(number))
    work.check(len(os.listdir(work.folder)) == 10, "ten files were written")


class Writes(Example):
    name = "writes"


class Forgets(Example):
    """Finds that a target lost a file."""

    name = "forgets"

    def work(self, work: lab.Work) -> None:
        with work.timed("write"):
            (work.folder / "f").write_text("it")
        if work.handle.name == VICTIM:
            (work.folder / "f").unlink()
        work.check((work.folder / "f").exists(), "f is not there any more")


class Kills(Example):
    """Ends the victim's server in the middle of the work."""

    name = "kills"
    signal = signal.SIGKILL

    def work(self, work: lab.Work) -> None:
        _write(work, lambda: self._hit(work))

    def _hit(self, work: lab.Work) -> None:
        if work.handle.name == VICTIM:
            os.kill(work.handle.servers[0], self.signal)
            # A dead server's mount is cut off a moment later.
            time.sleep(0.2)


class Stops(Kills):
    """Lets the victim's server hang."""

    name = "stops"
    signal = signal.SIGSTOP
    limit = 2.0


class Sleeps(Example):
    """Never ends on the victim, which itself is well."""

    name = "sleeps"
    limit = 1.0

    def work(self, work: lab.Work) -> None:
        _write(work, lambda: time.sleep(600 if work.handle.name == VICTIM else 0))


class Waits(Example):
    """Says that it has begun, and then waits to be interrupted."""

    name = "waits"

    def work(self, work: lab.Work) -> None:
        if work.rep == 1:
            Path(os.environ["LAB_EXAMPLE_BEGAN"]).touch()
            time.sleep(600)
        _write(work)


class Leaves(Example):
    """Leaves a process behind that has nothing to do with its parent any more."""

    name = "leaves"

    def work(self, work: lab.Work) -> None:
        subprocess.Popen(["sleep", "600"], cwd=work.folder, start_new_session=True)
        _write(work)


class Holds(Example):
    """Lets a process that is nobody's stand in the target."""

    name = "holds"

    def work(self, work: lab.Work) -> None:
        held = subprocess.Popen(["sleep", "600"], cwd=work.handle.root, env={}, start_new_session=True)
        Path(os.environ["LAB_EXAMPLE_BEGAN"]).write_text(str(held.pid))
        _write(work)


class Needs(Example):
    name = "needs"
    needs = (lab.Tool("no-such-tool", "Debian's package no-such-package"),)


class Large(Example):
    name = "large"
    space = 10**8

    def prepare(self, options: lab.Options, scratch: Path) -> None:
        raise AssertionError("the space was to be looked for before")


class Unprepared(Example):
    name = "unprepared"

    def prepare(self, options: lab.Options, scratch: Path) -> None:
        raise FileNotFoundError(2, "No such file or directory", "its input")


class Absent(Example):
    name = "absent"

    def prepare(self, options: lab.Options, scratch: Path) -> None:
        raise lab.Unavailable("it needs a registry, and there is none")


class Plain(lab.Target):
    """A folder of the lab's own disk; with `fail=yes` one that cannot be started."""

    kind = "plain"
    title = "a target of another package"

    def start(self, scratch: Path) -> lab.Handle:
        if self.settings.get("fail"):
            raise lab.Unavailable("it was told to fail")
        barrier = lab.Barrier(kind="syncfs", note="the disk", paths=(os.fspath(scratch),))
        root = os.fspath(scratch)
        return lab.Handle(name=self.name, kind=self.kind, root=root, scratch=root, barrier=barrier)


SUITES = (Writes, Forgets, Kills, Stops, Sleeps, Waits, Leaves, Holds, Needs, Large, Unprepared, Absent)
