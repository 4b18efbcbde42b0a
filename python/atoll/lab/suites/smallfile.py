"""`smallfile`: a hundred thousand files of 4 KiB, and what can be done to each."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from atoll.lab.crew import Crew
from atoll.lab.model import Options, Row, Scenario, Suite
from atoll.lab.suites import steps
from atoll.lab.trees import Blocks
from atoll.lab.work import Work

__all__ = ["Smallfile"]

PROCESSES = 4
SIZE = 4096
PER_FOLDER = 100
MODE = 0o640
VALUE = b"thirty-two bytes of an attribute"

#: In this order on the same files; those that write have a durable clock.
WRITES = ("create", "append", "rename", "chmod", "set xattr", "delete")
ORDER = (
    "create",
    "append",
    "read",
    "rename",
    "stat",
    "chmod",
    "set xattr",
    "get xattr",
    "readdir",
    "commit",
    "delete",
    "commit of the deletion",
)


class Smallfile(Suite):
    """Ten operations on many small files, by four processes at once; then a commit."""

    name = "smallfile"
    title = "100,000 files of 4 KiB, four processes"
    about = (
        "The operations of the benchmark of this name in its usual shape: four processes, each with a share "
        "of 100,000 files of 4 KiB in folders of 100 (made before), start each operation together; the "
        "clock stops when the last has ended. Append adds 4 KiB; read is of files that were just written, so "
        "the caches are warm, and compares all bytes; an attribute has 32 bytes; readdir reads each folder "
        "once. The contents are text, no two blocks alike. A target with a history commits when all files "
        "are there, and again when they are deleted. Each call is made from Python, which adds some "
        "microseconds to a file: the row `empty call` of the suite `calls` shows how much. No file is opened "
        "cold, so this says nothing about the first read of a tree."
    )

    def scenarios(self, options: Options) -> Sequence[Scenario]:
        files = options.count(100_000, 400) // PROCESSES * PROCESSES
        rows = tuple(
            Row(
                name,
                durable=name in WRITES or name.startswith("commit"),
                files=files,
                needs_commit=name.startswith("commit"),
                cache="new" if name == "create" else "warm",
            )
            for name in ORDER
        )
        scenario = Scenario(
            f"{files:,} files of 4 KiB",
            rows,
            lambda work: _run(work, files),
            # Twice for the commit, whose packs may lie on the same file system.
            bytes=files * 4 * SIZE,
            files=files + files // PER_FOLDER + 100,
            warm_ups=0,
            limit=3600,
        )
        return (scenario,)


def _run(work: Work, files: int) -> None:
    share = files // PROCESSES
    blocks = Blocks(SIZE, work.options.seed)
    folders = [
        [f"p{process}/d{index:04d}" for index in range(-(-share // PER_FOLDER))]
        for process in range(PROCESSES)
    ]
    paths = [[f"{own[index // PER_FOLDER]}/f{index:06d}" for index in range(share)] for own in folders]
    renamed = [[f"{path}.new" for path in own] for own in paths]
    for process, own in enumerate(folders):
        os.mkdir(f"p{process}")
        steps.make_folders(own)
    # The blocks of all processes are numbered through; those that are appended come after those created.
    numbered = [(own, process * share) for process, own in enumerate(paths)]

    with Crew(PROCESSES) as crew:

        def timed(name: str, step: Callable[..., None], arguments: Sequence[tuple[object, ...]]) -> None:
            crew.prepare(step, arguments)
            with work.timed(name):
                crew.go()

        timed("create", steps.create, [(own, blocks, first) for own, first in numbered])
        timed("append", steps.append, [(own, blocks, files + first) for own, first in numbered])
        timed("read", steps.read, [(own, blocks, first, files + first) for own, first in numbered])
        timed("rename", steps.rename, list(zip(paths, renamed, strict=True)))
        timed("stat", steps.stat, [(own, 2 * SIZE) for own in renamed])
        timed("chmod", steps.chmod, [(own, MODE) for own in renamed])
        if why := _no_xattrs(renamed[0][0]):
            work.unavailable("set xattr", why)
            work.unavailable("get xattr", why)
        else:
            timed("set xattr", steps.set_xattr, [(own, VALUE) for own in renamed])
            timed("get xattr", steps.get_xattr, [(own, VALUE) for own in renamed])
        timed("readdir", steps.list_folders, [(own, share) for own in folders])
        check(crew, renamed, blocks)
        work.commit("commit")
        timed("delete", steps.delete, [(own,) for own in renamed])
        crew.do(steps.list_folders, [(own, 0) for own in folders])
    work.commit("commit of the deletion")


def check(crew: Crew, paths: Sequence[Sequence[str]], blocks: Blocks) -> None:
    """Each file is there under its new name, with its blocks and its permissions. Raises `CheckFailed`."""
    share = len(paths[0])
    files = share * len(paths)
    crew.do(steps.stat, [(own, 2 * SIZE, MODE) for own in paths])
    numbered = [(own, process * share) for process, own in enumerate(paths)]
    crew.do(steps.read, [(own, blocks, first, files + first) for own, first in numbered])


def _no_xattrs(path: str) -> str | None:
    """Why this file takes no attributes of a user."""
    try:
        os.setxattr(path, steps.XATTR, b"")
        os.removexattr(path, steps.XATTR)
    except OSError as error:
        return f"the file system takes no extended attributes of users ({error.strerror})"
    return None
