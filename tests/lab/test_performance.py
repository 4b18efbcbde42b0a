"""docs/PERFORMANCE.md: made of records; each bar is looked up in them, and each name is one that there is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from atoll.lab import registry
from atoll.lab.record import Failure, Record, save
from scripts.bars import BARS, Bar, reach
from scripts.lab import FULL, PLANS, SHORT
from scripts.performance import page
from tests.lab import made

TARGETS = ["disk", "overlay", "atoll", "passthrough"]


def record(atoll: float, suite: str = "smallfile") -> Record:
    centres = {"disk": 0.1, "overlay": 0.1, "atoll": atoll, "passthrough": 0.5}
    rows = [
        made.row(name, {target: made.samples(each, durable=1.5) for target, each in centres.items()})
        for name in ("create", "delete")
    ]
    return made.record([made.suite(suite, rows, TARGETS)], TARGETS)


def bar(reference: str, most: float) -> Bar:
    return Bar("each row", "smallfile", "smallfile", "atoll", reference, most)


def test_a_bar_holds_when_each_row_keeps_to_it() -> None:
    found = reach(bar("overlay", 1.3), {"smallfile": record(0.12)})
    assert found.holds and found.figure.split(": ")[1].startswith("1.")
    found = reach(bar("overlay", 1.3), {"smallfile": record(0.2)})
    assert found.holds is False and len(found.beyond) == 2
    assert reach(bar("passthrough", 1.0), {"smallfile": record(0.2)}).holds


def test_a_failure_misses_a_bar_and_what_was_not_measured_is_neither() -> None:
    broken = record(0.1)
    broken.suites[0].rows[0].failures["atoll"] = [Failure(rep=4, message="gone")]
    found = reach(bar("overlay", 1.3), {"smallfile": broken})
    assert found.holds is False and found.beyond == ("create failed",)
    assert reach(bar("overlay", 1.3), {}).holds is None
    assert reach(bar("nobody", 1.3), {"smallfile": record(0.1)}).holds is None


def test_the_summaries_of_fs_bench_are_those_that_bars_name() -> None:
    summaries = {each.name for each in registry.suite("fs-bench").summaries}
    assert {each.summary for each in BARS if each.suite == "fs-bench"} <= summaries


@pytest.mark.parametrize("plan", PLANS)
def test_plans_name_suites_and_targets_that_there_are(plan: str) -> None:
    named = {suite for run in PLANS[plan] for suite in run.suites}
    assert named == set(registry.SUITES)
    for run in PLANS[plan]:
        for target in run.targets:
            registry.parse_target(target)
    assert len({run.name for run in PLANS[plan]}) == len(PLANS[plan])


def test_each_bar_is_measured_by_the_full_plan() -> None:
    runs = {run.name: run for run in FULL}
    for each in BARS:
        run = runs[each.record]
        assert each.suite in run.suites
        names = {registry.parse_target(target).name for target in run.targets}
        assert not names or {each.ours, each.reference} <= names


def test_the_page_has_every_bar_and_no_path_of_the_machine(tmp_path: Path) -> None:
    one = record(0.1)
    one.command = ["atoll", "lab", "run", "smallfile", "-t", "disk=/home/me/x", "--scale", "0.5"]
    one.suites[0].rows[0].failures["disk"] = [
        Failure(rep=1, message="/home/me/.atoll-lab.ab12/x: not there, /proc/sys/vm/y")
    ]
    save(one, tmp_path / "smallfile.json")
    old = {
        "host": {"load": [0.5, 0.4, 0.3]},
        "rows": [
            {
                "name": "fork",
                "samples": {"a": [1.0, 2.0]},
                "unit": "ms",
                "figure": 1.5,
                "bar": 2,
                "how": "median",
            }
        ],
    }
    (tmp_path / "fork.json").write_text(json.dumps(old))
    text = page(SHORT, tmp_path, tmp_path)
    assert all(f"| {each.suite} | {each.what} |" in text for each in BARS)
    assert "### smallfile" in text and "### fork" in text and "| fork | a 1.5 ms | 1.5 | 2 | yes |" in text
    assert "/home/me" not in text and "…/x: not there, /proc/sys/vm/y" in text
    assert "`atoll lab run smallfile -t disk=…/x --scale 0.5`" in text, "the command that was run"
