"""How a workspace reaches the kernel: `overlay`, `fuse`, `copy`, and `auto`, which takes the first that works
here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from atoll.errors import Unsupported, Usage

if TYPE_CHECKING:
    from pathlib import Path

    from atoll.drivers.base import Driver, MountOptions

__all__ = ["NAMES", "choose", "get"]

NAMES = ("overlay", "fuse", "copy")
#: In the order in which `auto` tries them. `fuse` has to be asked for until it keeps access lists.
AUTO = ("overlay", "copy")


def get(name: str) -> Driver:
    """The driver of this name."""
    if name == "overlay":
        from atoll.drivers.overlay import OverlayDriver

        return OverlayDriver()
    if name == "fuse":
        from atoll.drivers.fuse import FuseDriver

        return FuseDriver()
    if name == "copy":
        from atoll.drivers.copy import CopyDriver

        return CopyDriver()
    raise Usage(f"There is no driver '{name}'; choose auto, {', '.join(NAMES[:-1])} or {NAMES[-1]}.")


def choose(name: str, store_dir: Path, options: MountOptions) -> tuple[Driver, list[str]]:
    """The driver to use, and one sentence for each better one that does not work here."""
    if name != "auto":
        driver = get(name)
        reason = driver.unavailable(store_dir, options)
        if reason is not None:
            raise Unsupported(f"The {name} driver does not work here: {reason}")
        return driver, []
    reasons: list[str] = []
    for candidate in AUTO:
        driver = get(candidate)
        reason = driver.unavailable(store_dir, options)
        if reason is None:
            return driver, reasons
        reasons.append(f"The {candidate} driver does not work here: {reason}")
    raise Unsupported(" ".join(reasons))
