"""What a scenario is given: whether a file is still in memory, programs, checks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from atoll.lab import work
from atoll.lab.host import mount_of
from atoll.lab.model import CheckFailed, Unavailable
from tests.lab.suites import work_in

MEMORY = Path("/dev/shm")


def test_a_file_that_was_just_written_is_in_memory_until_the_kernel_lets_it_go(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(1 << 20))
    if mount_of(tmp_path).kind not in ("ext4", "xfs", "btrfs", "overlay"):
        pytest.skip("the temporary folder is on no disk")
    assert work._cached_share(file) == 1
    descriptor = os.open(file, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    assert work._cached_share(file) == 0
    file.write_bytes(b"")
    assert work._cached_share(file) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="dropping caches needs root")
@pytest.mark.skipif(not MEMORY.is_dir(), reason="there is no /dev/shm")
def test_memory_is_never_cold(tmp_path: Path) -> None:
    file = MEMORY / f"atoll-lab-test-{os.getpid()}"
    try:
        file.write_bytes(bytes(1 << 16))
        with pytest.raises(Unavailable, match=r"100% of .* is still in memory"):
            work_in(tmp_path).cold(file)
    finally:
        file.unlink()


def test_a_program_that_fails_is_a_failed_check_with_its_last_words(tmp_path: Path) -> None:
    here = work_in(tmp_path)
    assert here.run(("sh", "-c", "pwd")).strip() == str(tmp_path)
    with pytest.raises(CheckFailed, match=r"ended with 3: one / two"):
        here.run(("sh", "-c", "echo one >&2; echo two >&2; exit 3"))
    assert here.run(("sh", "-c", "echo bad; exit 3"), good=(3,)) == "bad\n"
