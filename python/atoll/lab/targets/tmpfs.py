"""A tmpfs of the lab's own: the floor of what a file system of the kernel costs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from atoll.lab.host import may_mount
from atoll.lab.model import Barrier, Handle, Target
from atoll.lab.mounts import mount_tmpfs

__all__ = ["IN_MEMORY", "TmpfsTarget"]

IN_MEMORY = Barrier(kind="none", note="memory is never durable")


class TmpfsTarget(Target):
    """Mounted below the scratch folder."""

    kind = "tmpfs"
    title = "memory, through the kernel's own file system"
    keys: ClassVar[Mapping[str, str]] = {}

    def missing(self) -> str | None:
        return None if may_mount() else "mounting a tmpfs needs root; give /dev/shm/ as a folder instead"

    def start(self, scratch: Path) -> Handle:
        root = scratch / "tmpfs"
        mount_tmpfs(self.cleanup, root)
        return Handle(
            name=self.name,
            kind=self.kind,
            root=os.fspath(root),
            scratch=os.fspath(scratch),
            barrier=IN_MEMORY,
        )
