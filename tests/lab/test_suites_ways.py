"""Suites that compare ways, not folders: history, workflow, restart, each with its own check."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from atoll.lab import registry, runner
from atoll.lab.model import Options, Unavailable
from atoll.lab.record import SuiteRecord
from atoll.lab.snapshots import Entry, Snapshots, differences, make_repository
from tests.conftest import overlay_reason


def _run(name: str, place: Path, **options: object) -> SuiteRecord:
    wanted = Options(quick=True, reps=1, **options)  # type: ignore[arg-type]
    return runner.run([registry.suite(name)], [], wanted, place=place).suites[0]


def _whole(made: SuiteRecord) -> None:
    for row in made.rows:
        assert not row.failures, (row.name, row.failures)
        for target in made.targets:
            assert target in row.samples or target in row.unavailable, (row.name, target)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    states: list[dict[str, bytes]] = [
        {"a": b"1\n", "d/b": b"2\n"},
        {"a": b"1\r\n", "d/b": b"2\n", ".gitattributes": b"* text=auto eol=crlf\n"},
        {"a": b"3\n", "e/f/g": b"", ".gitignore": b"e/\n"},
    ]
    folder = tmp_path / "repository"
    make_repository(folder, states[:2])
    # A link, a program and an ignored file, which git is told to take all the same.
    (folder / "link").symlink_to("a")
    (folder / "run").write_bytes(b"#!/bin/sh\n")
    (folder / "run").chmod(0o755)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false"]
    subprocess.run([*git, "add", "-A", "-f"], cwd=folder, check=True)
    subprocess.run([*git, "commit", "-q", "-m", "more"], cwd=folder, check=True)
    return folder


def test_snapshots_are_brought_about_and_compared(repository: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tree"
    with Snapshots(repository, 9) as snapshots:
        assert len(snapshots.commits) == 3
        before: dict[bytes, Entry] = {}
        for commit in snapshots.commits:
            after = snapshots.tree(commit)
            snapshots.bring_about(folder, before, after)
            assert list(differences(folder, after)) == []
            before = after
    last = after
    # What the repository's own filters would have made of it does not matter.
    assert (folder / "link").is_symlink() and os.access(folder / "run", os.X_OK)
    (folder / "a").write_bytes(b"other\n")
    (folder / "run").chmod(0o644)
    (folder / "link").unlink()
    (folder / "extra").write_bytes(b"")
    said = list(differences(folder, last))
    assert [line.split(" ")[0] for line in sorted(said)] == ["a", "extra", "link", "run"]


def test_few_snapshots_are_evenly_spaced(tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    make_repository(folder, [{"f": b"%d" % number} for number in range(11)])
    with Snapshots(folder, 3) as snapshots:
        found = [snapshots.content(snapshots.tree(commit)[b"f"].blob) for commit in snapshots.commits]
    assert found == [b"0", b"5", b"10"]
    with pytest.raises(Unavailable, match="rev-list: "):
        Snapshots(tmp_path, 3)


def test_history_keeps_every_state(home: Path, repository: Path) -> None:
    made = _run("history", home, repo=str(repository))
    _whole(made)
    rows = {row.name: row for row in made.rows}
    for way in ("atoll import", "git"):
        assert rows["states that are equal"].samples[way][0].value == 3
        (sizes,) = rows["size after the last commit"].samples[way]
        assert len(sizes.series) == 3 and sizes.series[-1] == sizes.value > 0
        assert len(rows["commit all"].samples[way][0].series) == 3


def test_history_without_a_repository_says_what_to_do(home: Path) -> None:
    record = runner.run([registry.suite("history")], [], Options(reps=1), place=home)
    assert record.suites[0].unavailable == "name a git repository with --repo"


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_workflow_tests_the_right_source(home: Path) -> None:
    made = _run("workflow", home)
    if made.unavailable:
        pytest.skip(made.unavailable)
    _whole(made)
    rows = {row.name: row for row in made.rows}
    passing = {way: samples[0].value for way, samples in rows["copies whose tests pass"].samples.items()}
    # An editable install names the project by its path: a plain copy tests the original.
    assert passing.pop("cp -a") == 0
    assert passing.pop("cp --reflink", 0) == 0
    assert passing == {"atoll fork": 2, "worktree + install": 2}


@pytest.mark.overlay
def test_restart_lists_everything_again(home: Path) -> None:
    if (reason := overlay_reason(home)) is not None:
        pytest.skip(f"overlay: {reason}")
    made = _run("restart", home)
    _whole(made)
    for row in made.rows:
        (sample,) = row.samples["atoll workspace"]
        assert sample.details["requests"] > 0
