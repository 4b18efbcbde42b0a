"""Which processes use a folder: those with a working directory, root, open file or mapping in it."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["User", "users_of"]


@dataclass(frozen=True, slots=True)
class User:
    """A process in a folder."""

    pid: int
    name: str

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid})"


def _name(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip() or "?"
    except OSError:
        return "?"


def _inside(link: str, folder: str) -> bool:
    try:
        target = os.readlink(link)
    except OSError:
        return False
    return target == folder or target.startswith(folder + "/")


def users_of(folder: str | os.PathLike[str], limit: int = 20) -> list[User]:
    """The processes that are in `folder`, as far as this user may see; empty where there is no `/proc`."""
    top = os.path.realpath(folder)
    found: list[User] = []
    try:
        pids = sorted((name for name in os.listdir("/proc") if name.isdigit()), key=int)
    except OSError:
        return found
    for pid in pids:
        if len(found) >= limit:
            break
        links = [f"/proc/{pid}/cwd", f"/proc/{pid}/root"]
        with contextlib.suppress(OSError):
            links += [f"/proc/{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd")]
        if any(_inside(link, top) for link in links) or _maps(pid, top):
            found.append(User(int(pid), _name(pid)))
    return found


def _maps(pid: str, top: str) -> bool:
    needle = os.fsencode(top) + b"/"
    try:
        with open(f"/proc/{pid}/maps", "rb") as maps:
            return any(needle in line for line in maps)
    except OSError:
        return False
