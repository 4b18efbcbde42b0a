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


def test_how_busy_the_machine_is_is_a_share() -> None:
    share = host.busy(0.05)
    assert share is None or 0 <= share <= 1


def test_only_a_busy_machine_is_called_so() -> None:
    record = made.record([], [])
    for share, said in ((None, False), (0.02, False), (0.5, True)):
        record.host.busy_before = share
        sentences = [each for each in words.cautions(record) if "busy" in each]
        assert bool(sentences) == said
        assert not said or "50% of its processors" in sentences[0]
