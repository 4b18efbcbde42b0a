"""A FUSE server that hands every request on to a folder: what the way through user space costs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from atoll.lab.host import find_program, version_of
from atoll.lab.model import Barrier, Handle, Target, Unavailable
from atoll.lab.mounts import is_mounted
from atoll.lab.servers import Server
from atoll.lab.targets.overlay import SCRATCH_KEY, base_folder
from atoll.lab.targets.path import barrier_of
from atoll.lab.targets.tmpfs import IN_MEMORY

__all__ = ["PassthroughTarget", "lacks_fuse"]

_BRINGS = {
    "bindfs": "Debian's package bindfs",
    "passthrough_ll": "compile it from the examples of Debian's package libfuse3-dev and put it on PATH",
    "passthrough_hp": "build it from the sources of libfuse and put it on PATH",
}
#: What `bindfs` rounds requests of O_DIRECT to, in bytes: no block device asks for more than a page.
_ALIGNMENT = 4096


def _command(program: str, source: Path, root: Path, *, forward: bool) -> list[str]:
    """In the foreground; passthrough_hp may leave the work to a child. `forward`: O_DIRECT passes bindfs."""
    match os.path.basename(program):
        case "passthrough_ll":
            return [program, "-f", "-o", f"source={source}", os.fspath(root)]
        case "passthrough_hp":
            return [program, os.fspath(source), os.fspath(root)]
        case _:
            options = [f"--forward-odirect={_ALIGNMENT}"] if forward else []
            return [program, "-f", *options, os.fspath(source), os.fspath(root)]


class PassthroughTarget(Target):
    """Over a folder on the scratch disk or in memory."""

    kind = "passthrough"
    title = "a FUSE server that only passes on"
    arguments = ("bindfs", "passthrough_ll", "passthrough_hp")
    keys: ClassVar[Mapping[str, str]] = {
        "scratch": SCRATCH_KEY,
        "odirect": "forward (default), or clear: bindfs reads from the page cache what asks for the disk",
    }

    def check(self) -> None:
        self._where = self.choice("scratch", "disk", "memory")
        self._odirect = self.choice("odirect", "forward", "clear")

    def missing(self) -> str | None:
        if find_program(self.argument) is None:
            return f"{self.argument} is missing: {_BRINGS[self.argument]}"
        return lacks_fuse()

    def start(self, scratch: Path) -> Handle:
        program = find_program(self.argument)
        if program is None:
            raise Unavailable(str(self.missing()))
        base = base_folder(self.cleanup, scratch, self._where)
        source, root = base / "source", scratch / "mount"
        for folder in (source, root):
            folder.mkdir()
        command = _command(program, source, root, forward=self._odirect == "forward")
        server = Server(self.argument, command, scratch / "log")
        server.serves(self.cleanup, root)
        server.wait_until(lambda: is_mounted(root), 60, daemon=True)
        return Handle(
            name=self.name,
            kind=f"{self.kind}:{self.argument}",
            root=os.fspath(root),
            scratch=os.fspath(scratch),
            barrier=_barrier(source),
            facts={"odirect": self._odirect} if self.argument == "bindfs" else {},
            servers=(server.pid,),
        )

    def versions(self) -> dict[str, str]:
        found = version_of(find_program(self.argument) or self.argument, "--version")
        return {self.argument: found} if found else {}


def _barrier(source: Path) -> Barrier:
    below = barrier_of(source)
    if below.kind == "none":
        return IN_MEMORY
    note = (
        "syncfs of the file system below: the server writes through and keeps nothing, so all that was "
        "written is there"
    )
    return Barrier(kind=below.kind, note=note, paths=below.paths)


def lacks_fuse() -> str | None:
    """Why no FUSE server can mount here; None when one can."""
    if os.access("/dev/fuse", os.R_OK | os.W_OK):
        return None
    return "/dev/fuse is missing or closed to this user; `atoll doctor` says what mends it"
