"""`fio`: bandwidth and latency of one large file, measured by fio itself."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from atoll.lab.model import Options, Row, Scenario, Suite, Tool, Unavailable
from atoll.lab.work import Work, make_durable

__all__ = ["Fio"]

FIO = Tool("fio", "Debian's package fio")
FILE = "file"
BLOCK = 4096
#: Seconds after which a job ends, however much of its work is left.
SEQUENTIAL_LIMIT, RANDOM_LIMIT = 30, 3


@dataclass(frozen=True)
class Job:
    """One run of fio."""

    name: str
    rw: str
    """fio's word for it."""
    direct: bool = False
    cold: bool = False
    rounds: int = 1
    """How often the whole file is gone through: fio counts in milliseconds, so a job must not be short."""

    @property
    def writes(self) -> bool:
        return self.rw.endswith("write")

    @property
    def random(self) -> bool:
        return self.rw.startswith("rand")

    def row(self) -> Row:
        """Its row: bandwidth of a sequential job, operations per second of a random one."""
        return Row(
            self.name,
            unit="IOPS" if self.random else "MB/s",
            better="higher",
            durable=self.writes,
            group="direct" if self.direct else "buffered",
            cache="new" if self.rw == "write" else "cold" if self.cold else "warm",
        )


JOBS = (
    Job("sequential write, buffered", "write"),
    Job("sequential write, O_DIRECT", "write", direct=True),
    Job("sequential read, buffered, warm", "read", rounds=4),
    Job("sequential read, buffered, cold", "read", cold=True),
    Job("sequential read, O_DIRECT", "read", direct=True),
    Job("random write, buffered", "randwrite"),
    Job("random write, O_DIRECT", "randwrite", direct=True),
    Job("random read, buffered, warm", "randread", rounds=2),
    Job("random read, O_DIRECT", "randread", direct=True),
)


class Fio(Suite):
    """Nine jobs of real fio, each on one file with one operation at a time."""

    name = "fio"
    title = "real fio: sequential and random, buffered and O_DIRECT, read and write"
    about = (
        "fio with the engine psync, one operation at a time, on a file of 512 MiB: sequential jobs in blocks "
        "of 1 MiB (bandwidth), random ones of 4 KiB (operations per second). A sequential write makes a new "
        "file; all others work on a file of random bytes that is there and durable. The figures are fio's "
        "own, so the start of its process is not in them. The durable clock adds the time of the target's "
        "barrier after fio has ended. A job ends when it has gone through the file (warm reads: several "
        "times), or after 30 seconds (sequential) or 3 (random). Beside each figure stand the percentiles of "
        "the time of one operation. Afterwards the file is compared with what it held before: each block "
        "that fio says it wrote has to have changed, and no other. O_DIRECT passes by the cache of the "
        "kernel, not by one that a target has itself. One operation at a time says nothing about deep queues."
    )

    def prepare(self, options: Options, scratch: Path) -> None:
        own = scratch / "fio"
        own.mkdir(exist_ok=True)
        with (own / FILE).open("wb") as file:
            for _ in range(size(options) >> 20):
                file.write(os.urandom(1 << 20))

    def scenarios(self, options: Options) -> Sequence[Scenario]:
        return [_scenario(job, size(options)) for job in JOBS]


def size(options: Options) -> int:
    """Bytes of the file."""
    return options.count(512, 4) << 20


def _scenario(job: Job, bytes_: int) -> Scenario:
    return Scenario(
        job.name,
        (job.row(),),
        lambda work: _run(work, job, bytes_),
        tools=(FIO,),
        bytes=bytes_,
        files=2,
        # Each sample brings the caches to the state that it needs; fio's own start is not in the figures.
        warm_ups=0,
    )


