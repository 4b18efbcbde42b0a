"""`python -m atoll.lab.worker`: takes one sample. A job comes on stdin, events go to stdout as lines of JSON.

A process of its own for each sample: a target that hangs can be left behind, and no sample warms up
another's heap.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import BinaryIO

import msgspec

from atoll.lab import registry
from atoll.lab.model import Job, Unavailable
from atoll.lab.work import Work, make_durable

__all__ = ["WORK_PREFIX", "main"]

#: How the folders of samples are called on a target.
WORK_PREFIX = "lab-work."


def main() -> int:
    """Reads the job, works, reports."""
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    # Events have a descriptor of their own: what a command of the work prints must not end up between them.
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)

    def emit(kind: str, fields: dict[str, object]) -> None:
        out.write(msgspec.json.encode({"event": kind, **fields}) + b"\n")

    if not job.suite:
        return _overhead(job, out)
    suite = registry.suite(job.suite)
    scenario = next(each for each in suite.scenarios(job.options) if each.name == job.scenario)
    folder = Path(tempfile.mkdtemp(prefix=WORK_PREFIX, dir=job.handle.root))
    work = Work(job.handle, scenario, job.options, job.rep, folder, emit)
    try:
        os.chdir(folder)
        scenario.run(work)
        emit("done", {})
    except Unavailable as error:
        emit("failed", {"message": str(error), "unavailable": True})
    except OSError as error:
        where = f" ({os.fsdecode(error.filename)})" if error.filename else ""
        emit("failed", {"message": f"{error.strerror or error}{where}", "unavailable": False})
    except Exception as error:
        said = str(error) or type(error).__name__
        emit("failed", {"message": said, "unavailable": False})
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _overhead(job: Job, out: BinaryIO) -> int:
    """Both clocks around nothing: what the lab itself adds to each timed row."""
    samples = []
    for _ in range(20):
        make_durable(job.handle.barrier)
        began = time.perf_counter()
        make_durable(job.handle.barrier)
        samples.append(time.perf_counter() - began)
    out.write(msgspec.json.encode({"event": "overhead", "samples": samples}) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
