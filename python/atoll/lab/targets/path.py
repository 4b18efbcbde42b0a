"""Any folder, on whatever file system it is."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from atoll.errors import PermissionDenied, Usage
from atoll.lab.host import mount_of
from atoll.lab.model import Barrier, Handle, Target

__all__ = ["PathTarget"]


class PathTarget(Target):
    """The work is done in a folder of its own in it."""

    kind = "path"
    title = "any folder, on whatever file system it is"
    syntax = "NAME=./FOLDER"

    _root: Path | None = None

    def start(self, scratch: Path) -> Handle:
        folder = Path(self.argument or ".").absolute()
        if not folder.is_dir():
            raise Usage(f"{folder} is not a folder; make it, or name another one as a target.")
        try:
            self._root = Path(tempfile.mkdtemp(prefix=".atoll-lab.", dir=folder))
        except OSError as error:
            raise PermissionDenied(
                f"{folder} cannot be written to ({error.strerror}); name a folder of your own as a target."
            ) from error
        return Handle(
            name=self.name,
            kind=self.kind,
            root=os.fspath(self._root),
            scratch=os.fspath(scratch),
            barrier=barrier_of(self._root),
        )

    def stop(self) -> None:
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None


def barrier_of(folder: Path) -> Barrier:
    """The barrier of whatever file system a folder is on."""
    kind = mount_of(folder).kind
    if kind in ("tmpfs", "ramfs"):
        return Barrier(kind="none", note="memory is never durable")
    if kind.startswith("fuse") or kind == "9p":
        note = "fsync of the folder reaches a FUSE server; whether it covers the files is the server's choice"
        return Barrier(kind="fsync", note=note, paths=(os.fspath(folder),))
    return Barrier(kind="syncfs", note="syncfs of the file system", paths=(os.fspath(folder),))
