"""The rules of a run: turns, failures, targets that die or hang, space, two at once, leftovers."""

from __future__ import annotations

import fcntl
import itertools
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from atoll import lab
from atoll.errors import Busy, NoSpace, PermissionDenied, Usage
from atoll.lab import host, mounts
from atoll.lab.record import Record, RowRecord
from atoll.lab.runner import turns
from scripts.leftovers import mounts_below, processes_of
from tests.lab.lab_example import VICTIM

pytestmark = pytest.mark.usefixtures("example")


def measure(place: Path, suites: str, *targets: str, reps: int = 1) -> Record:
    """A run of suites of the example, quickly."""
    return lab.run(
        [lab.suite(name) for name in suites.split()],
        [lab.parse_target(text) for text in targets],
        lab.Options(reps=reps, quick=True),
        place=place,
    )


def only_row(record: Record) -> RowRecord:
    (row,) = record.suites[0].rows
    return row


def pass_through(name: str = VICTIM) -> str:
    """A target with a server that can be killed; skips where there is none."""
    if why := lab.parse_target("passthrough").missing():
        pytest.skip(f"passthrough: {why}")
    return f"{name}=passthrough"


# -- turns ---------------------------------------------------------------------------------------------------


def test_the_order_is_seeded_and_differs_from_repetition_to_repetition() -> None:
    names = ["a", "b", "c", "d"]
    first = list(turns("1 suite scenario", range(100), names))
    assert first == list(turns("1 suite scenario", range(100), names))
    assert first != list(turns("2 suite scenario", range(100), names))
    assert [rep for rep, _ in first] == list(range(100))
    assert all(sorted(order) == names for _, order in first)


def test_without_targets_there_are_no_turns() -> None:
    assert list(turns("seed", range(-1, 2), [])) == [(-1, []), (0, []), (1, [])]


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6, 7])
def test_chance_favours_no_target(number: int) -> None:
    names = [f"target {index}" for index in range(number)]
    rounds = number * (2 if number % 2 else 1)
    orders = [order for rep, order in turns("seed", range(-2, rounds), names) if rep >= 0]
    places = Counter((name, order.index(name)) for order in orders for name in names)
    assert set(places.values()) == {rounds // number} and len(places) == number**2
    followers = Counter(pair for order in orders for pair in itertools.pairwise(order))
    assert len(set(followers.values())) <= 1 and len(followers) == number * (number - 1)
    # A run of as many repetitions as there are targets is fair already.
    assert len({(name, order.index(name)) for order in orders[:number] for name in names}) == number**2


def test_every_sample_is_kept_with_both_clocks_and_its_place(place: Path) -> None:
    record = measure(place, "writes", "one=plain", "two=plain", reps=3)
    row = only_row(record)
    for name in ("one", "two"):
        assert [sample.rep for sample in row.samples[name]] == [0, 1, 2]
        assert all(
            sample.durable is not None and sample.durable >= sample.value for sample in row.samples[name]
        )
        assert len(record.overhead[name]) == 20
    places = [{row.samples[name][rep].order for name in ("one", "two")} for rep in range(3)]
    assert places == [{0, 1}] * 3
    assert record.partial is None and record.notes == []
    assert not list(place.iterdir())


# -- failures ------------------------------------------------------------------------------------------------


def test_a_target_that_loses_data_has_a_failure_and_no_figure(place: Path) -> None:
    row = only_row(measure(place, "forgets", f"{VICTIM}=plain", "other=plain"))
    assert [failure.message for failure in row.failures[VICTIM]] == ["f is not there any more"]
    assert list(row.failures) == [VICTIM] and len(row.samples["other"]) == 1


def test_a_sample_that_hangs_is_ended_and_its_target_goes_on(place: Path) -> None:
    record = measure(place, "sleeps writes", f"{VICTIM}=plain", "other=plain")
    failed, good = (suite.rows[0] for suite in record.suites)
    assert failed.failures[VICTIM][0].message == "did not end within 1 s (in write)"
    assert set(failed.samples) == {"other"} and set(good.samples) == {VICTIM, "other"}
    assert [target.died for target in record.targets] == [None, None]


@pytest.mark.overlay
@pytest.mark.parametrize("suite", ["kills", "stops"])
def test_a_target_whose_server_dies_or_hangs_fails_alone(
    suite: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "PATIENCE", 1.0)
    monkeypatch.setattr(mounts, "BUSY", 1.0)
    record = measure(place, f"{suite} writes", pass_through(), "other=plain", reps=2)
    assert record.target(VICTIM).died is not None  # type: ignore[union-attr]
    for suite_record in record.suites:
        (row,) = suite_record.rows
        assert [failure.rep for failure in row.failures[VICTIM]] == [0, 1]
        assert len(row.samples["other"]) == 2 and VICTIM not in row.samples
    assert "the target is dead" in row.failures[VICTIM][0].message
    assert not mounts_below(str(place)) and not list(place.iterdir())


def test_a_process_that_the_work_left_is_ended(place: Path) -> None:
    measure(place, "leaves", "it=plain")
    assert not processes_of(str(place)) and not list(place.iterdir())


def test_a_target_that_cannot_be_started_is_not_available_and_never_zero(place: Path) -> None:
    record = measure(place, "writes", "bad=plain,fail", "good=plain")
    row = only_row(record)
    assert row.unavailable == {"bad": "it was told to fail"} and list(row.samples) == ["good"]
    assert record.targets[0].unavailable == "it was told to fail"


def test_a_missing_tool_is_named_with_what_brings_it(place: Path) -> None:
    row = only_row(measure(place, "needs", "it=plain"))
    assert row.unavailable == {"it": "no-such-tool is missing: Debian's package no-such-package"}


def test_a_suite_without_its_inputs_stops_no_other(place: Path) -> None:
    record = measure(place, "absent unprepared writes", "it=plain")
    absent, unprepared, writes = record.suites
    assert absent.unavailable == "it needs a registry, and there is none" and absent.rows == []
    (failure,) = unprepared.rows[0].failures["it"]
    assert "its inputs could not be made" in failure.message
    assert len(writes.rows[0].samples["it"]) == 1


# -- before anything is done ---------------------------------------------------------------------------------


@pytest.mark.overlay
def test_too_little_space_is_found_before_anything_is_done(place: Path, home: Path) -> None:
    if not host.may_mount():
        pytest.skip("overlay: mounting a tmpfs needs root")
    tiny = home / "tiny"
    tiny.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "lab-test", tiny], check=True)
    try:
        with pytest.raises(
            NoSpace, match=r"large needs 100 MB and 0 files on small, which has 1 MB .*--scale"
        ):
            measure(place, "writes large", f"small={tiny}/", "it=plain")
        assert not list(tiny.iterdir()) and not list(place.iterdir())
    finally:
        subprocess.run(["umount", tiny], check=True)


