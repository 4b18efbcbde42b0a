"""The `overlay` driver: kernel overlayfs over the store's history mount."""

from __future__ import annotations

from pathlib import Path

from atoll import _native
from atoll.drivers.base import Capture, MountOptions, Note, Place, Progress
from atoll.errors import Unsupported

__all__ = ["OverlayDriver"]


class OverlayDriver:
    """See the module."""

    name = "overlay"

    def unavailable(self, store_dir: Path, options: MountOptions) -> str | None:
        return "it is not bound yet."

    def is_mounted(self, place: Place) -> bool:
        return False

    def has_content(self, place: Place) -> bool:
        return False

    def mount(self, place: Place, options: MountOptions, *, note: Note, progress: Progress | None) -> None:
        raise Unsupported("The overlay driver is not bound yet; use --driver copy.")

    def commit(self, place: Place, request: _native.RequestDict, capture: Capture) -> _native.CommittedDict:
        raise Unsupported("The overlay driver is not bound yet; use --driver copy.")

    def changes(self, place: Place, capture: Capture) -> list[_native.ChangeDict]:
        raise Unsupported("The overlay driver is not bound yet; use --driver copy.")

    def unmount(self, place: Place, *, note: Note) -> int:
        raise Unsupported("The overlay driver is not bound yet; use --driver copy.")

    def discard(self, place: Place) -> None:
        raise Unsupported("The overlay driver is not bound yet; use --driver copy.")
