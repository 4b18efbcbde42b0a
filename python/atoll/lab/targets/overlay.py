"""Plain kernel overlayfs: what an overlay costs with no history below it."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from atoll.lab.host import may_mount
from atoll.lab.model import Barrier, Handle, Target
from atoll.lab.mounts import mount, mount_tmpfs
from atoll.lab.targets.path import barrier_of
from atoll.lab.targets.tmpfs import IN_MEMORY

__all__ = ["SCRATCH_KEY", "OverlayTarget", "base_folder"]

SCRATCH_KEY = "disk (default), or memory: a tmpfs of the lab's own"


class OverlayTarget(Target):
    """Lower: an empty folder; upper and work: on the scratch disk or in memory; default mount options."""

    kind = "overlay"
    title = "plain kernel overlayfs over an empty folder"
    keys: ClassVar[Mapping[str, str]] = {"scratch": SCRATCH_KEY}

    def check(self) -> None:
        self._where = self.choice("scratch", "disk", "memory")

    def missing(self) -> str | None:
        return None if may_mount() else "mounting an overlay needs root"

    def start(self, scratch: Path) -> Handle:
        base = base_folder(self.cleanup, scratch, self._where)
        parts = [base / name for name in ("lower", "upper", "work")]
        for part in parts:
            part.mkdir()
        root = scratch / "mount"
        lower, upper, work = parts
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        mount(self.cleanup, root, "-t", "overlay", "atoll-lab", "-o", options)
        return Handle(
            name=self.name,
            kind=self.kind,
            root=os.fspath(root),
            scratch=os.fspath(scratch),
            barrier=_barrier(base, root),
        )

    def versions(self) -> dict[str, str]:
        return {"linux": platform.release()}


def base_folder(cleanup: contextlib.ExitStack, scratch: Path, where: str) -> Path:
    """An empty folder for a target's own files: on the scratch disk, or on a tmpfs that `cleanup` takes
    down."""
    base = scratch / "base"
    if where == "memory":
        mount_tmpfs(cleanup, base)
    else:
        base.mkdir()
    return base


def _barrier(base: Path, root: Path) -> Barrier:
    below = barrier_of(base)
    if below.kind == "none":
        return IN_MEMORY
    note = "syncfs of the overlay: the kernel hands it on to the file system of the upper folder"
    return Barrier(kind="syncfs", note=note, paths=(os.fspath(root),)) if below.kind == "syncfs" else below
