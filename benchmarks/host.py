"""What a reader has to know about the machine before believing a figure."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any


def _first_line(command: list[str]) -> str | None:
    if shutil.which(command[0]) is None:
        return None
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).splitlines()[0] if done.returncode == 0 else None


def _field(path: str, name: str) -> str | None:
    for line in Path(path).read_text().splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return None


def file_system(folder: Path) -> dict[str, str]:
    """Kind and options of the file system that holds `folder`."""
    best: tuple[str, str, str] = ("", "unknown", "")
    resolved = str(folder.resolve())
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, options = line.split()[:4]
        inside = resolved == point or resolved.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best[0]):
            best = (point, kind, options)
    return {"kind": best[1], "options": best[2]}


def describe(place: Path, atoll: Path) -> dict[str, Any]:
    """Host, kernel, file system, load and versions, for the record."""
    return {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": _field("/proc/cpuinfo", "model name"),
        "cpus": os.cpu_count(),
        "memory": _field("/proc/meminfo", "MemTotal"),
        "load": os.getloadavg(),
        "file_system": file_system(place),
        "python": platform.python_version(),
        "atoll": _first_line([str(atoll), "version"]),
        "durability": "full",
        "tools": {name: _first_line([name, "--version"]) for name in ("tar", "zstd", "git", "find", "node")},
    }
