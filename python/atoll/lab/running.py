"""The targets of a run: started, looked after, stopped."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from atoll.errors import AtollError
from atoll.lab import host
from atoll.lab.model import Barrier, Handle, Target, Unavailable
from atoll.lab.mounts import answers, bounded
from atoll.lab.record import TargetRecord
from atoll.lab.worker import WORK_PREFIX

__all__ = ["Running", "stop"]

_NO_BARRIER = Barrier(kind="none", note="it was not started")
_REMOVE = 'rm -rf --one-file-system -- "$1"/"$2"*'


class Running:
    """A target, and what the record says of it."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.record = TargetRecord(name=target.name, kind=target.kind, spec=target.spec, barrier=_NO_BARRIER)
        self.handle: Handle | None = None
        """None until it is started, and when it cannot be."""

    @property
    def lives(self) -> bool:
        """Whether it was started and still answered when it was last looked after."""
        return self.handle is not None and self.record.died is None

    def start(self, scratch: Path) -> None:
        """Starts it below the run's folder; one that cannot be had is unavailable, with the reason."""
        if missing := self.target.missing():
            self.record.unavailable = missing.rstrip(".")
            return
        own = Path(tempfile.mkdtemp(prefix="target-", dir=scratch))
        own.chmod(0o711)
        # Inputs are one set for all targets, on the disk.
        shared = scratch / "inputs"
        shared.mkdir(exist_ok=True)
        try:
            handle = self.target.start(own)
            if why := answers(Path(handle.root)):
                raise Unavailable(f"it came up, and then {why}")
            _check_barrier(handle.barrier)
        except (Unavailable, OSError, subprocess.SubprocessError) as error:
            self.record.unavailable = str(error).rstrip(".")
            self.stop()
            return
        self.handle = msgspec.structs.replace(handle, scratch=os.fspath(shared))
        mount = host.mount_of(Path(handle.root))
        self.record.barrier = handle.barrier
        self.record.root = handle.root
        self.record.file_system, self.record.mount_options = mount.kind, mount.options
        self.record.versions = self.target.versions()
        self.record.facts = handle.facts

    def look_after(self, failure: str) -> None:
        """After a sample that failed: whether the target still answers. One that does not is dead, and taken
        down at once, since what hangs would disturb the others."""
        assert self.handle is not None
        root = self.handle.root
        if why := answers(Path(root)):
            self.record.died = f"{why} ({failure})"
        # What a killed sample left, removed from outside: the answer was about the root only.
        elif bounded(["sh", "-c", _REMOVE, "sh", root, WORK_PREFIX], 120) is None:
            self.record.died = f"it does not let go of what a sample left ({failure})"
        if self.record.died is not None:
            self.stop()

    def stop(self) -> None:
        """Takes it down, as far as it came up."""
        try:
            self.target.stop()
        except (AtollError, OSError, subprocess.SubprocessError) as error:
            self.record.died = self.record.died or f"it could not be stopped: {error}"


def stop(running: Sequence[Running]) -> None:
    """Takes all of them down, the last one first."""
    for each in reversed(running):
        each.stop()


def _check_barrier(barrier: Barrier) -> None:
    """Raises `Unavailable` for one that proves nothing: the kernel sends no syncfs to a FUSE server."""
    for path in barrier.paths:
        kind = host.mount_of(Path(path)).kind
        if barrier.kind != "fsync" and kind.startswith("fuse"):
            raise Unavailable(
                f"its durability barrier is a syncfs of {path} ({kind}), which never reaches a FUSE server; "
                "name the file system that its data lie on, an fsync or a command"
            )
