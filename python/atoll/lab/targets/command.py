"""Any program that mounts something, as a file describes it."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

import msgspec

from atoll.errors import Usage
from atoll.lab.host import find_program
from atoll.lab.model import Barrier, Handle, Target
from atoll.lab.mounts import bounded, is_mounted
from atoll.lab.servers import Server
from atoll.lab.targets.path import barrier_of

__all__ = ["CommandTarget", "Description"]


class BarrierDescription(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[barrier]`: see `Barrier`."""

    kind: Literal["syncfs", "fsync", "command", "none"]
    note: str
    paths: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


class Description(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file. `{path}` and `{scratch}` in its words stand for the mount point and for an empty folder on
    the disk that is removed at the end."""

    start: tuple[str, ...]
    """The program; it may stay in the foreground or leave the work to a child."""
    path: str = "{scratch}/mount"
    """The folder that is measured; made when it is not there."""
    ready: Literal["mount"] | tuple[str, ...] = "mount"
    """"mount": something is mounted at `path`; or a command that succeeds."""
    stop: tuple[str, ...] = ()
    """A program that ends it; without one `path` is unmounted and the process gets SIGTERM."""
    barrier: BarrierDescription | None = None
    cwd: str | None = None
    env: dict[str, str] = {}
    timeout: float = 60.0
    """Seconds until it has to be ready, and until it has to have stopped."""
    version: tuple[str, ...] = ()
    """A command whose first line is its version."""


class CommandTarget(Target):
    """Measures what the lab does not know. For a daemon that mounts its file system through FUSE and keeps
    its data in a database on the disk:

        start = ["mydaemon", "--foreground", "--data", "{scratch}/data.db", "{path}"]
        ready = "mount"
        version = ["mydaemon", "--version"]

        [barrier]
        kind = "command"
        command = ["mydaemon", "flush", "{path}"]
        paths = ["{scratch}"]
        note = "its own flush, then syncfs of the disk that its database lies on"

    Without `[barrier]` a FUSE mount gets an fsync of its root folder, any other one a syncfs.
    """

    kind = "command"
    title = "any program that mounts something, as a file describes it"
    syntax = "NAME=command:FILE.toml"
    keys: ClassVar[Mapping[str, str]] = {}

    def check(self) -> None:
        self._description = read(Path(self.argument)) if self.argument else None

    def missing(self) -> str | None:
        if self._description is None:
            return "it needs a file that describes the program; docs/LAB.md has an example"
        program = self._description.start[0]
        if "{" in program or find_program(program):
            return None
        return f"{program} is missing; install it, or mend `start` in {self.argument}"

    def start(self, scratch: Path) -> Handle:
        described = self._description
        if described is None:
            raise Usage(f"Name the file that describes the program, as {self.syntax}.")
        words = {"scratch": os.fspath(scratch)}
        # As the kernel will name it.
        root = Path(described.path.format_map(words)).resolve()
        words["path"] = os.fspath(root)
        root.mkdir(parents=True, exist_ok=True)
        server = Server(
            described.start[0],
            _filled(described.start, words),
            scratch / "log",
            cwd=Path(described.cwd.format_map(words)) if described.cwd else None,
            env={name: value.format_map(words) for name, value in described.env.items()},
        )
        server.serves(self.cleanup, root)
        if described.stop:
            self.cleanup.callback(bounded, _filled(described.stop, words), described.timeout)
        check = described.ready
        server.wait_until(
            lambda: is_mounted(root) if check == "mount" else _succeeds(_filled(check, words)),
            described.timeout,
            daemon=True,
        )
        return Handle(
            name=self.name,
            kind=self.kind,
            root=os.fspath(root),
            scratch=os.fspath(scratch),
            barrier=_barrier(described.barrier, root, words),
            servers=(server.pid,),
        )

    def versions(self) -> dict[str, str]:
        described = self._description
        if described is None or not described.version:
            return {}
        done = bounded(described.version, 20)
        said = (done.stdout or done.stderr).strip().splitlines() if done else []
        return {described.start[0]: said[0]} if said else {}


def read(file: Path) -> Description:
    """The description in a file. Raises `Usage`."""
    try:
        described = msgspec.convert(tomllib.loads(file.read_text()), Description)
    except OSError as error:
        raise Usage(f"{file}: {error.strerror}; name a file that describes a target.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise Usage(f"{file} describes no target: {error}.") from error
    if not described.start:
        raise Usage(f"{file} describes no target: `start` is empty.")
    used = [*described.start, *described.stop, described.path, *described.env.values(), described.cwd or ""]
    used += described.ready if described.ready != "mount" else ()
    if described.barrier:
        used += [*described.barrier.paths, *described.barrier.command]
        if described.barrier.kind == "command" and not described.barrier.command:
            raise Usage(f"{file} describes no target: a barrier of the kind command needs `command`.")
    for word in used:
        try:
            word.format_map({"path": "", "scratch": ""})
        except (KeyError, ValueError, IndexError) as error:
            raise Usage(
                f"{file} describes no target: '{word}' has braces that are neither {{path}} nor {{scratch}}; "
                "double those that are meant."
            ) from error
    return described


def _filled(command: tuple[str, ...], words: dict[str, str]) -> tuple[str, ...]:
    return tuple(word.format_map(words) for word in command)


def _succeeds(command: tuple[str, ...]) -> bool:
    done = bounded(command, 10)
    return done is not None and done.returncode == 0


def _barrier(described: BarrierDescription | None, root: Path, words: dict[str, str]) -> Barrier:
    if described is None:
        return barrier_of(root)
    return Barrier(
        kind=described.kind,
        note=described.note,
        paths=_filled(described.paths, words)
        or ((os.fspath(root),) if described.kind in ("syncfs", "fsync") else ()),
        command=_filled(described.command, words),
    )
