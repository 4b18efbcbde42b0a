"""`atoll lab compare`: regressions, what is refused, what is only said."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from atoll.lab.model import Options
from atoll.lab.record import Failure, Record, save
from tests.conftest import Cli
from tests.lab import made


def saved(folder: Path, name: str, record: Record) -> str:
    save(record, folder / name)
    return str(folder / name)


def run(figure: float, *, better: str = "lower") -> Record:
    figures = {"disk": made.samples(0.1, durable=2), "ours": made.samples(figure, durable=2)}
    only = made.row("write", figures, unit="s" if better == "lower" else "MB/s", better=better)  # type: ignore[arg-type]
    return made.record([made.suite("fs-bench", [only], ["disk", "ours"])], ["disk", "ours"])


def test_a_slower_row_is_a_regression(cli: Cli, home: Path) -> None:
    old, new = saved(home, "old.json", run(0.1)), saved(home, "new.json", run(0.2))
    found = cli.json("lab", "compare", old, new, code=1)
    changes = {change["target"]: change for change in found["changes"]}
    assert found["regressions"] == 1
    assert changes["ours"]["regression"] and changes["ours"]["clock"] == "durable"
    assert changes["ours"]["ratio"]["low"] > 1.8
    assert not changes["disk"]["regression"]
    assert "REGRESSION" in cli("lab", "compare", old, new, code=1)
    # The other way round it became quicker; and twice is within a threshold of three.
    assert "0 of 2" in cli("lab", "compare", new, old)
    assert "0 of 2" in cli("lab", "compare", old, new, "--threshold", "3")


def test_where_more_is_better_less_is_a_regression(cli: Cli, home: Path) -> None:
    old = saved(home, "old.json", run(400, better="higher"))
    new = saved(home, "new.json", run(200, better="higher"))
    found = cli.json("lab", "compare", old, new, code=1)
    assert found["changes"][1]["ratio"]["median"] == pytest.approx(2, rel=0.1)
    cli("lab", "compare", new, old)


def test_a_row_that_fails_now_is_a_regression(cli: Cli, home: Path) -> None:
    old, new = run(0.1), run(0.1)
    del new.suites[0].rows[0].samples["ours"]
    new.suites[0].rows[0].failures["ours"] = [Failure(rep=0, message="it was gone")]
    out = cli("lab", "compare", saved(home, "old.json", old), saved(home, "new.json", new), code=1)
    assert "fails now: it was gone" in out


def test_a_test_that_no_longer_passes_is_a_regression(cli: Cli, home: Path) -> None:
    def tests(**outcomes: str) -> Record:
        return made.record([made.suite("fsx", [], ["disk"], outcomes={"disk": outcomes})], ["disk"])

    old = saved(home, "old.json", tests(a="pass", b="pass", c="fail: known", d="skip: root"))
    new = saved(home, "new.json", tests(a="pass", b="fail: EIO", c="fail: known", d="fail: EIO"))
    (change,) = cli.json("lab", "compare", old, new, code=1)["changes"]
    assert change["regression"] and change["note"] == "1 no longer pass: b (fail: EIO)"
    assert "REGRESSION 1 no longer pass" in cli("lab", "compare", old, new, code=1)
    assert cli.json("lab", "compare", new, old)["changes"] == []


def test_few_samples_show_no_regression(cli: Cli, home: Path) -> None:
    old, new = run(0.1), run(0.3)
    for each in (old, new):
        each.suites[0].rows[0].samples = {k: v[:2] for k, v in each.suites[0].rows[0].samples.items()}
    found = cli.json("lab", "compare", saved(home, "old.json", old), saved(home, "new.json", new))
    assert found["regressions"] == 0 and found["changes"][1]["note"] == "too few samples"


def test_a_count_needs_one_sample(cli: Cli, home: Path) -> None:
    def right(copies: float, *, exact: bool) -> Record:
        row = made.row("copies right", {"ours": made.samples(copies, reps=1)}, unit="copies", better="higher")
        row.durable, row.exact, row.samples["ours"][0].value = False, exact, copies
        return made.record([made.suite("workflow", [row], ["ours"])], ["ours"])

    def compared(name: str, old: Record, new: Record, code: int = 0) -> Any:
        files = saved(home, f"{name} old.json", old), saved(home, f"{name} new.json", new)
        return cli.json("lab", "compare", *files, code=code)["changes"][0]

    lost = compared("exact", right(20, exact=True), right(10, exact=True), code=1)
    assert lost["regression"] and lost["ratio"] == {"median": 2, "low": 2, "high": 2}
    assert not compared("same", right(20, exact=True), right(20, exact=True))["regression"]
    # Where the work does not determine the figure, one sample says nothing.
    unsure = compared("unsure", right(20, exact=False), right(10, exact=False))
    assert not unsure["regression"] and unsure["note"] == "too few samples"


def test_different_work_is_refused(cli: Cli, home: Path) -> None:
    old = run(0.1)
    other = copy.deepcopy(old)
    other.suites[0].version = 2
    first, second = saved(home, "old.json", old), saved(home, "new.json", other)
    assert "version 1" in cli.fails(2, "lab", "compare", first, second)
    other = copy.deepcopy(old)
    other.options = Options(scale=0.5)
    assert "scale: 1.0, then 0.5" in cli.fails(2, "lab", "compare", first, saved(home, "new.json", other))
    other = copy.deepcopy(old)
    other.suites[0].name = "else"
    assert "no suite in common" in cli.fails(2, "lab", "compare", first, saved(home, "new.json", other))
    assert "record" in cli.fails(2, "lab", "compare", first, str(home / "nothing.json"))
    (home / "bad.json").write_text("{}")
    assert "no record" in cli.fails(2, "lab", "compare", first, str(home / "bad.json"))


def test_another_machine_is_said(cli: Cli, home: Path) -> None:
    old, new = run(0.1), run(0.1)
    new.host.kernel = "7.0"
    new.targets[1].spec = "ours=./else"
    found = cli.json("lab", "compare", saved(home, "old.json", old), saved(home, "new.json", new))
    assert any("kernel: 6.18, then 7.0" in note for note in found["notes"])
    assert any("./else" in note for note in found["notes"])
