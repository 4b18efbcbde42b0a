"""The power goes at the worst moment: what was reported as done is there afterwards."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import atoll
from atoll.errors import NoSpace, NotFound
from scripts.compare_folders import differences
from tests.crash.disk import Disk, missing
from tests.crash.worker import FILES, content

ROOT = Path(__file__).resolve().parents[2]


class Case:
    """A store on a disk, and a process that works with it."""

    def __init__(self, disk: Disk, source: Path) -> None:
        self.disk, self.source, self.folder = disk, source, disk.folder / "store"

    def start(self, imported: bool = True) -> None:
        """A store, with `source` on `main`, that has been there for days."""
        with atoll.create(self.folder) as store:
            if imported:
                store.import_folder(self.source, branch="main")
        os.sync()

    def cut(self, job: str, after: str = "done", moment: float = 0.0) -> list[str]:
        """Lets a job run until it has said `after` and for a moment longer, then cuts the power and brings it
        back; what it said last."""
        words = [sys.executable, "-m", "tests.crash.worker", job, str(self.folder), str(self.source)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
            assert process.stdout is not None
            said = [""]
            while said[-1] != after:
                said.append(process.stdout.readline().rstrip("\n"))
                assert process.poll() is None, f"'{job}' ended before it said '{after}'"
            time.sleep(moment)
            self.disk.cut()
            said += [line.rstrip("\n") for line in process.stdout if line.endswith("\n")]
        self.disk.power_on()
        return said

    def opened(self) -> atoll.Store:
        return atoll.open(store=self.folder)

    def exported(self, reference: str) -> Path:
        """Every byte of a commit."""
        out = self.disk.home / f"out-{reference}"
        with self.opened() as store:
            store.export(reference, out)
        return out


@pytest.fixture(params=["ext4", "xfs"])
def case(
    request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch, driver: str
) -> Iterator[Case]:
    """With everything of the user's on the disk, but for the folder that is imported."""
    if (reason := missing(request.param)) is not None:
        pytest.skip(reason)
    monkeypatch.setenv("ATOLL_TEST_DRIVER", driver)
    disk = Disk(request.param, home)
    for variable, name in (("XDG_DATA_HOME", "data"), ("XDG_RUNTIME_DIR", "run")):
        (disk.folder / name).mkdir(mode=0o700)
        monkeypatch.setenv(variable, str(disk.folder / name))
    source = home / "source"
    for number in range(FILES):
        path = source / f"d{number % 7}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(path.name))
    (source / "large").write_bytes(content("large", 3 << 20))
    (source / "link").symlink_to("large")
    yield Case(disk, source)
    disk.remove()


def test_an_import_that_returned(case: Case) -> None:
    case.start(imported=False)
    case.cut("import_folder")
    assert differences(case.source, case.exported("main")) == []


def test_small_commits_up_to_any_moment(case: Case) -> None:
    case.start()
    said = case.cut("small_commits", after="2", moment=random.Random(7).random() / 2)
    last = int(said[-1])
    with case.opened() as store:
        for number in range(last + 1):
            assert store.read("a", f"new{number}") == content(f"new{number}"), number
        # One more can have been there in time and not have been told.
        assert len(list(store.log("a"))) in (last + 2, last + 3)


def test_a_workspace_never_goes_back_behind_its_commit(case: Case) -> None:
    """Nobody synced the files in the workspace: the disk may have lost them there. The commit has them, and
    the workspace shows them again."""
    case.start()
    case.cut("large_commit")
    out = case.exported("a")
    for number in range(FILES):
        assert (out / f"n{number}").read_bytes() == content(f"n{number}")
    assert (out / "d0" / "f0").read_bytes() == b"edited"
    assert (out / "moved" / "f1").read_bytes() == content("f1")
    assert not (out / "large").exists() and not (out / "d1").exists()
    notes: list[str] = []
    with case.opened() as store, store.mount("a", note=notes.append) as ws:
        assert differences(out, ws.path) == [], notes
        assert ws.status().changes == ()


#: Why there is nothing to bring back.
WHOLE = "fuse: its journal has all that was committed, whatever the moment"


def test_a_recovery_that_failed_is_done_by_the_next_mount(
    case: Case, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if driver == "fuse":
        pytest.skip(WHOLE)
    case.start()
    case.cut("large_commit")

    def full(*_: object) -> None:
        raise NoSpace("The disk is full.")

    with case.opened() as store:
        with monkeypatch.context() as patch:
            patch.setattr("atoll.recovering.write_state", full)
            with pytest.raises(NoSpace):
                store.mount("a")
        with pytest.raises(NotFound, match="was not mounted since"):
            store.workspace("a").commit("too early")
        with store.mount("a") as ws:
            for number in range(FILES):
                assert (ws.path / f"n{number}").read_bytes() == content(f"n{number}")


def test_losses_are_found_although_the_branch_moved(case: Case, driver: str) -> None:
    if driver == "fuse":
        pytest.skip(WHOLE)
    case.start()
    case.cut("large_commit")
    with case.opened() as store:
        last = store.resolve("a")
        store.import_folder(case.source / "d3", branch="a", replace=True)
        moved = store.resolve("a")
        with store.mount("a") as ws:
            assert store.resolve("a") == moved and ws.branch.startswith("a-recovered-")
            for number in range(FILES):
                assert (ws.path / f"n{number}").read_bytes() == content(f"n{number}")
            assert store.commit(last).content == store.commit(ws.branch).content


def test_later_work_is_told_from_what_was_lost(case: Case) -> None:
    case.start()
    case.cut("commit_and_go_on")
    with case.opened() as store, store.mount("a") as ws:
        for name in ("later", "n1", "d2/f2"):
            assert (ws.path / name).read_bytes() == b"later " + content(name), name
        assert not (ws.path / "n2").exists()
        for number in (0, *range(3, FILES)):
            assert (ws.path / f"n{number}").read_bytes() == content(f"n{number}"), number
        assert (ws.path / "d0" / "f0").read_bytes() == b"edited"
        assert (ws.path / "moved" / "f1").read_bytes() == content("f1")
        assert not (ws.path / "large").exists() and not (ws.path / "d1").exists()


def test_what_was_fsynced_in_a_workspace(case: Case) -> None:
    case.start()
    case.cut("fsync")
    with case.opened() as store, store.mount("a") as ws:
        assert (ws.path / "new").read_bytes() == content("new")
        assert (ws.path / "d0" / "f0").read_bytes() == content("d0/f0")


def test_what_an_unmount_kept(case: Case) -> None:
    case.start()
    case.cut("umount")
    with case.opened() as store, store.mount("a") as ws:
        assert (ws.path / "new").read_bytes() == content("new")


def test_names(case: Case) -> None:
    case.start()
    case.cut("names")
    with case.opened() as store:
        assert sorted(ref.name for ref in store.branches()) == ["c", "main"]
        assert store.resolve("v1") == store.resolve("main")


def test_gc_up_to_any_moment(case: Case) -> None:
    case.start()
    before = case.disk.home / "before"
    shutil.copytree(case.source, before, symlinks=True)
    case.cut("collect", after="3", moment=random.Random(5).random() / 2)
    assert differences(before, case.exported("main")) == []
