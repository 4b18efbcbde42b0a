"""`fio`: real fio, and what is checked when it has ended."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from atoll.lab import host
from atoll.lab.model import CheckFailed, Options
from atoll.lab.suites import fio
from atoll.lab.work import Work
from tests.lab.suites import figures, on_each_target, quick, work_in

BLOCK = fio.BLOCK


@on_each_target
def test_every_job_has_its_figure(home: Path, target: str) -> None:
    if shutil.which("fio") is None:
        pytest.skip("fio is missing: Debian's package fio")
    lacking = {} if os.geteuid() == 0 else {"sequential read, buffered, cold": "need root"}
    rows = figures(quick("fio", target, home), lacking)
    assert list(rows) == [job.name for job in fio.JOBS]
    for job in fio.JOBS:
        row = rows[job.name]
        for sample in row.samples.get("it", []):
            assert sample.value > 0 and row.better == "higher"
            # fio gives percentiles as the upper ends of its buckets.
            assert 0 < sample.details["p50 us"] <= sample.details["p90 us"] <= sample.details["p99 us"]
            assert (sample.durable is not None) == job.writes
            assert sample.durable is None or sample.durable < sample.value


def test_without_fio_each_row_names_the_package(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = host.find_program
    monkeypatch.setattr(host, "find_program", lambda name: None if name == "fio" else found(name))
    rows = quick("fio", "folder", home).rows
    assert len(rows) == len(fio.JOBS)
    assert all("Debian's package fio" in row.unavailable["it"] for row in rows)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Work, Path, Path]:
    """A file of eight blocks and its original."""
    original, path = tmp_path / "original", tmp_path / "file"
    original.write_bytes(os.urandom(8 * BLOCK))
    shutil.copyfile(original, path)
    return work_in(tmp_path), path, original


def test_a_block_that_was_not_written_is_seen(pair: tuple[Work, Path, Path]) -> None:
    work, path, original = pair
    fio.check_changed(work, path, original, 0)
    data = bytearray(path.read_bytes())
    data[BLOCK] ^= 1
    data[5 * BLOCK + 7] ^= 1
    path.write_bytes(data)
    fio.check_changed(work, path, original, 2)
    with pytest.raises(CheckFailed, match="2 blocks have changed, 3 were written"):
        fio.check_changed(work, path, original, 3)
    os.truncate(path, 7 * BLOCK)
    with pytest.raises(CheckFailed, match="bytes instead of"):
        fio.check_changed(work, path, original, 2)


def test_a_new_file_with_a_hole_is_seen(pair: tuple[Work, Path, Path]) -> None:
    work, path, _ = pair
    fio.check_whole(work, path, 8 * BLOCK)
    data = path.read_bytes()
    path.write_bytes(data[: 3 * BLOCK] + bytes(BLOCK) + data[4 * BLOCK :])
    with pytest.raises(CheckFailed, match="block 3 was never written"):
        fio.check_whole(work, path, 8 * BLOCK)
    with pytest.raises(CheckFailed, match="bytes instead of"):
        fio.check_whole(work, path, 9 * BLOCK)


def test_the_full_size_is_half_a_gibibyte() -> None:
    assert fio.size(Options()) == 512 << 20
