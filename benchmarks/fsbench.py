"""Twelve everyday jobs of a shell, each in a fresh folder: an overlay workspace against a plain file system.

The jobs are the first twelve of the fs-bench of Cloudflare Computer (same work, own driver): the shell's
time is in every row; three rows start a program for each file and are dominated by that: their names say
"forks".
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import Options, Row, geometric_mean, interleave, median, scaled
from benchmarks.work import fresh, shell, store

ZEROS = "dd if=/dev/zero of=big bs=1M count=64 status=none"
CREATE = "for ((i = 1; i <= 1000; i++)); do echo $i >f$i; done"
TREE = (
    "for a in {1..10}; do for b in {1..10}; do mkdir -p $a/$b; "
    "for c in {1..10}; do touch $a/$b/$c; done; done; done"
)


@dataclass(frozen=True)
class Job:
    """What is timed, what is prepared before, and whether it starts a program for each file."""

    name: str
    work: str
    before: str = ""
    forks: bool = False


JOBS = (
    Job("create 1000 files", CREATE),
    Job("stat 1000 files (forks)", f"{CREATE}; for ((i = 1; i <= 1000; i++)); do stat f$i; done", forks=True),
    Job("rm 1000 files", f"{CREATE}; rm f*"),
    Job("mkdir tree 10x10x10 (forks)", TREE, forks=True),
    Job("find tree (forks)", f"{TREE}; find . -type f | wc -l", forks=True),
    Job("write 64 MiB", ZEROS),
    Job("copy 64 MiB", f"{ZEROS}; cp big big2"),
    Job("read 64 MiB", f"{ZEROS}; cat big >/dev/null"),
    Job("pure read 64 MiB", "cat big >/dev/null", before=ZEROS),
    Job("pure copy 64 MiB", "cp big big2", before=ZEROS),
    Job("overwrite 64 MiB", f"{ZEROS} conv=notrunc", before=ZEROS),
    Job(
        "git init + commit 100 files",
        "git init -q . && for ((i = 1; i <= 100; i++)); do echo $i >f$i; done && git add . && "
        "git -c user.name=b -c user.email=b@localhost -c commit.gpgsign=false commit -q -m all",
    ),
)


def run_job(job: Job, place: Path) -> float:
    """Seconds of one job in a fresh folder below `place`."""
    folder = place / "job"
    folder.mkdir()
    try:
        if job.before:
            shell(job.before, folder)
        return shell(job.work, folder)
    finally:
        shutil.rmtree(folder)


def compare(options: Options, scratch: str, base: Path, base_name: str, total_bar: float) -> list[Row]:
    """All jobs in an overlay workspace with this scratch, and in a plain folder."""
    rows: list[Row] = []
    ratios: dict[Job, float] = {}
    medians = {"atoll": 0.0, base_name: 0.0}
    base.mkdir()
    with store(options) as made:
        empty = fresh(options, "empty")
        empty.mkdir()
        made.import_folder(empty)
        workspace = made.fork("main", "bench").mount(driver="overlay", scratch=scratch)
        for job in JOBS:
            targets = {
                "atoll": lambda job=job: run_job(job, workspace.path),
                base_name: lambda job=job: run_job(job, base),
            }
            samples = interleave(targets, options.runs, warm_up=1)
            ratios[job] = median(samples["atoll"]) / median(samples[base_name])
            for name in medians:
                medians[name] += median(samples[name])
            rows.append(Row(job.name, scaled(samples, 1000), "ms", ratios[job], 2, "ratio of medians"))
        workspace.umount()
    shutil.rmtree(base)
    mean = geometric_mean([ratio for job, ratio in ratios.items() if not job.forks])
    sums = {name: [value * 1000] for name, value in medians.items()}
    rows.append(
        Row("nine rows without forks", {"ratio": [mean]}, "times", mean, 1.2, "geometric mean of ratios")
    )
    total = medians["atoll"] / medians[base_name]
    rows.append(Row("sum of all twelve", sums, "ms", total, total_bar, "ratio of the sums of medians"))
    return rows


def fsbench_memory(options: Options) -> list[Row]:
    """Overlay with its upper in memory against tmpfs."""
    if options.memory is None:
        raise SystemExit("benchmarks: fsbench-memory needs the right to mount a tmpfs; run it as root.")
    return compare(options, "memory", options.memory / "base", "tmpfs", 1.06)


def fsbench_disk(options: Options) -> list[Row]:
    """Overlay with its upper on disk against the host's file system."""
    return compare(options, "disk", fresh(options, "base"), "disk", 1.2)
