"""`fsstress`: random operations of many kinds on a whole tree."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import atoll
from atoll.lab.host import find_program
from atoll.lab.model import CheckFailed, Tool, Unavailable
from atoll.lab.suites.conformance import ConformanceSuite
from atoll.lab.work import Work

__all__ = ["FsStress", "survey"]


class FsStress(ConformanceSuite):
    """An adapter: the program itself has to be built (it is part of xfstests and of LTP)."""

    name = "fsstress"
    title = "random operations on a whole tree, by one and by four processes"
    about = (
        "The real fsstress of xfstests or LTP. It checks nothing by itself, so afterwards every entry is "
        "looked at and read, and folders must agree with their entries. Where the target has commits, it "
        "is committed and the commit written out beside it, and both must have the same entries, types, "
        "modes, sizes and contents."
    )
    tool = Tool("fsstress", "build it from xfstests (ltp/fsstress) or LTP and put it on PATH")
    limit = 3600.0

    def work(self, work: Work) -> Mapping[str, str]:
        program = find_program("fsstress")
        if program is None:
            raise Unavailable(f"fsstress is missing: {self.tool.package}")
        operations = work.options.count(5000, 200)
        found: dict[str, str] = {}
        for processes in (1, 4):
            for seed in range(work.options.seed, work.options.seed + work.options.count(3, 1)):
                name = f"{processes} processes, {operations} operations, seed {seed}"
                folder = work.folder / f"p{processes}-s{seed}"
                folder.mkdir()
                command = [program, "-d", os.fspath(folder), "-p", str(processes), "-n", str(operations)]
                done = subprocess.run(
                    [*command, "-s", str(seed)], capture_output=True, text=True, errors="replace", check=False
                )
                if done.returncode != 0:
                    found[name] = f"fail: ended with {done.returncode}: {done.stderr.strip()[-150:]}"
                    continue
                found[name] = _outcome(lambda folder=folder: survey(folder))
        if work.handle.commit:
            found["the commit equals the tree"] = _outcome(lambda: _commit_equals(work))
        return found


def _outcome(check: object) -> str:
    assert callable(check)
    try:
        check()
    except (CheckFailed, OSError) as error:
        return f"fail: {str(error)[:200]}"
    return "pass"


def survey(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Every entry below a folder: path to mode, size (0 for folders) and a hash of what it holds.

    Raises:
        CheckFailed: a folder lists a name twice, or one that is not there.
        OSError: an entry cannot be read.
    """
    found: dict[str, tuple[int, int, str]] = {}
    for above, folders, files in os.walk(folder, onerror=_raise):
        if len(set(folders + files)) != len(folders + files):
            raise CheckFailed(f"{above} lists a name twice")
        for name in folders + files:
            path = os.path.join(above, name)
            try:
                status = os.lstat(path)
            except FileNotFoundError as error:
                raise CheckFailed(f"{path} is listed, but not there") from error
            held = ""
            if stat.S_ISLNK(status.st_mode):
                held = os.readlink(path)
            elif stat.S_ISREG(status.st_mode):
                with open(path, "rb") as file:
                    held = hashlib.file_digest(file, "blake2b").hexdigest()
            size = status.st_size if stat.S_ISREG(status.st_mode) else 0
            found[os.path.relpath(path, folder)] = (status.st_mode, size, held)
    return found


def _raise(error: OSError) -> None:
    raise error


def _commit_equals(work: Work) -> None:
    work.run(work.handle.commit)
    out = Path(tempfile.mkdtemp(dir=work.scratch))
    try:
        # Out of the store, not through the workspace.
        facts = work.handle.facts
        with atoll.open(store=facts["store"]) as store:
            inside = os.path.relpath(work.folder, work.handle.root)
            store.export(facts["branch"], out / "tree", path=inside)
        live, committed = survey(work.folder), survey(out / "tree")
        differing = sorted(
            path for path in live.keys() | committed.keys() if live.get(path) != committed.get(path)
        )
        if differing:
            raise CheckFailed(f"{len(differing)} of {len(live)} entries differ, the first is {differing[0]}")
    finally:
        shutil.rmtree(out, ignore_errors=True)
