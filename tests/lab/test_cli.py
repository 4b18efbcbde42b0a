"""`atoll lab` as people and scripts call it: lists, exit codes, Ctrl-C, and what a killed run leaves."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from atoll import lab
from scripts.leftovers import mounts_below, processes_of
from tests.conftest import ATOLL, Cli, overlay_reason
from tests.lab.lab_example import VICTIM

pytestmark = pytest.mark.usefixtures("example")


@pytest.fixture
def here(place: Path) -> Cli:
    """The command, in the folder that the lab works in."""
    return Cli(place)


def test_suites_and_targets_of_other_packages_are_listed_with_ours(here: Cli) -> None:
    names = [suite["name"] for suite in here.json("lab", "suites")["suites"]]
    assert names[0] == "fs-bench" and "writes" in names
    targets = {target["kind"]: target for target in here.json("lab", "targets")["targets"]}
    assert targets["plain"]["title"] == "a target of another package"
    # One of ours cannot be replaced.
    assert targets["tmpfs"]["title"] == "memory, through the kernel's own file system"
    text = here("lab", "targets")
    for word in ("loop:btrfs", "atoll:overlay", "juicefs", ",writeback=", "seaweedfs", "passthrough:bindfs"):
        assert word in text


def test_a_run_writes_its_record(here: Cli) -> None:
    printed = here.json("lab", "run", "writes", "-t", "plain", "-t", "disk=./", "--quick", "--reps", "2")
    record = lab.load(here.cwd / printed["path"])
    assert [target.name for target in record.targets] == ["plain", "disk"]
    assert {name: len(samples) for name, samples in record.suites[0].rows[0].samples.items()} == {
        "plain": 2,
        "disk": 2,
    }
    assert record.command[:4] == ["atoll", "lab", "run", "writes"] and record.host.cpus > 0
    assert [path.name for path in here.cwd.iterdir()] == ["runs"]


def test_without_a_target_this_disk_and_the_best_driver_are_measured(here: Cli) -> None:
    printed = here.json("lab", "run", "writes", "--quick", "--reps", "1")
    best = "atoll:copy" if overlay_reason(here.cwd) else "atoll:overlay"
    assert [target["name"] for target in printed["record"]["targets"]] == ["disk", best]
    assert not mounts_below(str(here.cwd))


def test_a_failure_is_an_exit_code_and_a_line(here: Cli) -> None:
    text = here("lab", "run", "forgets", "-t", f"{VICTIM}=plain", "-t", "plain", "--quick", code=1)
    assert "f is not there any more" in text


def test_what_could_not_be_measured_at_all_is_no_success(here: Cli) -> None:
    done = here.raw("lab", "run", "writes", "-t", "plain,fail", "--quick")
    assert done.returncode == 1 and b"Nothing could be measured" in done.stderr
    assert b"it was told to fail" in done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["fs-bensh"], "There is no suite 'fs-bensh'; did you mean fs-bench?"),
        (["writes", "-t", "atol:overlay"], "There is no target 'atol'; did you mean atoll?"),
        (["writes", "-t", "./nowhere"], "is not a folder; make it, or name another one as a target."),
        (["writes", "-t", "plain", "--rtt", "soon"], "'soon' is no time"),
        (
            ["writes", "-t", "plain", "--place", "nowhere"],
            "is not a folder; make it, or give --place another",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(words: list[str], sentence: str, here: Cli) -> None:
    assert sentence in here.fails(2, "lab", "run", *words, "--quick")
    assert not list(here.cwd.iterdir())


# -- ended early ---------------------------------------------------------------------------------------------


def targets_of_all_sorts(here: Cli) -> list[str]:
    """As many as there are here: a folder, a workspace, a file system with a server."""
    words = ["-t", "disk=./"]
    for text in ("atoll:overlay,scratch=memory", "passthrough", "juicefs"):
        if lab.parse_target(text).missing() is None:
            words += ["-t", text]
    return words


def begun(here: Cli, *words: str) -> subprocess.Popen[bytes]:
    """A run that is in the middle of its second repetition."""
    command = [ATOLL, "lab", "run", "waits", *words, "--quick", "--reps", "3", "--out", "it.json"]
    process = subprocess.Popen(command, cwd=here.cwd, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    began = here.cwd.parent / "began"
    deadline = time.monotonic() + 60
    while not began.exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    return process


def nothing_is_left(here: Cli) -> None:
    assert not mounts_below(str(here.cwd)) and not processes_of(str(here.cwd))
    assert not list(here.cwd.glob(".atoll-lab.*"))


@pytest.mark.overlay
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_writes_what_it_has_and_leaves_nothing(
    number: signal.Signals, times: int, here: Cli
) -> None:
    process = begun(here, *targets_of_all_sorts(here))
    for _ in range(times):
        # The second and third one come while everything is taken down.
        process.send_signal(number)
        time.sleep(0.1)
    _, said = process.communicate(timeout=60)
    # A third one may meet the command when the record is written and everything is down.
    assert process.returncode == 130 or (times > 1 and process.returncode == -number), said
    record = lab.load(here.cwd / "it.json")
    assert record.partial == "interrupted" and record.ended
    assert all(len(samples) >= 1 for samples in record.suites[0].rows[0].samples.values())
    nothing_is_left(here)


@pytest.mark.overlay
def test_the_next_run_takes_down_what_a_killed_one_left(here: Cli) -> None:
    words = targets_of_all_sorts(here)
    process = begun(here, *words)
    process.kill()
    process.communicate(timeout=60)
    (here.cwd.parent / "began").unlink()
    # One in the place, one in the folder of the target: here both are the same folder.
    left = list(here.cwd.glob(".atoll-lab.*"))
    assert len(left) == 2
    printed = here.json("lab", "run", "writes", *words, "--quick", "--reps", "1")
    record = lab.load(here.cwd / printed["path"])
    assert sorted(record.notes) == sorted(
        f"{each} was left by a run that died, and was removed." for each in left
    )
    assert all(target.unavailable is None and target.died is None for target in record.targets)
    nothing_is_left(here)
