"""The `overlay` driver: kernel overlayfs over the store's history mount.

The lower is the folder of one commit, the workspace's base, served read-only and cached for ever; the upper
is a folder on disk (`STORE/workspaces/ID/upper`) or in memory. After a commit the lower stays, so capture is
always relative to the base; a clean unmount empties the upper, and the next mount starts at the last commit.
"""

from __future__ import annotations

import errno
import os
import secrets
import threading
from pathlib import Path

from atoll import _native, helpers
from atoll.drivers.base import Capture, MountOptions, Note, Place, Progress
from atoll.drivers.scratch import content_gone, end_scratch, in_memory, parse_scratch, start_scratch
from atoll.errors import AtollError

__all__ = ["OverlayDriver"]


class OverlayDriver:
    """See the module."""

    name = "overlay"

    def unavailable(self, store_dir: Path, options: MountOptions) -> str | None:
        memory, _ = parse_scratch(options.scratch)
        if not os.access("/dev/fuse", os.R_OK | os.W_OK):
            return (
                "/dev/fuse is missing or closed to this user, so history cannot be mounted; in a container"
                " add '--device /dev/fuse --cap-add SYS_ADMIN', else `atoll doctor` says what mends it."
            )
        return _probe("/dev/shm" if memory and os.path.isdir("/dev/shm") else os.fspath(store_dir))

    def _parts(self, place: Place) -> Path:
        """The folder that holds `upper` and `work`."""
        return place.folder / "scratch" if in_memory(place) else place.folder

    def is_mounted(self, place: Place) -> bool:
        return place.record["mountpoint"] is not None and _native.overlay_mounted(place.mountpoint)

    def is_cut_off(self, place: Place) -> bool:
        # A name that nobody has asked for yet has to be looked for below, by the history server.
        try:
            os.lstat(place.mountpoint / f".atoll-{secrets.token_hex(8)}")
        except OSError as error:
            # The second one while the last of the processes is still dying.
            return error.errno in (errno.ENOTCONN, errno.ECONNABORTED)
        return False

    def has_content(self, place: Place) -> bool:
        return (self._parts(place) / "upper").is_dir()

    def recover(self, place: Place, *, note: Note) -> None:
        parts = self._parts(place)
        if not parts.is_dir():
            return
        if _native.overlay_was_volatile(parts):
            aside = _native.overlay_set_aside(parts)
            note(
                f"'{place.record['branch']}' was mounted with --fsync=commit when the machine or its mount"
                f" went down, so what was not committed cannot be trusted; it is kept in {aside} for you to"
                " look into."
            )
        _native.overlay_recover(parts, place.record["base"])

    def mount(self, place: Place, options: MountOptions, *, note: Note, progress: Progress | None) -> None:
        memory, size = parse_scratch(options.scratch)
        parts = self._parts(place)
        if memory:
            start_scratch(place, size)
        record = place.record
        _native.overlay_mount(
            place.store,
            helpers.command(),
            record["base"],
            record["id"],
            parts,
            options.fsync,
            place.mountpoint,
        )
        place.settings["present"] = True

    def _capture(self, place: Place, capture: Capture, *, last: bool = False) -> _native.CaptureDict:
        if not self.has_content(place):
            raise content_gone(place)
        return {
            "folder": os.fspath(self._parts(place)),
            "index": os.fspath(place.folder / "index"),
            "workspace": place.record["id"],
            "base": place.record["base"],
            "head": place.record["head"],
            "mountpoint": os.fspath(place.mountpoint) if self.is_mounted(place) else None,
            "freeze": capture.freeze,
            # A store through a map leaves no trace on tmpfs: the capture that decides over deletion reads
            # all.
            "trust_index": capture.trust_index and not (last and in_memory(place)),
        }

    def commit(self, place: Place, request: _native.RequestDict, capture: Capture) -> _native.CommittedDict:
        wanted = self._capture(place, capture)
        return _native.overlay_commit(place.store, request, wanted, progress=capture.progress)

    def changes(self, place: Place, capture: Capture) -> list[_native.ChangeDict]:
        return _native.overlay_changes(place.store, self._capture(place, capture), progress=capture.progress)

    def unmount(self, place: Place, *, note: Note) -> int:
        parts = self._parts(place)
        if self.is_mounted(place):
            _native.overlay_umount(place.store, place.record["id"], parts, place.mountpoint)
        place.settings["present"] = False
        if not self.has_content(place):
            end_scratch(place)
            return 0
        left = _native.overlay_left(place.store, self._capture(place, Capture(), last=True))
        if left:
            return left
        self.discard(place)
        return 0

    def discard(self, place: Place) -> None:
        # The caller removes the record before the folder: a crash between leaves a folder that nothing names.
        end_scratch(place)


#: What the probe said of a folder.
_probed: dict[str, str | None] = {}
_probing = threading.Lock()


def _probe(folder: str) -> str | None:
    """Tried once for each folder in a process: it makes folders and a mount that nobody sees."""
    with _probing:
        if folder not in _probed:
            try:
                _probed[folder] = _native.overlay_probe(folder)
            except AtollError as error:
                _probed[folder] = error.message
        return _probed[folder]
