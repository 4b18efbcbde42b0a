"""What the lab says about the machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from atoll.lab import host
from atoll.lab.report import words
from tests.lab import made

MKFS = host.find_program("mkfs.ext4")


@pytest.mark.overlay
@pytest.mark.skipif(not host.may_mount(), reason="a loop mount needs root")
@pytest.mark.skipif(MKFS is None, reason="mkfs.ext4 is missing: Debian's package e2fsprogs")
@pytest.mark.parametrize("journal", [True, False])
def test_ext4_without_a_journal_is_cautioned_about(tmp_path: Path, journal: bool) -> None:
    image, folder = tmp_path / "image", tmp_path / "mounted"
    folder.mkdir()
    image.touch()
    os.truncate(image, 64 << 20)
    feature = "has_journal" if journal else "^has_journal"
    subprocess.run([str(MKFS), "-q", "-F", "-O", feature, str(image)], check=True, timeout=60)
    done = subprocess.run(["mount", "-o", "loop", str(image), str(folder)], capture_output=True, timeout=60)
    if done.returncode != 0:
        pytest.skip(f"no loop mount here: {done.stderr.decode().strip()}")
    try:
        said = host.caution(folder)
    finally:
        subprocess.run(["umount", str(folder)], check=True, timeout=60)
    if journal:
        assert said is None
    else:
        assert said and said.startswith(f"{folder} is ext4 without a journal") and "--place" in said


def test_a_file_system_without_such_habits_needs_no_caution() -> None:
    assert host.caution(Path("/proc")) is None


def test_how_busy_the_machine_is_counts_waiting_for_a_disk_as_idle() -> None:
    # user, nice, system, idle, iowait, irq, softirq, steal: 30 of 100 ticks were work.
    readings = ["cpu 100 0 50 1000 10 0 0 0 0 0\ncpu0 1", "cpu 110 0 65 1060 20 2 1 2 0 0\ncpu0 2"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "read_text", lambda self: readings.pop(0))
        assert host.busy(0) == pytest.approx(0.3)


def test_only_a_busy_machine_is_called_so() -> None:
    record = made.record([], [])
    for share, said in ((None, False), (0.02, False), (0.5, True)):
        record.host.busy_before = share
        sentences = [each for each in words.cautions(record) if "busy" in each]
        assert bool(sentences) == said
        assert not said or "50% of its processors" in sentences[0]
