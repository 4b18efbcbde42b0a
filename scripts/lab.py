"""`python -m scripts.lab`: the runs behind docs/PERFORMANCE.md, a record each, and one HTML report of them.

`make lab` does the plan "short", in under half an hour; `make lab-full` does "full", which takes hours. Each
run is one `atoll lab run`, printed as a user would write it.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ATOLL = Path(sys.executable).with_name("atoll")
#: What `scripts/setup.sh lab` builds.
TOOLS = ROOT / "target" / "tools" / "bin"

DISK = "disk=./"
TMPFS = "tmpfs"
OVERLAY = "overlay"
ATOLL_DISK = "atoll=atoll:overlay"
ATOLL_MEMORY = "atoll-memory=atoll:overlay,scratch=memory"
PASSTHROUGH = "passthrough"
JUICEFS = "juicefs"
SEAWEEDFS = "seaweedfs"
OWN: tuple[str, ...] = ()
"""Of suites that bring the ways which they compare."""
LOCAL = (DISK, TMPFS, ATOLL_DISK, ATOLL_MEMORY)
KERNEL = (DISK, TMPFS, OVERLAY, ATOLL_DISK, ATOLL_MEMORY, PASSTHROUGH)
NETWORK = (DISK, ATOLL_DISK, JUICEFS, SEAWEEDFS)


@dataclass(frozen=True)
class Run:
    """One record."""

    name: str
    suites: tuple[str, ...]
    targets: tuple[str, ...]
    reps: int = 5
    scale: float = 1.0
    more: tuple[str, ...] = ()
    reference: str | None = None
    """What docs/PERFORMANCE.md compares with; None: each suite's first target."""

    def command(self, out: Path, repo: str | None) -> list[str]:
        """The command line. `repo` is where `history` takes its commits from."""
        words = [str(ATOLL), "lab", "run", *self.suites]
        for target in self.targets:
            words += ["--target", target]
        words += ["--reps", str(self.reps), *self.more, "--out", str(out)]
        if self.scale != 1:
            words += ["--scale", str(self.scale)]
        if "history" in self.suites and repo is not None:
            words += ["--repo", repo]
        return words


FULL = (
    Run("fs-bench", ("fs-bench",), KERNEL, reps=9),
    Run("fs-bench-network", ("fs-bench",), NETWORK, reps=5, scale=0.5),
    Run("install", ("install", "clone"), (DISK, TMPFS, OVERLAY, ATOLL_DISK, ATOLL_MEMORY)),
    Run("install-network", ("install", "clone"), NETWORK, reps=4, more=("--rtt", "0.5ms")),
    Run("smallfile", ("smallfile",), KERNEL),
    # 10,000 files: network file systems take milliseconds for each.
    Run("smallfile-network", ("smallfile",), NETWORK, reps=4, scale=0.1, more=("--rtt", "0.5ms")),
    Run("mdtest", ("mdtest",), KERNEL),
    Run("fio", ("fio",), KERNEL),
    Run("calls", ("calls",), KERNEL, more=("--trace",)),
    Run("store-compare", ("store-compare",), OWN),
    Run("restart", ("restart",), OWN),
    Run("workflow", ("workflow",), OWN, reference="cp -a"),
    Run("history", ("history",), OWN, reference="git"),
    Run("conformance", ("pjdfstest", "fsx", "fsstress"), (DISK, TMPFS, OVERLAY, ATOLL_DISK, PASSTHROUGH)),
    Run("xfstests", ("xfstests",), (TMPFS, PASSTHROUGH)),
)

#: The same suites with less work and the fewest samples that allow a verdict.
SHORT = (
    Run("fs-bench", ("fs-bench",), KERNEL, reps=4, scale=0.1),
    Run("fs-bench-network", ("fs-bench",), NETWORK, reps=2, scale=0.05),
    Run("install", ("install", "clone"), (DISK, ATOLL_DISK), reps=1),
    Run("smallfile", ("smallfile",), KERNEL, reps=4, scale=0.05),
    Run("smallfile-network", ("smallfile",), NETWORK, reps=4, scale=0.01, more=("--rtt", "0.5ms")),
    Run("mdtest", ("mdtest",), KERNEL, reps=4, scale=0.05),
    Run("fio", ("fio",), KERNEL, reps=4, scale=0.1),
    Run("calls", ("calls",), KERNEL, reps=4, scale=0.1),
    Run("store-compare", ("store-compare",), OWN, reps=4, scale=0.2),
    Run("restart", ("restart",), OWN, reps=4),
    Run("workflow", ("workflow",), OWN, reps=1, scale=0.1, reference="cp -a"),
    Run("history", ("history",), OWN, more=("--snapshots", "20"), reference="git"),
    Run("conformance", ("pjdfstest", "fsx", "fsstress"), (DISK, ATOLL_DISK), scale=0.1),
    Run("xfstests", ("xfstests",), (TMPFS,), more=("--quick",)),
)

PLANS = {"short": SHORT, "full": FULL}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: every run has its record; 1: one has none. What failed in a run is in its record."""
    args = _parser().parse_args(arguments)
    out = args.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    chosen = [run for run in PLANS[args.plan] if not args.only or run.name in args.only]
    env = {**os.environ, "PATH": f"{TOOLS}{os.pathsep}{os.environ['PATH']}"}
    records: list[Path] = []
    missing: list[Path] = []
    for run in chosen:
        record = out / f"{run.name}.json"
        record.unlink(missing_ok=True)
        command = run.command(record, None if args.repo is None else os.path.abspath(args.repo))
        print(f"lab: {shlex.join(['atoll', *command[1:]])}", file=sys.stderr, flush=True)
        began = time.monotonic()
        with (out / f"{run.name}.txt").open("wb") as table:
            done = subprocess.run(command, cwd=args.place, env=env, stdout=table, check=False)
        print(
            f"lab: {run.name}: {time.monotonic() - began:.0f} s, exit code {done.returncode}",
            file=sys.stderr,
            flush=True,
        )
        (records if record.exists() else missing).append(record)
        if done.returncode == 130:
            break
    if records:
        reports = ["--html", str(out / "report.html"), "--markdown", str(out / "report.md")]
        subprocess.run([str(ATOLL), "lab", "report", *map(str, records), *reports], check=True)
    for record in missing:
        print(f"lab: there is no record {record.name}; what it said is above", file=sys.stderr)
    return 1 if missing else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m scripts.lab", description=__doc__)
    parser.add_argument("plan", choices=PLANS, help="how much")
    names = ", ".join(run.name for run in FULL)
    parser.add_argument("--only", nargs="+", metavar="RUN", help=f"these runs: {names}")
    parser.add_argument("--out", type=Path, default=ROOT / "runs", help="folder for the records (runs)")
    parser.add_argument("--place", type=Path, default=ROOT, help="folder on the disk to measure (here)")
    parser.add_argument("--repo", default=str(ROOT), help="history: the git repository (this one)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
