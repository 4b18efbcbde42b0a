"""atoll itself: a workspace on a fresh store with an empty history."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

import atoll
from atoll import _native, drivers, registry
from atoll.drivers.base import MountOptions
from atoll.errors import AtollError
from atoll.lab.model import Barrier, Handle, Target, Unavailable
from atoll.lab.mounts import mounts_below, unmount
from atoll.lab.servers import end_history_servers
from atoll.lab.targets.overlay import SCRATCH_KEY
from atoll.lab.targets.path import barrier_of

__all__ = ["AtollTarget", "atoll_command"]

_BRANCH = "lab"


class AtollTarget(Target):
    """The store lies in the scratch folder, whatever stores the user has; its history server ends with the
    target."""

    kind = "atoll"
    title = "a workspace of atoll on a fresh store"
    arguments = ("overlay", "fuse", "copy")
    keys: ClassVar[Mapping[str, str]] = {
        "scratch": SCRATCH_KEY,
        "fsync": "full (default), or commit: what programs fsync is durable with the next commit",
        "durability": "of the store: full (default), normal or off",
    }

    _fsync: Literal["full", "commit"]
    _durability: Literal["full", "normal", "off"]

    def check(self) -> None:
        # The driver says itself what it cannot do with these.
        self._where = self.choice("scratch", "disk", "memory")
        self._fsync = self.choice("fsync", "full", "commit")
        self._durability = self.choice("durability", "full", "normal", "off")

    def missing(self) -> str | None:
        options = MountOptions(fsync=self._fsync, scratch=self._where)
        return drivers.get(self.argument).unavailable(Path(tempfile.gettempdir()), options)

    def start(self, scratch: Path) -> Handle:
        empty = scratch / "empty"
        empty.mkdir()
        try:
            store = atoll.create(scratch / "store", profile=self._durability)
            self.cleanup.callback(_take_down, store)
            store.import_folder(empty, branch="main")
            workspace = store.fork("main", _BRANCH).mount(
                scratch / "workspace", driver=self.argument, scratch=self._where, fsync=self._fsync
            )
        except AtollError as error:
            raise Unavailable(f"a workspace cannot be made: {error}") from error
        root = os.fspath(workspace.path)
        return Handle(
            name=self.name,
            kind=f"{self.kind}:{self.argument}",
            root=root,
            scratch=os.fspath(scratch),
            barrier=self._barrier(root, store.path),
            commit=(*atoll_command(), "commit", _BRANCH, "--store", os.fspath(store.path), "-m", "lab"),
            servers=_servers(workspace),
            facts={
                "store": os.fspath(store.path),
                "branch": _BRANCH,
                "durability": self._durability,
                "fsync": self._fsync,
                "scratch": self._where,
            },
        )

    def _barrier(self, root: str, store: Path) -> Barrier:
        if self._where == "memory":
            note = "what is not committed lies in memory and is never durable; a commit makes it so"
            return Barrier(kind="none", note=note)
        below = barrier_of(store)
        if below.kind != "syncfs":
            return below
        if self.argument == "fuse":
            note = "fsync of the workspace's folder, which its server takes for all that was written to it"
            return Barrier(kind="fsync", note=note, paths=(root,))
        note = (
            "syncfs of the workspace, which the kernel hands on to the disk of the store: what was written "
            "survives a power cut, committed or not"
        )
        return Barrier(kind="syncfs", note=note, paths=(root,))

    def versions(self) -> dict[str, str]:
        return {"atoll": atoll.__version__}


def _servers(workspace: atoll.Workspace) -> tuple[int, ...]:
    """What writes pass through: nothing with `overlay` and `copy`."""
    if workspace.driver != "fuse":
        return ()
    pid = _native.live_server(workspace.folder)
    return () if pid is None else (pid,)


def atoll_command() -> tuple[str, ...]:
    """The command line of the atoll that runs this."""
    beside = os.path.join(os.path.dirname(sys.executable), "atoll")
    if os.access(beside, os.X_OK):
        return (beside,)
    return (sys.executable, "-c", "from atoll.cli import main; main()")


def _take_down(store: atoll.Store) -> None:
    try:
        for workspace in store.workspaces():
            workspace.umount()
            # What was not committed is kept for a next mount, in memory too; here there is none.
            for point in mounts_below(store.path):
                unmount(point)
            registry.forget("workspace", workspace.path)
    finally:
        # It would end by itself, but later than the folder of its store.
        end_history_servers(store.path)
        store.close()