def test_two_targets_of_one_name_are_refused(place: Path) -> None:
    with pytest.raises(Usage, match="Two targets are called plain; give one of them a name of its own"):
        measure(place, "writes", "plain", "plain")


def test_a_folder_that_is_not_there_is_refused(place: Path) -> None:
    with pytest.raises(Usage, match="is not a folder"):
        measure(place, "writes", f"it={place}/nowhere")
    with pytest.raises(Usage, match="is not a folder"):
        measure(place / "nowhere", "writes", "plain")
    assert not list(place.iterdir())


def test_a_folder_that_cannot_be_written_to_is_refused(place: Path) -> None:
    with pytest.raises(
        PermissionDenied, match=r"/proc/self cannot be written to .*; name a folder of your own"
    ):
        measure(place, "writes", "it=/proc/self")


@pytest.mark.parametrize("which", ["place", "target"])
def test_two_runs_at_once_in_one_folder_are_refused(which: str, place: Path, home: Path) -> None:
    (home / "target").mkdir()
    descriptor = os.open(home / which, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with pytest.raises(Busy, match=f"Another run of the lab works in .*/{which}; wait for it"):
            measure(place, "writes", f"it={home}/target")
    finally:
        os.close(descriptor)
    assert not list(place.iterdir())


# -- leftovers -----------------------------------------------------------------------------------------------


def test_what_a_dead_run_left_is_taken_down_and_said(place: Path) -> None:
    left = place / ".atoll-lab.dead"
    (left / "target-x").mkdir(parents=True)
    stays = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"],
        env={**os.environ, "ATOLL_LAB_RUN": str(left)},
        start_new_session=True,
    )
    try:
        record = measure(place, "writes", "it=plain")
        assert stays.wait(timeout=10) < 0
    finally:
        stays.kill()
        stays.wait()
    assert record.notes == [f"{left} was left by a run that died, and was removed."]
    assert not list(place.iterdir())


@pytest.mark.overlay
def test_a_mount_that_somebody_else_stands_in_is_told_and_taken_down_later(
    place: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why := lab.parse_target("tmpfs").missing():
        pytest.skip(f"overlay: {why}")
    monkeypatch.setattr(mounts, "BUSY", 0.3)
    record = measure(place, "holds", "it=tmpfs")
    (left,) = place.iterdir()
    (mounted,) = mounts_below(str(place))
    try:
        # The figures are kept, and the mount is not detached under whoever uses it.
        assert len(only_row(record).samples["it"]) == 1
        sentence = f"{mounted} is still in use; end what uses it and unmount it."
        assert record.notes == [f"The run could not take everything down: {sentence}"]
        assert measure(place, "writes", "it=plain").notes == [
            f"{left} was left by a run that died, and cannot be removed: {sentence}"
        ]
    finally:
        os.kill(int((home / "began").read_text()), signal.SIGKILL)
    assert measure(place, "writes", "it=plain").notes == [
        f"{left} was left by a run that died, and was removed."
    ]
    assert not mounts_below(str(place)) and not list(place.iterdir())


def test_the_folder_of_a_run_that_lives_is_let_alone(place: Path) -> None:
    other = place / ".atoll-lab.other"
    other.mkdir()
    descriptor = os.open(other, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        assert measure(place, "writes", "it=plain").notes == []
        assert list(place.iterdir()) == [other]
    finally:
        os.close(descriptor)
