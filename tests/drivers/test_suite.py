"""What a workspace must keep, the same with every driver: mount, work, commit, mount again, fork, export."""

from __future__ import annotations

import mmap
import os
import shutil
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import atoll
from atoll import registry
from atoll.places import default_store
from atoll.workspace import Workspace
from tests.drivers.picture import Picture, differences, segments, take, without_times

ROOT = os.geteuid() == 0
LONG_AGO = 981173106_123456789
BEFORE_1970 = -12345_987654321
FAR = 5 << 30
BLOCK = 4096


def furnish(folder: Path, prefix: str, far: int = FAR) -> None:
    """One of everything, below a prefix, with odd times; the sparse file's last data are at `far`."""
    top = folder / prefix
    (top / "dir" / "deep" / "deeper").mkdir(parents=True)
    (top / "empty").mkdir()
    (top / "small").write_text("small\n")
    (top / "nothing").touch()
    (top / "large").write_bytes(bytes(range(251)) * 4000)
    (top / "dir" / "file").write_bytes(b"\0" * 10_000)
    for name in ("one", "dir/two", "dir/deep/three"):
        os.link(top / "large" if name == "one" else top / "one", top / name)
    (top / "to-dir").symlink_to("dir")
    (top / "absolute").symlink_to("/nowhere/at all")
    os.symlink(b"\xff\xfe" * 100, os.fsencode(top) + b"/odd-target")
    os.link(top / "absolute", top / "second-link", follow_symlinks=False)
    os.mkfifo(top / "pipe", 0o620)
    with socket.socket(socket.AF_UNIX) as made:
        here = os.open(top, os.O_RDONLY)
        try:
            made.bind(f"/proc/self/fd/{here}/socket")
        finally:
            os.close(here)
    for odd in (b"caf\xe9", b"new\nline", b" ", b"\x01", b"-rf", b"a" * 255, "ü".encode(), b"back\\slash"):
        Path(os.fsdecode(os.fsencode(top) + b"/" + odd)).write_bytes(odd)
    with open(top / "sparse", "wb") as file:
        for at, data in ((0, b"begin"), (1 << 20, b"middle" * 1000), (far, b"end")):
            file.seek(at)
            file.write(data)
        file.truncate(far + (1 << 20))
    with open(top / "all-hole", "wb") as file:
        file.truncate(far // 5)
    # What its owner may not read, nobody but root can capture (tests/run/test_unreadable.py).
    none = 0o000 if ROOT else 0o400
    for name, mode in (("set-uid", 0o4755), ("set-gid", 0o2711), ("sticky", 0o1644), ("none", none)):
        (top / name).write_text(name)
        (top / name).chmod(mode)
    for name, mode in (("set-gid-dir", 0o2775), ("sticky-dir", 0o1777), ("closed", 0o500)):
        (top / name).mkdir()
        (top / name).chmod(mode)
    for name in ("small", "dir", "one"):
        os.setxattr(top / name, "user.note", f"of {name}\0\xff".encode())
    os.setxattr(top / "small", "user.empty", b"")
    os.setxattr(top / "small", "user.long", b"x" * 3000)
    if ROOT:
        root_only(top)
    for number, (place, folders, names) in enumerate(os.walk(top, topdown=False)):
        for name in (*folders, *names):
            when = BEFORE_1970 if name == "small" else LONG_AGO + number * 1_000_000_007
            os.utime(os.path.join(place, name), ns=(when, when), follow_symlinks=False)


def root_only(top: Path) -> None:
    """What only root makes."""
    os.mknod(top / "char", stat.S_IFCHR | 0o640, os.makedev(1, 3))
    os.mknod(top / "block", stat.S_IFBLK | 0o600, os.makedev(7, 200))
    for number, name in enumerate(("set-uid", "dir", "to-dir", "pipe", "large")):
        mode = (top / name).lstat().st_mode
        os.chown(top / name, 1000 + number, 2**31 + number, follow_symlinks=False)
        if not stat.S_ISLNK(mode):
            (top / name).chmod(stat.S_IMODE(mode))
    for name in ("small", "dir", "to-dir", "pipe", "char"):
        os.setxattr(top / name, "trusted.note", name.encode(), follow_symlinks=False)
    # A capability as `setcap cap_net_raw+ep` writes it.
    capability = bytes.fromhex("0100000200200000000000000000000000000000")
    os.setxattr(top / "none", "security.capability", capability)


def rework(folder: Path) -> None:
    """Every kind of change to what `furnish` made."""
    (folder / "empty").rmdir()
    (folder / "dir" / "deep").rename(folder / "moved")
    (folder / "dir" / "deep").mkdir()
    with open(folder / "large", "r+b") as file:
        file.seek(500_000)
        file.write(b"in the middle")
    with open(folder / "sparse", "r+b") as file:
        file.seek(os.fstat(file.fileno()).st_size // 2 + 100_000)
        file.write(b"more")
    (folder / "moved" / "three").rename(folder / "three")
    (folder / "one").unlink()
    os.link(folder / "three", folder / "dir" / "deep" / "four")
    (folder / "nothing").rename(folder / "small")
    (folder / "pipe").rename(folder / "pipe2")
    (folder / "to-dir").unlink()
    (folder / "to-dir").mkdir()
    (folder / "to-dir" / "x").write_text("x")
    shutil.rmtree(folder / "sticky-dir")
    (folder / "sticky-dir").write_text("now a file")
    (folder / "set-uid").chmod(0o6711)
    (folder / "dir").chmod(0o3750)
    os.removexattr(folder / "dir", "user.note")
    os.setxattr(folder / "set-gid", "user.new", b"new")
    os.utime(folder / "set-gid-dir", ns=(5, 5))
    os.utime(folder / "absolute", ns=(6, 6), follow_symlinks=False)
    with open(folder / "all-hole", "r+b") as file, mmap.mmap(file.fileno(), 1 << 16) as mapped:
        mapped[1 << 15] = 7


def same(one: Picture, other: Picture) -> None:
    found = differences(one, other)
    assert not found, "\n".join(found)


@pytest.fixture
def full(home: Path) -> Iterator[tuple[Path, atoll.Store]]:
    """A project with one of everything, twice, and its store."""
    project = home / "app"
    project.mkdir()
    furnish(project, "base")
    furnish(project, "other")
    with atoll.create(default_store(project)) as store:
        registry.record("project", project, store.path)
        store.import_folder(project, branch="main")
        yield project, store


def again(store: atoll.Store, ws: Workspace, driver: str) -> Workspace:
    """Unmounted with nothing left and mounted again."""
    left = ws.umount()
    assert not left.kept, left
    return store.mount(ws.branch, driver=driver)


def test_a_fork_is_the_folder(full: tuple[Path, atoll.Store], driver: str) -> None:
    project, store = full
    original = take(project)
    with store.fork("main", "a").mount(driver=driver) as ws:
        same(take(ws), original)
        if driver == "overlay":
            for name in ("base/small", "base/dir", "base/pipe", "base/to-dir", "other/one"):
                ours, theirs = (ws.path / name).lstat(), (project / name).lstat()
                assert ours.st_ctime_ns == theirs.st_ctime_ns
                assert ours.st_ino & 0xFFFFFFFF == theirs.st_ino & 0xFFFFFFFF
        assert ws.status().changes == ()
        assert not ws.commit("nothing").changed
    same(take(project), original)


def test_the_life_of_everything(full: tuple[Path, atoll.Store], driver: str, home: Path) -> None:
    """New files, inherited files and changed inherited files through commit, remount, fork, second work and
    export."""
    project, store = full
    original = take(project)
    ws = store.fork("main", "a").mount(driver=driver)
    furnish(ws.path, "new")
    rework(ws.path / "base")
    shutil.rmtree(ws.path / "other" / "dir")
    worked = take(ws)
    ws.commit("worked")
    same(take(ws), worked)
    ws = again(store, ws, driver)
    same(take(ws), worked)
    assert ws.status().changes == ()

    # The same again where all of it is inherited now, partly a second time.
    rework(ws.path / "new")
    (ws.path / "base").rename(ws.path / "new" / "base")
    (ws.path / "new").rename(ws.path / "newest")
    (ws.path / "newest" / "base" / "small").write_text("again")
    reworked = take(ws)
    ws.commit("reworked")
    with store.fork("a", "b").mount(driver=driver) as fork:
        same(take(fork), reworked)
    with store.fork("a~1", "c").mount(driver=driver) as fork:
        same(take(fork), worked)
    ws = again(store, ws, driver)
    same(take(ws), reworked)
    ws.umount()

    result = store.export("a", home / "out")
    assert result.lost == ()
    same(take(home / "out"), reworked)
    result = store.export("a~1", home / "part", path="base")
    below = {path.removeprefix(b"base/"): item for path, item in worked.items() if path.startswith(b"base/")}
    assert take(home / "part").keys() - {b""} == below.keys()
    same(take(project), original)


def test_uncommitted_work_survives_an_unmount(full: tuple[Path, atoll.Store], driver: str) -> None:
    _, store = full
    ws = store.fork("main", "a").mount(driver=driver)
    rework(ws.path / "base")
    furnish(ws.path, "new")
    worked = take(ws)
    assert ws.umount().kept
    ws = store.mount("a", driver=driver)
    same(take(ws), worked)
    ws.commit("late")
    ws = again(store, ws, driver)
    same(take(ws), worked)
    ws.umount()


@pytest.mark.parametrize("name", ["base/small", "base/dir", "base/pipe", "base/absolute"])
def test_a_time_alone_survives_an_unmount(full: tuple[Path, atoll.Store], driver: str, name: str) -> None:
    """`touch` of an inherited file is kept, committed or not."""
    _, store = full
    for commit in (True, False):
        ws = store.fork("main", f"a-{commit}").mount(driver=driver)
        os.utime(ws.path / name, ns=(7, 7), follow_symlinks=False)
        if commit:
            assert ws.commit("touched").changed
        ws.umount()
        ws = store.mount(ws.branch, driver=driver)
        kept = (ws.path / name).lstat().st_mtime_ns
        ws.umount()
        assert kept == 7, f"commit: {commit}"


@pytest.fixture
def edited(home: Path, driver: str) -> Iterator[tuple[Workspace, Picture, Picture]]:
    """A workspace in which everything was edited, as it was before, and as it is."""
    project = home / "app"
    project.mkdir()
    furnish(project, "base", 10 << 20)
    with atoll.create(default_store(project)) as store:
        registry.record("project", project, store.path)
        store.import_folder(project, branch="main")
        with store.fork("main", "a").mount(driver=driver) as ws:
            before = take(ws)
            rework(ws.path / "base")
            furnish(ws.path, "untracked", 10 << 20)
            (ws.path / ".gitignore").write_text("untracked\n")
            yield ws, before, take(ws)


def test_a_restore_brings_everything_back(edited: tuple[Workspace, Picture, Picture]) -> None:
    """Case 7: edits of every kind by whatever means, new and ignored files too, then a restore: the tree has
    the same names, bytes, modes, owners, attributes and links; and the restore is itself taken back."""
    ws, before, worked = edited
    ws.restore("main")
    same(without_times(take(ws)), without_times(before))
    assert ws.store.commit("a").content == ws.store.commit("main").content
    assert ws.status().changes == ()
    ws.restore("a~1")
    same(without_times(take(ws)), without_times(worked))
    assert ws.store.commit("a").content == ws.store.commit("a~2").content


def test_a_restore_brings_times_back(edited: tuple[Workspace, Picture, Picture]) -> None:
    """Case 7: after a restore the tree has the same mtimes."""
    ws, before, _ = edited
    ws.restore("main")
    same(take(ws), before)


def test_holes_stay_holes(full: tuple[Path, atoll.Store], driver: str, home: Path) -> None:
    """Files of over 4 GiB that are mostly holes cost what their data cost, everywhere."""
    project, store = full
    expected = segments(project / "base" / "sparse")
    assert len(expected) == 3
    assert store.stats()["pack_bytes"] < 4 << 20
    with store.fork("main", "a").mount(driver=driver) as ws:
        for name in ("base", "other"):
            assert segments(ws.path / name / "sparse") == expected
            assert (ws.path / name / "sparse").stat().st_size == FAR + (1 << 20)
            assert segments(ws.path / name / "all-hole") == []
        with open(ws.path / "base" / "all-hole", "r+b") as file:
            file.seek(1 << 29)
            file.write(b"data")
        with open(ws.path / "made", "wb") as file:
            file.truncate(6 << 30)
            file.seek(FAR)
            file.write(b"data")
        os.truncate(ws.path / "other" / "all-hole", 7 << 30)
        result = ws.commit("holes")
        assert result.stored_bytes < 100_000
    with store.mount("a", driver=driver) as ws:
        assert (ws.path / "other" / "all-hole").stat().st_size == 7 << 30
        assert segments(ws.path / "base" / "all-hole") == [(1 << 29, (1 << 29) + BLOCK)]
        assert segments(ws.path / "made") == [(FAR, FAR + BLOCK)]
    store.export("a", home / "out")
    assert segments(home / "out" / "made") == [(FAR, FAR + BLOCK)]
    assert segments(home / "out" / "base" / "sparse") == expected
    assert (home / "out" / "made").stat().st_blocks < 100