def _run(work: Work, job: Job, bytes_: int) -> None:
    path, original = work.folder / FILE, work.scratch / "fio" / FILE
    if job.direct:
        _needs_direct(work.folder / "probe")
    if job.rw != "write":
        shutil.copyfile(original, path)
    if job.cold:
        work.cold(path)
    else:
        make_durable(work.handle.barrier)
    work.begin(job.name)
    taken = _fio(work, job, path, bytes_)
    durable = None
    began = time.perf_counter()
    if job.writes and work.handle.barrier.kind != "none":
        make_durable(work.handle.barrier)
        durable = time.perf_counter() - began
    if job.rw == "write":
        work.check(taken.bytes == bytes_, f"fio wrote {taken.bytes} bytes instead of {bytes_} in time")
        check_whole(work, path, bytes_)
    else:
        written = taken.bytes // BLOCK if job.writes else 0
        check_changed(work, path, original, written)
    amount = taken.operations if job.random else taken.bytes / 1e6
    work.measure(
        job.name,
        amount / taken.seconds,
        durable=None if durable is None else amount / (taken.seconds + durable),
        details=taken.latency,
    )


@dataclass(frozen=True)
class Taken:
    """What fio says about a job."""

    bytes: int
    operations: int
    seconds: float
    latency: dict[str, float]
    """Of one operation, in microseconds."""


def _fio(work: Work, job: Job, path: Path, bytes_: int) -> Taken:
    with tempfile.TemporaryDirectory(dir=work.scratch) as folder:
        out = Path(folder) / "out.json"
        work.run(
            (
                "fio",
                "--name=job",
                # fio takes a colon for the end of a name, unless it is told otherwise.
                "--filename=" + os.fspath(path).replace(":", "\\:"),
                f"--rw={job.rw}",
                f"--bs={BLOCK if job.random else 1 << 20}",
                f"--size={bytes_}",
                f"--io_size={bytes_ * job.rounds}",
                f"--runtime={RANDOM_LIMIT if job.random else SEQUENTIAL_LIMIT}",
                f"--direct={int(job.direct)}",
                f"--randseed={work.options.seed}",
                "--ioengine=psync",
                "--iodepth=1",
                "--thread",
                # What is cached was decided before.
                "--invalidate=0",
                "--fallocate=none",
                "--output-format=json",
                f"--output={out}",
            )
        )
        told: dict[str, Any] = msgspec.json.decode(out.read_bytes())
    found = told["jobs"][0]
    work.check(found["error"] == 0, f"fio reports the error {found['error']}")
    side = found["write" if job.writes else "read"]
    times = side["clat_ns"]
    latency = {f"p{share} us": times["percentile"][f"{share}.000000"] / 1e3 for share in (50, 90, 99)}
    return Taken(
        bytes=side["io_bytes"],
        operations=side["total_ios"],
        seconds=max(side["runtime"], 1) / 1e3,
        latency={**latency, "mean us": times["mean"] / 1e3, "max us": times["max"] / 1e3},
    )


def _needs_direct(probe: Path) -> None:
    try:
        os.close(os.open(probe, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600))
    except OSError as error:
        raise Unavailable(f"the file system refuses O_DIRECT ({error.strerror})") from error
    finally:
        probe.unlink(missing_ok=True)


def check_whole(work: Work, path: Path, bytes_: int) -> None:
    """The file has its size, and no block of zeros: fio writes none. Raises `CheckFailed`."""
    found = path.stat().st_size
    work.check(found == bytes_, f"the file has {found} bytes instead of {bytes_}")
    nothing = bytes(BLOCK)
    with path.open("rb") as file:
        for number in range(bytes_ // BLOCK):
            work.check(file.read(BLOCK) != nothing, f"block {number} was never written")


def check_changed(work: Work, path: Path, original: Path, blocks: int) -> None:
    """So many blocks differ from the original, and the size does not. Raises `CheckFailed`."""
    here, there = path.stat().st_size, original.stat().st_size
    work.check(here == there, f"the file has {here} bytes instead of {there}")
    changed = 0
    with path.open("rb") as one, original.open("rb") as other:
        while (ours := one.read(1 << 20)) and (theirs := other.read(1 << 20)):
            if ours != theirs:
                parts = range(0, len(ours), BLOCK)
                changed += sum(ours[at : at + BLOCK] != theirs[at : at + BLOCK] for at in parts)
    work.check(changed == blocks, f"{changed} blocks have changed, {blocks} were written")
