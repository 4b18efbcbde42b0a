"""What a reader has to know about the machine before believing a figure."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from atoll.lab.record import Host
from atoll.machine import Machine

__all__ = [
    "Mount",
    "caution",
    "describe",
    "find_program",
    "free_space",
    "may_mount",
    "mount_of",
    "mounts",
    "version_of",
]

CAP_SYS_ADMIN = 21


@dataclass(frozen=True)
class Mount:
    """A line of /proc/self/mounts."""

    point: str
    kind: str
    options: str
    source: str


def mounts() -> list[Mount]:
    """Everything that is mounted, in the order in which it was."""
    found = []
    for line in Path("/proc/self/mounts").read_bytes().splitlines():
        source, point, kind, options = line.split()[:4]
        point = re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), point)
        found.append(Mount(os.fsdecode(point), kind.decode(), options.decode(), os.fsdecode(source)))
    return found


def mount_of(folder: Path) -> Mount:
    """The mount that a folder lies on."""
    best = Mount("", "unknown", "", "")
    where = os.path.realpath(folder)
    for each in mounts():
        inside = where == each.point or where.startswith(each.point.rstrip("/") + "/")
        # Of two mounts on one point the later one is seen.
        if inside and len(each.point) >= len(best.point):
            best = each
    return best


def caution(folder: Path) -> str | None:
    """What makes figures of the file system that a folder lies on depend on what was done there before."""
    mount = mount_of(folder)
    if mount.kind != "ext4":
        return None
    try:
        number = os.stat(folder).st_dev
        device = os.path.realpath(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
        journal = Path("/sys/fs/ext4", os.path.basename(device), "journal_task").read_text().strip()
    except OSError:
        return None
    if journal != "<none>":
        return None
    # fs/ext4/ialloc.c, recently_deleted(): an inode is not used again for 60 seconds, 360 while it is dirty,
    # and each search walks past all of these. Measured: 10 us for a create, 290 us after 20,000 deletions.
    return (
        f"{mount.point} is ext4 without a journal: for minutes after files were deleted there, each new file "
        "costs up to thirty times more, on every target whose data lie on it; give --place a folder on "
        "another file system."
    )


def may_mount() -> bool:
    """Whether this process may mount file systems."""
    return Machine().capable(CAP_SYS_ADMIN)


def free_space(folder: Path) -> tuple[int, int]:
    """Bytes and inodes that this user can still have there; a file system that counts no inodes gives a
    large number."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize, found.f_favail if found.f_files else 1 << 62


def version_of(*command: str) -> str | None:
    """The first line that a program prints about its version; None when it is not there, or does not say."""
    program = find_program(command[0])
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, *command[1:]], capture_output=True, text=True, check=False, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
    return lines[0].strip() if lines else None


def _field(path: str, name: str) -> str:
    try:
        text = Path(path).read_text()
    except OSError:
        return ""
    match = re.search(rf"^{re.escape(name)}\s*:\s*(.*)$", text, re.MULTILINE)
    return match[1].strip() if match else ""


def describe() -> Host:
    """The machine, before the run."""
    machine = Machine()
    virtual = machine.container or (
        "virtual machine" if "hypervisor" in _field("/proc/cpuinfo", "flags") else ""
    )
    return Host(
        kernel=platform.release(),
        machine=platform.machine(),
        cpu=_field("/proc/cpuinfo", "model name") or platform.processor(),
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        virtual=virtual,
        load_before=list(os.getloadavg()),
        busy_before=busy(),
        versions={"python": platform.python_version()},
    )


def busy(seconds: float = 0.2) -> float | None:
    """The share of the processors' time, 0 to 1, that others use just now; None where it cannot be known. The
    load is no measure of that: it remembers a minute, thus the lab's own last run."""
    before = _processor_times()
    time.sleep(seconds)
    after = _processor_times()
    if before is None or after is None or after[1] <= before[1]:
        return None
    return 1 - (after[0] - before[0]) / (after[1] - before[1])


def _processor_times() -> tuple[int, int] | None:
    """Ticks of all processors together: idle (waiting for a disk too), and all."""
    try:
        ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except (OSError, ValueError):
        return None
    return ticks[3] + ticks[4], sum(ticks)


def find_program(name: str) -> str | None:
    """Where a program is: on PATH, beside this interpreter, or where cargo and the system put theirs."""
    beside = os.path.dirname(sys.executable)
    places = [
        os.environ.get("PATH", os.defpath),
        beside,
        os.path.expanduser("~/.cargo/bin"),
        "/usr/sbin",
        "/sbin",
    ]
    return shutil.which(name, path=os.pathsep.join(places))
