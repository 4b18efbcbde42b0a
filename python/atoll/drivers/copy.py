"""The `copy` driver: a plain folder, captured by comparing stat data as git's index does.

It needs no right and no FUSE. Nothing in the folder is shared with the store.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from atoll import _native
from atoll.drivers.base import Capture, MountOptions, Note, Place, Progress
from atoll.errors import Busy, Changed, NotFound
from atoll.machine import same_boot
from atoll.processes import users_of

__all__ = ["CopyDriver"]

#: Above this, a copy that nobody asked for is announced.
ANNOUNCE_BYTES = 200 * 1000 * 1000


class CopyDriver:
    """See the module."""

    name = "copy"

    def unavailable(self, store_dir: Path, options: MountOptions) -> str | None:
        if options.scratch != "disk":
            return "it has no scratch in memory; leave --scratch out, or use --driver overlay."
        return None

    def _index(self, place: Place) -> Path:
        return place.folder / "index"

    def is_mounted(self, place: Place) -> bool:
        # After the machine went down it is to be mounted again: the disk may not have all of it.
        here = bool(place.settings.get("present")) and same_boot(place.settings)
        return here and place.mountpoint.is_dir()

    def is_cut_off(self, place: Place) -> bool:
        return False

    def has_content(self, place: Place) -> bool:
        return bool(place.settings.get("written")) and place.mountpoint.is_dir()

    def _aside(self, place: Place) -> Path:
        folder = place.mountpoint
        return folder.with_name(f".{folder.name}.atoll-{place.record['id'][:8]}")

    def recover(self, place: Place, *, note: Note) -> None:
        aside, folder = self._aside(place), place.mountpoint
        if place.settings.get("written") and aside.is_dir():
            # An unmount was cut off. Half-removed or whole: the capture will tell what is missing.
            if folder.is_dir():
                folder.rmdir()
            os.rename(aside, folder)

    def mount(self, place: Place, options: MountOptions, *, note: Note, progress: Progress | None) -> None:
        if not self.has_content(place):
            summary = place.store.commit(place.record["head"])["summary"]
            if summary["bytes"] > ANNOUNCE_BYTES and not options.chosen:
                note(
                    f"Copying {summary['files']:,} files, {summary['bytes'] / 1e6:,.0f} MB; the overlay"
                    " driver would copy none (`atoll doctor` says what it needs; --driver copy silences"
                    " this)."
                )
            report = _native.copy_materialise(
                place.store, place.record["head"], place.mountpoint, self._index(place), progress=progress
            )
            if report["lost"]:
                note(
                    f"{len(report['lost'])} files could not get all of their owners, devices or attributes"
                    " here; the store keeps them."
                )
            place.settings["written"] = True
            place.settings["written_ns"] = time.time_ns()
        place.settings["present"] = True

    def commit(self, place: Place, request: _native.RequestDict, capture: Capture) -> _native.CommittedDict:
        folder, index, head = self._there(place), self._index(place), place.record["head"]

        def once() -> _native.CommittedDict:
            return _native.copy_commit(
                place.store,
                request,
                folder,
                index,
                head,
                trust_index=capture.trust_index,
                progress=capture.progress,
            )

        try:
            return once()
        except Changed:
            if capture.freeze is None:
                raise
        # Somebody never keeps still: what atoll itself runs here is held for as long as a reading takes.
        capture.freeze(True)
        try:
            return once()
        finally:
            capture.freeze(False)

    def changes(self, place: Place, capture: Capture) -> list[_native.ChangeDict]:
        folder = self._there(place)
        return _native.copy_changes(
            place.store,
            folder,
            self._index(place),
            place.record["head"],
            trust_index=capture.trust_index,
            progress=capture.progress,
        )

    def _there(self, place: Place) -> Path:
        if not place.mountpoint.is_dir():
            raise NotFound(
                f"The folder of workspace '{place.record['branch']}', {place.mountpoint}, is gone, and its"
                " uncommitted changes with it; `atoll umount` forgets it and `atoll mount` starts again from"
                " the last commit."
            )
        return place.mountpoint

    def unmount(self, place: Place, *, note: Note) -> int:
        folder = place.mountpoint
        place.settings["present"] = False
        if not folder.is_dir():
            place.settings["written"] = False
            return 0
        users = users_of(folder)
        if users:
            place.settings["present"] = True
            raise Busy(
                f"{folder} is in use by {', '.join(str(user) for user in users[:5])}; end it, or leave the"
                " folder, and try again.",
                details={"processes": [{"pid": user.pid, "name": user.name} for user in users]},
            )
        # Out of everybody's sight first: what is compared below is then what is removed.
        aside = self._aside(place)
        os.rename(folder, aside)
        try:
            changes = _native.copy_changes(place.store, aside, self._index(place), place.record["head"])
        except BaseException:
            os.rename(aside, folder)
            raise
        if changes:
            os.rename(aside, folder)
            # What is kept is kept for good, as an overlay's unmount does it.
            _native.copy_sync(folder)
            return len(changes)
        place.settings["written"] = False
        _remove_tree(aside)
        if not place.settings.get("made_mountpoint"):
            folder.mkdir()
        return 0

    def discard(self, place: Place) -> None:
        if self.has_content(place):
            _remove_tree(place.mountpoint)
            place.settings["written"] = False


def _remove_tree(folder: Path) -> None:
    def make_writable_and_retry(function: object, path: str, error: object) -> None:
        # An ordinary user cannot empty a read-only folder of his own before making it writable.
        parent = os.path.dirname(path)
        os.chmod(parent, 0o700)
        if os.path.isdir(path) and not os.path.islink(path):
            os.chmod(path, 0o700)
            shutil.rmtree(path)
        else:
            os.unlink(path)

    shutil.rmtree(folder, onerror=make_writable_and_retry)
