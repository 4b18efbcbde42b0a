"""The `fuse` driver: a read-write FUSE mount that a process of atoll's own serves.

It needs no mount right (`fusermount3` mounts for an ordinary user). Every change is in a journal
(`STORE/workspaces/ID/live`, or in memory) before it is answered, so the death of the server loses nothing:
its supervisor starts another, which reads the journal and goes on. A commit is of one moment, and nobody
waits for it.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from atoll import _native, helpers
from atoll.drivers.base import Capture, MountOptions, Note, Place, Progress
from atoll.drivers.scratch import content_gone, end_scratch, in_memory, parse_scratch, start_scratch

__all__ = ["FuseDriver"]


class FuseDriver:
    """See the module."""

    name = "fuse"

    def unavailable(self, store_dir: Path, options: MountOptions) -> str | None:
        memory, _ = parse_scratch(options.scratch)
        if not os.access("/dev/fuse", os.R_OK | os.W_OK):
            return (
                "/dev/fuse is missing or closed to this user; in a container add '--device /dev/fuse', else"
                " `atoll doctor` says what mends it."
            )
        if options.fsync != "full":
            return "its fsync is always real; leave --fsync out, or use --driver overlay."
        if memory and os.geteuid() != 0:
            return "only root may mount a scratch in memory; leave --scratch out."
        return None

    def _folder(self, place: Place) -> Path:
        """The folder of the journal and the data."""
        return place.folder / ("scratch" if in_memory(place) else "") / "live"

    def _target(self, place: Place) -> Path | None:
        return place.mountpoint if self.is_mounted(place) else None

    def is_mounted(self, place: Place) -> bool:
        return place.record["mountpoint"] is not None and _native.live_mounted(place.mountpoint)

    def is_cut_off(self, place: Place) -> bool:
        try:
            os.statvfs(place.mountpoint)
        except OSError as error:
            # The second one while the last of the processes is still dying.
            return error.errno in (errno.ENOTCONN, errno.ECONNABORTED)
        return False

    def has_content(self, place: Place) -> bool:
        return self._folder(place).is_dir()

    def recover(self, place: Place, *, note: Note) -> None:
        """The next server reads the journal."""

    def mount(self, place: Place, options: MountOptions, *, note: Note, progress: Progress | None) -> None:
        memory, size = parse_scratch(options.scratch)
        if memory:
            start_scratch(place, size)
        folder = self._folder(place)
        folder.mkdir(exist_ok=True, mode=0o700)
        _native.live_mount(
            place.store,
            helpers.command(),
            place.folder,
            folder,
            place.mountpoint,
            place.record["base"],
            not memory,
        )
        place.settings["present"] = True

    def _content(self, place: Place) -> Path:
        folder = self._folder(place)
        if not folder.is_dir():
            raise content_gone(place)
        return folder

    def commit(self, place: Place, request: _native.RequestDict, capture: Capture) -> _native.CommittedDict:
        return _native.live_commit(
            place.store,
            request,
            place.folder,
            self._content(place),
            self._target(place),
            place.record["head"],
            progress=capture.progress,
        )

    def changes(self, place: Place, capture: Capture) -> list[_native.ChangeDict]:
        return _native.live_changes(
            place.store,
            place.folder,
            self._content(place),
            self._target(place),
            place.record["head"],
            progress=capture.progress,
        )

    def unmount(self, place: Place, *, note: Note) -> int:
        folder = self._folder(place)
        if self.is_mounted(place):
            _native.live_umount(place.folder, place.mountpoint, self.is_cut_off(place))
        place.settings["present"] = False
        if folder.is_dir():
            left = _native.live_left(place.store, place.folder, folder, place.record["head"])
            if left:
                return left
        self.discard(place)
        return 0

    def discard(self, place: Place) -> None:
        # The caller removes the record before the folder: a crash between leaves a folder that nothing names.
        end_scratch(place)
