"""A file system of its own in an image file: ext4, xfs or btrfs on the disk that is there."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from atoll.errors import Usage
from atoll.lab.host import find_program, may_mount, mount_of, version_of
from atoll.lab.model import Barrier, Handle, Target
from atoll.lab.mounts import bounded, mount
from atoll.lab.servers import run

__all__ = ["LoopTarget"]

#: The words of each mkfs, without the image. Nothing may be left to a lazy initialisation in the background.
_MKFS = {
    "ext4": ("-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"),
    "xfs": ("-q", "-f"),
    "btrfs": ("-q", "-f"),
}
_PACKAGES = {"ext4": "e2fsprogs", "xfs": "xfsprogs", "btrfs": "btrfs-progs"}
_COMPRESSIONS = ("no", "zstd", "lzo", "zlib")


class LoopTarget(Target):
    """The image is sparse and lies in the scratch folder; the loop device goes with the mount."""

    kind = "loop"
    title = "a fresh file system in an image file on this disk"
    arguments = ("ext4", "xfs", "btrfs")
    keys: ClassVar[Mapping[str, str]] = {
        "size": "of the image, as 500M or 8G (default)",
        "compress": "btrfs: zstd, lzo or zlib, for every file that it helps",
    }

    def check(self) -> None:
        self._size = self.settings.get("size", "8G")
        if not re.fullmatch(r"[1-9]\d*[MGT]", self._size):
            raise Usage(f"'{self._size}' is no size of an image; write it as 500M or 8G.")
        self._compress = self.choice("compress", *_COMPRESSIONS)
        if self._compress != "no" and self.argument != "btrfs":
            raise Usage(f"{self.argument} cannot compress; take loop:btrfs,compress={self._compress}.")

    def missing(self) -> str | None:
        if not may_mount():
            return "mounting an image needs root"
        mkfs = f"mkfs.{self.argument}"
        return (
            None if find_program(mkfs) else f"{mkfs} is missing: Debian's package {_PACKAGES[self.argument]}"
        )

    def start(self, scratch: Path) -> Handle:
        image = scratch / "image"
        run(["truncate", "-s", self._size, os.fspath(image)])
        self.cleanup.callback(image.unlink, missing_ok=True)
        run([find_program(f"mkfs.{self.argument}") or "mkfs", *_MKFS[self.argument], os.fspath(image)])
        root = scratch / "mount"
        options = "loop" if self._compress == "no" else f"loop,compress={self._compress}"
        mount(self.cleanup, root, "-t", self.argument, "-o", options, os.fspath(image))
        direct = _pass_by_cache(root)
        note = (
            f"syncfs of the {self.argument} in the image, which flushes the loop device: the kernel carries "
            "that out as an fsync of the image, so the disk below is covered too"
        )
        return Handle(
            name=self.name,
            kind=self.kind,
            root=os.fspath(root),
            scratch=os.fspath(scratch),
            barrier=Barrier(kind="syncfs", note=note, paths=(os.fspath(root),)),
            facts={"direct_io": "yes" if direct else "no"},
        )

    def versions(self) -> dict[str, str]:
        mkfs = f"mkfs.{self.argument}"
        found = version_of(find_program(mkfs) or mkfs, "--version" if self.argument == "btrfs" else "-V")
        return {mkfs: found} if found else {}


def _pass_by_cache(root: Path) -> bool:
    """Lets the image be read and written past the page cache; False where the disk below cannot. Everything
    would be cached twice otherwise, and dirty pages of the image slow writes down to a tenth now and then."""
    device = mount_of(root).source
    if (losetup := find_program("losetup")) is None:
        return False
    done = bounded([losetup, "--direct-io=on", device], 20)
    try:
        return Path("/sys/block", os.path.basename(device), "loop/dio").read_text().strip() == "1"
    except OSError:
        return done is not None and done.returncode == 0
