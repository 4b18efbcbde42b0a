"""`store-compare`: every row on every kind of store, and its own check."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import atoll
from atoll.lab import registry, runner
from atoll.lab.model import Barrier, CheckFailed, Handle, Options
from atoll.lab.work import Work


def test_every_store_has_its_rows(home: Path) -> None:
    record = runner.run([registry.suite("store-compare")], [], Options(quick=True, reps=2), place=home)
    stores = ["disk, full", "disk, normal", "disk, off"]
    profiles = [target.facts.get("durability") for target in record.targets if target.name in stores]
    assert profiles == ["full", "normal", "off"]
    if os.geteuid() == 0:
        stores.append("memory, off")
    for row in record.suites[0].rows:
        assert not row.failures, (row.name, row.failures)
        for store in stores:
            if "cold" in row.name and store in row.unavailable:
                # Without root nothing empties the caches, and memory is never cold.
                assert os.geteuid() != 0 or "still in memory" in row.unavailable[store]
                continue
            assert len(row.samples[store]) == 2, row.name
            assert all(sample.value > 0 for sample in row.samples[store])


def test_a_store_that_lists_too_little_fails(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options(quick=True)
    scenario = registry.suite("store-compare").scenarios(options)[0]
    for name in ("root", "scratch"):
        (home / name).mkdir()
    handle = Handle(
        name="x",
        kind="store",
        root=str(home / "root"),
        scratch=str(home / "scratch"),
        barrier=Barrier(kind="none", note="a test"),
        facts={"durability": "off"},
    )
    work = Work(handle, scenario, options, 0, home / "root", lambda kind, fields: None)
    whole = atoll.Store.ls
    monkeypatch.setattr(atoll.Store, "ls", lambda self, *args, **more: whole(self, *args, **more)[:-1])
    with pytest.raises(CheckFailed, match="files are listed instead of"):
        scenario.run(work)
