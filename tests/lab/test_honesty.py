"""Rules of docs/LAB.md that a suite or a target could break by mistake: the lab does not let it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from atoll.lab import runner
from atoll.lab.model import Barrier, CheckFailed, Handle, Options, Row, Scenario, Tool, Unavailable
from atoll.lab.registry import suite
from atoll.lab.targets.path import PathTarget
from atoll.lab.work import Work


def work_of(folder: Path, row: Row, emitted: Callable[[str, dict[str, object]], None]) -> Work:
    barrier = Barrier(kind="none", note="a test")
    handle = Handle(name="x", kind="path", root=str(folder), scratch=str(folder), barrier=barrier)
    return Work(handle, Scenario("s", (row,), lambda work: None), Options(), 0, folder, emitted)


def test_a_row_is_not_called_cold_unless_the_caches_were_emptied(home: Path) -> None:
    seen: list[Any] = []
    work = work_of(home, Row("read", cache="cold"), lambda kind, fields: seen.append((kind, fields)))
    with pytest.raises(CheckFailed, match="nothing emptied the caches"), work.timed("read"):
        raise AssertionError("its clock must not start")
    with pytest.raises(CheckFailed):
        work.measure("read", 1.0)
    assert not seen
    try:
        work.cold()
    except Unavailable:
        pytest.skip("cold caches need root")
    work.measure("read", 1.0)
    # What was read once is warm.
    with pytest.raises(CheckFailed):
        work.measure("read", 1.0)


@pytest.mark.overlay
def test_a_syncfs_is_no_barrier_of_a_fuse_mount(home: Path) -> None:
    from atoll.lab.registry import parse_target

    below = parse_target("passthrough")
    if (missing := below.missing()) is not None:
        pytest.skip(missing)
    (home / "scratch").mkdir()
    handle = below.start(home / "scratch")
    try:

        class Careless(PathTarget):
            def start(self, scratch: Path) -> Handle:
                made = super().start(scratch)
                barrier = Barrier(kind="syncfs", note="proves nothing", paths=(made.root,))
                return Handle(
                    name=made.name, kind="path", root=made.root, scratch=made.scratch, barrier=barrier
                )

        target = Careless("careless", handle.root, handle.root)
        record = runner.run([suite("mdtest")], [target], Options(quick=True, reps=1), place=home)
    finally:
        below.stop()
    assert "never reaches a FUSE server" in (record.targets[0].unavailable or "")
    assert all("careless" in row.unavailable and not row.samples for row in record.suites[0].rows)


def test_the_version_of_a_tool(home: Path) -> None:
    from atoll.lab.host import version_of

    assert (version_of("git", *Tool("git", "").version) or "").startswith("git version")
    assert version_of("no-such-program", "--version") is None
    # What does not understand the question gives no version.
    assert version_of("sh", "-c", "echo 1.0; exit 3") is None
