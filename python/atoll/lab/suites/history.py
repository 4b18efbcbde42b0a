"""`history`: what it costs to keep every state of a real project."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

from atoll.lab.git import GIT_TOOL
from atoll.lab.host import find_program
from atoll.lab.model import Options, Row, Scenario, Suite, Target, Unavailable
from atoll.lab.snapshots import Entry, Snapshots, differences, make_repository
from atoll.lab.suites.history_ways import WAYS, Way
from atoll.lab.suites.ways import WayTarget
from atoll.lab.targets.loop import LoopTarget
from atoll.lab.work import Work, make_durable

__all__ = ["History"]


class _BorgTarget(WayTarget):
    def missing(self) -> str | None:
        return None if find_program("borg") else "borg is missing: Debian's package borgbackup"


class History(Suite):
    """Compares ways to keep a history, not folders: it has targets of its own."""

    name = "history"
    title = "size and time of a project's whole history, against git, btrfs and borg"
    about = (
        "N evenly spaced commits of a git repository (--repo, --snapshots), each brought about as a whole "
        "tree (not timed; unchanged files are not touched) and then kept, one after the other, into an "
        "empty store. atoll imports the folder in process; git adds and commits everything and is packed "
        "at the end with repack -adf --depth=50 --window=250 (its size is its objects with their "
        "indexes); btrfs takes a snapshot on a loop image with zstd; borg creates an archive with zstd. "
        "Sizes are the bytes of all files (btrfs: space in use). Then every state is read back and "
        "compared with git's objects, byte for byte, with modes and links. One sample: a history is kept "
        "once."
    )

    def prepare(self, options: Options, scratch: Path) -> None:
        if options.repo is None and not options.quick:
            raise Unavailable("name a git repository with --repo")
        if options.repo is None:
            make_repository(scratch / "history.git", _small_history(options))
        Snapshots(_repository(options, scratch), options.snapshots)

    def contenders(self, options: Options) -> Sequence[Target]:
        btrfs = LoopTarget("btrfs", "loop:btrfs,compress=zstd", "btrfs", {"compress": "zstd"})
        return [
            WayTarget("history:atoll", "atoll import"),
            WayTarget("history:git", "git"),
            WayTarget("history:btrfs", "btrfs snapshots", btrfs),
            _BorgTarget("history:borg", "borg"),
        ]

    def scenarios(self, options: Options) -> Sequence[Scenario]:
        rows = (
            Row("commit all", cache="warm"),
            Row("size after the last commit", unit="bytes", durable=False),
            Row("pack for size", cache="warm"),
            Row("size after packing", unit="bytes", durable=False),
            Row("read all back", durable=False),
            Row("states that are equal", unit="states", better="higher", durable=False, exact=True),
        )
        run = _Run(options)
        return [
            Scenario(
                "history", rows, run, tools=(GIT_TOOL,), reps=1, warm_ups=0, bytes=256 << 20, limit=4 * 3600.0
            )
        ]


class _Run:
    """The scenario; the same for each way."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def __call__(self, work: Work) -> None:
        way = WAYS[work.handle.kind](work)
        way.begin()
        try:
            with Snapshots(_repository(self.options, work.scratch), self.options.snapshots) as snapshots:
                self._run(work, way, snapshots)
        finally:
            way.end()

    def _run(self, work: Work, way: Way, snapshots: Snapshots) -> None:
        returned: list[float] = []
        durable: list[float] = []
        sizes: list[float] = []
        before: dict[bytes, Entry] = {}
        for number, commit in enumerate(snapshots.commits):
            after = snapshots.tree(commit)
            snapshots.bring_about(way.tree, before, after)
            make_durable(work.handle.barrier)
            began = time.perf_counter()
            way.commit(number)
            returned.append(time.perf_counter() - began)
            make_durable(work.handle.barrier)
            durable.append(time.perf_counter() - began)
            sizes.append(float(way.size()))
            before = after
        work.measure("commit all", sum(returned), durable=sum(durable), series=returned)
        work.measure("size after the last commit", sizes[-1], series=sizes)
        with work.timed("pack for size"):
            way.pack()
        work.measure("size after packing", float(way.size()))
        self._read_back(work, way, snapshots)

    def _read_back(self, work: Work, way: Way, snapshots: Snapshots) -> None:
        equal = 0
        wrong: list[str] = []
        spent = 0.0
        for number, commit in enumerate(snapshots.commits):
            expected = snapshots.tree(commit)
            began = time.perf_counter()
            with way.read(number) as folder:
                found = next(differences(folder, expected), None)
            spent += time.perf_counter() - began
            equal += found is None
            if found is not None:
                wrong.append(f"state {number}: {found}")
        work.measure("read all back", spent)
        work.measure("states that are equal", float(equal))
        total = len(snapshots.commits)
        work.check(not wrong, f"{len(wrong)} of {total} states are not as they were; {'; '.join(wrong[:2])}")


def _repository(options: Options, scratch: Path) -> Path:
    return scratch / "history.git" if options.repo is None else Path(options.repo)


def _small_history(options: Options) -> list[dict[str, bytes]]:
    """A dozen states of some forty files: edits, new files, a removed one."""
    rng = random.Random(options.seed)
    tree = {f"d{number % 5}/f{number}": rng.randbytes(200).hex().encode() for number in range(40)}
    states = [dict(tree)]
    for number in range(11):
        path = rng.choice(sorted(tree))
        tree[path] = tree[path][:100] + f" state {number}\n".encode() + tree[path][100:]
        tree[f"new/{number}"] = rng.randbytes(64)
        if number % 4 == 3:
            del tree[f"new/{number - 1}"]
        states.append(dict(tree))
    return states
