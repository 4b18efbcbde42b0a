"""`mdtest`: folders and empty files, made, looked at and removed."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence

from atoll.lab.crew import Crew
from atoll.lab.model import Options, Row, Scenario, Suite
from atoll.lab.suites import steps
from atoll.lab.work import Work

__all__ = ["Mdtest"]

DEPTH, BRANCH = 5, 4
#: The steps in their order, and whether they write.
STEPS = {
    "folder create": True,
    "folder stat": False,
    "file create": True,
    "file stat": False,
    "file open": False,
    "commit": True,
    "file remove": True,
    "folder remove": True,
}


class Mdtest(Suite):
    """Rates of the calls that change or read names, without any data."""

    name = "mdtest"
    title = "folders and empty files: create, stat, open, remove; 1 and 4 processes, flat and deep"
    about = (
        "The metadata operations of the benchmark of this name: 20,000 folders and 20,000 empty files are "
        "made, looked at (stat; open and close) and removed, by one process or by four with a share each. "
        "Flat: all of a process's names in one folder of its own. Deep: they lie all over a tree of five "
        "levels with four folders in each (1,364 folders for each process, made before). The processes start "
        "each step together and the clock stops when the last has ended. stat and open are of names just "
        "made, so the caches are warm. A target with a history commits when all is there. The calls are "
        "made from Python, which adds about a microsecond to each."
    )

    def scenarios(self, options: Options) -> Sequence[Scenario]:
        items = options.count(20_000, 200) // 4 * 4
        return [
            _scenario(processes, shape, items, quick=options.quick)
            for processes in (1, 4)
            for shape in ("flat", "deep")
        ]


def _scenario(processes: int, shape: str, items: int, *, quick: bool) -> Scenario:
    where = f"{shape}, {processes} process{'es' if processes > 1 else ''}"
    depth, branch = (0, 0) if shape == "flat" else (2, 3) if quick else (DEPTH, BRANCH)
    rows = tuple(
        Row(
            f"{step}, {where}",
            durable=writes,
            group=where,
            files=2 * items if step == "commit" else items,
            needs_commit=step == "commit",
            cache="new" if step.endswith("create") else "warm",
        )
        for step, writes in STEPS.items()
    )
    return Scenario(
        where,
        rows,
        lambda work: _run(work, where, processes, items // processes, tree(depth, branch)),
        # A folder takes a block on most file systems.
        bytes=(items + processes * len(tree(depth, branch))) * 4096,
        files=2 * items + processes * len(tree(depth, branch)) + 10,
        warm_ups=0,
        limit=1800,
    )


def tree(depth: int, branch: int) -> list[str]:
    """The folders of a tree in an order in which they can be made, each with a slash at its end; the root is
    the empty string and comes first."""
    levels = [[""]]
    for _ in range(depth):
        levels.append([f"{above}t{index}/" for above in levels[-1] for index in range(branch)])
    return list(itertools.chain.from_iterable(levels))


def _run(work: Work, where: str, processes: int, share: int, folders: Sequence[str]) -> None:
    # In a deep tree the names lie below its root.
    places = folders[1:] or folders
    made: list[list[str]] = []
    files: list[list[str]] = []
    for process in range(processes):
        os.mkdir(f"p{process}")
        steps.make_folders([f"p{process}/{folder}" for folder in folders[1:]])
        names = [f"p{process}/{places[index % len(places)]}" for index in range(share)]
        made.append([f"{name}d{index:06d}" for index, name in enumerate(names)])
        files.append([f"{name}f{index:06d}" for index, name in enumerate(names)])

    with Crew(processes) as crew:

        def timed(step: str, do: Callable[[Sequence[str]], None], paths: Sequence[list[str]]) -> None:
            crew.prepare(do, [(own,) for own in paths])
            with work.timed(f"{step}, {where}"):
                crew.go()

        timed("folder create", steps.make_folders, made)
        timed("folder stat", steps.stat, made)
        timed("file create", steps.create_empty, files)
        timed("file stat", steps.stat, files)
        timed("file open", steps.open_close, files)
        check(work, processes * (len(folders) - 1 + share), processes * share)
        work.commit(f"commit, {where}")
        timed("file remove", steps.delete, files)
        timed("folder remove", steps.remove_folders, made)
        check(work, processes * (len(folders) - 1), 0)


def check(work: Work, folders: int, files: int) -> None:
    """So many folders (below those of the processes) and files are listed. Raises `CheckFailed`."""
    found_folders = found_files = 0
    for process in os.listdir(work.folder):
        for _, below, names in os.walk(work.folder / process):
            found_folders += len(below)
            found_files += len(names)
    work.check(
        (found_folders, found_files) == (folders, files),
        f"{found_folders} folders and {found_files} files are listed instead of {folders} and {files}",
    )
