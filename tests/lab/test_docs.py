"""docs/LAB.md: it names what there is, and its examples work."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from atoll.lab.record import load
from atoll.lab.targets.command import read
from scripts import lab_docs
from tests.conftest import Cli
from tests.lab.packages import install

TEXT = lab_docs.PAGE.read_text()


def block(language: str, words: str) -> str:
    """The code block of a language with these words in it."""
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    return next(each for each in found if words in each)


def test_suites_and_targets_are_described_as_they_describe_themselves() -> None:
    assert lab_docs.page(TEXT) == TEXT, "run `python -m scripts.lab_docs`"


def test_the_example_of_a_program_that_mounts_something(tmp_path: Path) -> None:
    (tmp_path / "it.toml").write_text(block("toml", "mydaemon"))
    described = read(tmp_path / "it.toml")
    assert described.start[0] == "mydaemon" and described.barrier is not None
    assert described.barrier.kind == "command"


@pytest.mark.timeout(60)
def test_the_example_of_a_suite_runs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registered = tomllib.loads(block("toml", "atoll.lab.suites"))["project"]["entry-points"]
    entry_points = {
        group: [f"{name} = {value}" for name, value in entries.items()]
        for group, entries in registered.items()
    }
    install(home / "site", "lab_notes", block("python", "class Notes"), entry_points, monkeypatch)
    cli = Cli(home)
    assert "a thousand notes" in cli("lab", "suites")
    cli("lab", "run", "notes", "--quick", "--reps", "1", "--target", "disk=./", "--out", home / "it.json")
    (row,) = load(home / "it.json").suites[0].rows
    assert row.files == 20 and len(row.samples["disk"]) == 1
