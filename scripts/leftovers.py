"""Name what a test run left behind: mounts below a folder, and processes that still use it.

    leftovers.py DIR [--seconds N]

Everything a run makes stands below DIR (its stores, temporary files and sockets), so a mount below DIR, or a
process whose environment, command line or working directory names DIR, is the run's. A history server ends by
itself a moment after its last use, so both get N seconds (10) to go. What is left is named, ended, unmounted,
and the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def mounts_below(folder: str) -> list[str]:
    """Mount points below `folder`, the innermost first."""
    points = []
    for line in Path("/proc/self/mounts").read_bytes().splitlines():
        point = os.fsdecode(line.split()[1].decode("unicode_escape").encode("latin-1"))
        if point.startswith(folder + "/"):
            points.append(point)
    return sorted(points, reverse=True)


def own_family() -> set[int]:
    """This process and its ancestors: they name the folder too, and are no leftover."""
    family, pid = set(), os.getpid()
    while pid > 1:
        family.add(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
    return family


def processes_of(folder: str) -> dict[int, str]:
    """Processes that name `folder` (environment, command line, working directory): pid to command line."""
    needle = os.fsencode(folder) + b"/"
    found = {}
    family = own_family()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in family:
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            where = os.fsencode(os.readlink(entry / "cwd")) + b"/"
            if needle in command or needle in where or needle in (entry / "environ").read_bytes():
                found[int(entry.name)] = command.replace(b"\0", b" ").decode("utf-8", "replace").strip()[:160]
        except OSError:
            continue  # it ended while we looked, or it is a kernel thread
    return found


def clean_up(folder: str, seconds: float) -> list[str]:
    """Wait for everything below `folder` to go, then end what did not; returns a line for each of those."""
    deadline = time.monotonic() + seconds
    while (mounts_below(folder) or processes_of(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    left = []
    for pid, command in processes_of(folder).items():
        left.append(f"process {pid}: {command}")
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            continue
    for point in mounts_below(folder):
        left.append(f"mount {point}")
        if subprocess.run(["umount", point], capture_output=True, check=False).returncode != 0:
            subprocess.run(["umount", "-l", point], capture_output=True, check=False)
    return left


def main() -> int:
    parser = argparse.ArgumentParser(description="Name and clean up what a run left below a folder.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0)
    args = parser.parse_args()
    left = clean_up(str(args.folder.resolve()), args.seconds)
    for line in left:
        print(f"left behind: {line}", file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
