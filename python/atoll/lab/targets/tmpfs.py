"""A tmpfs of the lab's own: the floor of what a file system of the kernel costs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from atoll.lab.host import may_mount
from atoll.lab.model import Barrier, Handle, Target, Unavailable

__all__ = ["TmpfsTarget"]


class TmpfsTarget(Target):
    """Mounted below the scratch folder."""

    kind = "tmpfs"
    title = "memory, through the kernel's own file system"

    _root: Path | None = None

    def missing(self) -> str | None:
        return None if may_mount() else "mounting a tmpfs needs root; give /dev/shm as a folder instead"

    def start(self, scratch: Path) -> Handle:
        root = scratch / "tmpfs"
        root.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "atoll-lab", os.fspath(root)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise Unavailable(f"a tmpfs cannot be mounted ({done.stderr.strip()})")
        self._root = root
        return Handle(
            name=self.name,
            kind=self.kind,
            root=os.fspath(root),
            scratch=os.fspath(scratch),
            barrier=Barrier(kind="none", note="memory is never durable"),
        )

    def stop(self) -> None:
        if self._root is not None:
            subprocess.run(["umount", os.fspath(self._root)], check=False)
            self._root = None
