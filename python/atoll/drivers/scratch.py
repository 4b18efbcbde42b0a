"""Where a workspace keeps what it changes: on the store's disk, or in a tmpfs of its own."""

from __future__ import annotations

import re

from atoll import _native
from atoll.drivers.base import Place
from atoll.errors import NotFound, Usage

__all__ = ["content_gone", "end_scratch", "in_memory", "parse_scratch", "start_scratch"]

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def parse_scratch(text: str) -> tuple[bool, int | None]:
    """`disk`, `memory` or `memory:SIZE` as (in memory, bytes)."""
    if text == "disk":
        return False, None
    found = re.fullmatch(r"memory(?::(\d+)([kmgKMG]?))?", text)
    if found is None:
        raise Usage(f"'{text}' is no scratch; write disk, memory or memory:SIZE (for example memory:2G).")
    return True, None if found[1] is None else int(found[1]) * _UNITS[found[2].lower()]


def in_memory(place: Place) -> bool:
    """Whether the workspace's scratch is in memory."""
    return str(place.settings.get("scratch", "disk")) != "disk"


def content_gone(place: Place) -> NotFound:
    """The error for a workspace that has nothing to capture any more."""
    return NotFound(
        f"The changes of workspace '{place.record['branch']}' are gone (a scratch in memory ends with the"
        " machine); `atoll umount` forgets it."
    )


def start_scratch(place: Place, size: int | None) -> None:
    """Mounts the tmpfs at the workspace's `scratch`, if it is not there; at most `size` bytes."""
    folder = place.folder / "scratch"
    folder.mkdir(exist_ok=True)
    if not _native.scratch_mounted(folder):
        _native.scratch_mount(folder, size)


def end_scratch(place: Place) -> None:
    """Unmounts it; its contents are gone. One that is not there is fine."""
    folder = place.folder / "scratch"
    if folder.is_dir() and _native.scratch_mounted(folder):
        _native.scratch_umount(folder)
