"""Any folder, on whatever file system it is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from atoll.errors import Usage
from atoll.lab.folders import made
from atoll.lab.host import mount_of
from atoll.lab.model import Barrier, Handle, Target

__all__ = ["PathTarget", "barrier_of"]


class PathTarget(Target):
    """The work is done in a folder of its own in it."""

    kind = "path"
    title = "any folder, on whatever file system it is"
    syntax = "NAME=./FOLDER"

    def folders(self) -> Sequence[Path]:
        return (Path(self.argument or ".").absolute(),)

    def start(self, scratch: Path) -> Handle:
        (folder,) = self.folders()
        if not folder.is_dir():
            raise Usage(f"{folder} is not a folder; make it, or name another one as a target.")
        root = self.cleanup.enter_context(made(folder))
        return Handle(
            name=self.name,
            kind=self.kind,
            root=os.fspath(root),
            scratch=os.fspath(scratch),
            barrier=barrier_of(root),
        )


def barrier_of(folder: Path) -> Barrier:
    """The barrier of whatever file system a folder is on."""
    kind = mount_of(folder).kind
    if kind in ("tmpfs", "ramfs"):
        return Barrier(kind="none", note="memory is never durable")
    if kind.startswith("fuse") or kind == "9p":
        note = "fsync of the folder reaches a FUSE server; whether it covers the files is the server's choice"
        return Barrier(kind="fsync", note=note, paths=(os.fspath(folder),))
    return Barrier(kind="syncfs", note="syncfs of the file system", paths=(os.fspath(folder),))
