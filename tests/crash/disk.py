"""A disk that can lose its power: a file system in a file, shut down with what it still had in memory."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import struct
import subprocess
import time
from pathlib import Path

from scripts.leftovers import mounts_below, processes_of

# FS_IOC_SHUTDOWN: no further write reaches the device; with this flag not even the journal's that is in
# memory. ext4 and xfs have it, and their own test suite (xfstests) makes its power cuts with it.
SHUTDOWN = 0x8004587D
WITHOUT_LOG = 2


class Disk:
    """`folder` is on it; `home` is the test's own folder, which all that it starts names."""

    def __init__(self, kind: str, home: Path, megabytes: int = 400) -> None:
        self.image, self.folder, self.home = home / "disk.img", home / "disk", home
        with self.image.open("wb") as file:
            file.truncate(megabytes << 20)
        quiet = {"ext4": ["-q", "-F"], "xfs": ["-q"]}[kind]
        subprocess.run([f"mkfs.{kind}", *quiet, str(self.image)], check=True, capture_output=True)
        self.folder.mkdir()
        self.power_on()

    def power_on(self) -> None:
        """Mounts it; the file system's own log is played back."""
        subprocess.run(["mount", "-o", "loop", str(self.image), str(self.folder)], check=True)

    def cut(self) -> None:
        """The power goes: what was not on the disk by now never will be, and every process is dead."""
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", WITHOUT_LOG))
        finally:
            os.close(descriptor)
        self.end()

    def end(self) -> None:
        """Ends what uses the disk, and unmounts it and all that is mounted from it."""
        deadline = time.monotonic() + 20
        while found := processes_of(str(self.home)):
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            assert time.monotonic() < deadline, found
            time.sleep(0.02)
        for point in mounts_below(str(self.home)):
            # Unmounting an overlay syncs its upper, which a dead disk refuses; it is unmounted nevertheless.
            done = subprocess.run(["umount", point], capture_output=True, text=True, check=False)
            assert done.returncode == 0, (point, done.stderr)

    def remove(self) -> None:
        """For good."""
        self.end()
        self.image.unlink()


def missing(kind: str) -> str | None:
    """Why there is no such disk here."""
    if os.geteuid() != 0:
        return "a file system in a file takes root"
    return None if shutil.which(f"mkfs.{kind}") else f"mkfs.{kind} is not there"
