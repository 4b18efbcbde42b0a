"""`smallfile` and `mdtest`, and the processes that they work with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from atoll.lab.crew import Crew
from atoll.lab.model import CheckFailed
from atoll.lab.suites import mdtest, smallfile, steps
from atoll.lab.trees import Blocks
from tests.lab.suites import figures, on_each_target, quick, work_in

NO_COMMITS = "no commits"


@on_each_target
def test_smallfile_fills_every_row(home: Path, target: str) -> None:
    commits = {} if target != "folder" else {"commit": NO_COMMITS, "commit of the deletion": NO_COMMITS}
    rows = figures(quick("smallfile", target, home), commits)
    assert list(rows) == list(smallfile.ORDER)
    assert {row.files for row in rows.values()} == {400}
    for name, row in rows.items():
        for sample in row.samples.get("it", []):
            assert (sample.durable is not None) == (name in smallfile.WRITES or "commit" in name), name


@on_each_target
def test_mdtest_fills_every_row(home: Path, target: str) -> None:
    shapes = [f"{shape}, {count}" for count in ("1 process", "4 processes") for shape in ("flat", "deep")]
    commits = {f"commit, {shape}": NO_COMMITS for shape in shapes} if target == "folder" else {}
    rows = figures(quick("mdtest", target, home), commits)
    assert set(rows) == {f"{step}, {shape}" for shape in shapes for step in mdtest.STEPS}


def test_a_deep_tree_has_all_its_folders_and_its_root_first() -> None:
    made = mdtest.tree(5, 4)
    assert made[0] == "" and len(made) == len(set(made)) == 1 + 4 + 16 + 64 + 256 + 1024
    assert mdtest.tree(0, 0) == [""]


def _truncate(path: Path) -> None:
    os.truncate(path, 100)


def _other_byte(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:5000] + b"\0" + data[5001:])


def _other_mode(path: Path) -> None:
    path.chmod(0o600)


@pytest.mark.parametrize("damage", [_truncate, _other_byte, _other_mode, Path.unlink])
def test_smallfile_sees_a_file_that_is_not_what_was_written(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    blocks = Blocks(smallfile.SIZE, 1)
    paths = [[str(tmp_path / f"p{process}-{index}") for index in range(3)] for process in range(2)]
    with Crew(2) as crew:
        for process, own in enumerate(paths):
            steps.create(own, blocks, 3 * process)
            steps.append(own, blocks, 6 + 3 * process)
            steps.chmod(own, smallfile.MODE)
        smallfile.check(crew, paths, blocks)
        damage(Path(paths[1][1]))
        with pytest.raises((CheckFailed, FileNotFoundError)):
            smallfile.check(crew, paths, blocks)


def test_mdtest_sees_a_file_that_is_gone(tmp_path: Path) -> None:
    work = work_in(tmp_path)
    paths = ["p0/d0", "p0/d1"]
    (tmp_path / "p0").mkdir()
    steps.make_folders([str(tmp_path / path) for path in paths])
    steps.create_empty([str(tmp_path / "p0" / "f0")])
    mdtest.check(work, 2, 1)
    (tmp_path / "p0" / "f0").unlink()
    with pytest.raises(CheckFailed, match="2 folders and 0 files"):
        mdtest.check(work, 2, 1)


def _fail(number: int) -> None:
    if number == 1:
        raise OSError(5, "Input/output error", "there")


def _die(number: int) -> None:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def test_an_error_of_one_process_is_raised_and_the_crew_works_on(tmp_path: Path) -> None:
    with Crew(2) as crew:
        crew.prepare(_fail, [(0,), (1,)])
        with pytest.raises(OSError, match="Input/output error"):
            crew.go()
        crew.do(steps.create_empty, [([str(tmp_path / name)],) for name in ("a", "b")])
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_a_process_that_dies_is_an_error_not_a_wait() -> None:
    with Crew(2) as crew, pytest.raises((EOFError, ConnectionResetError)):
        crew.do(_die, [(0,), (1,)])


def test_a_crew_ends_with_the_process_that_leads_it() -> None:
    code = (
        "import os, signal; from atoll.lab.crew import Crew; crew = Crew(3); "
        "print(*(p.pid for p in crew._processes), flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    # Its output ends when the last process that inherited it has ended.
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.returncode == -signal.SIGKILL and len(done.stdout.split()) == 3


def test_no_two_blocks_are_alike() -> None:
    blocks = Blocks(512, 1)
    made = [blocks[number] for number in range(3000)]
    assert {len(block) for block in made} == {512} and len(set(made)) == 3000
    assert blocks[5] == Blocks(512, 1)[5] != Blocks(512, 2)[5]
