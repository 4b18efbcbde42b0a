"""What the tests of the suites share: a quick run on one target, and a look at what it filled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from atoll.errors import Usage
from atoll.lab import registry, runner
from atoll.lab.model import Barrier, Handle, Options, Scenario
from atoll.lab.record import RowRecord, SuiteRecord
from atoll.lab.work import Work

__all__ = ["figures", "on_each_target", "quick", "work_in"]

#: A plain folder of the disk, and a workspace.
on_each_target = pytest.mark.parametrize(
    "target", ["folder", pytest.param("atoll:overlay", marks=pytest.mark.overlay)]
)


def quick(suite: str, target: str, home: Path, **options: Any) -> SuiteRecord:
    """One quick run of a suite on one target. Skips, with the reason, where the target cannot be had."""
    place = home / "place"
    place.mkdir()
    (home / "target").mkdir()
    try:
        made = registry.parse_target(f"it={home / 'target' if target == 'folder' else target}")
    except Usage as error:
        pytest.skip(str(error))
    if why := made.missing():
        pytest.skip(f"{target}: {why}")
    record = runner.run([registry.suite(suite)], [made], Options(quick=True, reps=1, **options), place=place)
    assert record.targets[0].unavailable is None, record.targets[0].unavailable
    assert record.targets[0].died is None, record.targets[0].died
    assert not list(place.iterdir()), "the run left something behind"
    return record.suites[0]


def figures(record: SuiteRecord, unavailable: dict[str, str] | None = None) -> dict[str, RowRecord]:
    """The rows by name. Each must have its one sample, but those that `unavailable` names, with a part of
    the reason."""
    assert record.unavailable is None, record.unavailable
    lacking = {}
    for row in record.rows:
        assert not row.failures, (row.name, row.failures)
        if why := row.unavailable.get("it"):
            lacking[row.name] = why
        else:
            assert len(row.samples["it"]) == 1, row.name
            assert row.samples["it"][0].value >= 0, row.name
    wanted = unavailable or {}
    assert set(lacking) == set(wanted), lacking
    assert all(part in lacking[name] for name, part in wanted.items()), lacking
    return {row.name: row for row in record.rows}


def work_in(folder: Path, scratch: Path | None = None) -> Work:
    """A view of a folder, to call a suite's checks with."""
    barrier = Barrier(kind="none", note="only checks are called")
    handle = Handle(name="it", kind="path", root=str(folder), scratch=str(scratch or folder), barrier=barrier)
    scenario = Scenario("nothing", (), lambda work: None)
    return Work(handle, scenario, Options(quick=True), 0, folder, lambda kind, fields: None)
