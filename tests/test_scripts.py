"""The scripts that other checks lean on: leftovers are found, differences are named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.harness import Row, interleave, markdown, ratio_row
from scripts.compare_folders import differences
from scripts.leftovers import clean_up, processes_of


def test_a_process_that_still_uses_the_folder_is_found_and_ended(tmp_path: Path) -> None:
    place = str(tmp_path.resolve())
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys, time; print(flush=True); time.sleep(100)"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        assert process.pid in processes_of(place)
        left = clean_up(place, 0.0)
        assert [line for line in left if line.startswith(f"process {process.pid}:")]
        assert process.wait(10) != 0
        process.stdout.close()
        assert process.pid not in processes_of(place)
    finally:
        process.kill()


def test_a_quiet_folder_has_no_leftovers(tmp_path: Path) -> None:
    assert clean_up(str(tmp_path / "nobody-is-here"), 0.0) == []


def make(folder: Path) -> Path:
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "file").write_text("one")
    (folder / "link").symlink_to("inner")
    os.utime(folder / "inner" / "file", ns=(1, 2))
    return folder


def test_equal_folders_have_no_differences(tmp_path: Path) -> None:
    assert differences(make(tmp_path / "a"), make(tmp_path / "b")) == []


def test_every_kind_of_difference_is_named(tmp_path: Path) -> None:
    left, right = make(tmp_path / "a"), make(tmp_path / "b")
    (right / "inner" / "file").write_text("two")
    (right / "link").unlink()
    (right / "link").symlink_to("elsewhere")
    (left / "only").mkdir()
    (left / "mode").touch(0o600)
    (right / "mode").touch(0o644)
    (left / "kind").mkdir()
    (right / "kind").touch()
    assert sorted(
        line.partition(" (")[0] + " " + line[line.index("(") :].split()[0]
        for line in differences(left, right)
    ) == [
        "inner/file (content)",
        "kind (kind)",
        "link (link",
        "mode (mode)",
        "only (only",
    ]


def test_a_name_that_is_left_out_is_left_out_at_the_top_only(tmp_path: Path) -> None:
    left, right = make(tmp_path / "a"), make(tmp_path / "b")
    (left / ".git").mkdir()
    (left / "inner" / ".git").mkdir()
    assert differences(left, right, frozenset({".git"})) == [f"inner/.git (only in {left})"]


def test_targets_take_turns_and_warm_ups_are_not_kept() -> None:
    order: list[str] = []

    def sample(name: str) -> float:
        order.append(name)
        return float(len(order))

    samples = interleave({"a": lambda: sample("a"), "b": lambda: sample("b")}, runs=2, warm_up=1)
    assert "".join(order) == "baabba"
    assert samples == {"a": [3.0, 6.0], "b": [4.0, 5.0]}


def test_a_figure_over_its_bar_does_not_hold() -> None:
    row = ratio_row("x", {"ours": [3.0, 2.0, 1.0], "base": [1.0, 1.0, 1.0]}, "ours", "base", 1.5)
    assert row.figure == 2.0 and row.holds is False
    assert "**no**" in markdown([row])
    assert Row("y", {"a": [1.0]}, "ms", 1.0, None, "as it is").holds is None
