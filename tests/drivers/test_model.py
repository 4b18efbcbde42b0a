"""Random operations on a workspace and on a plain folder in memory have the same result in both, and what
is committed, mounted again, forked and exported is what the plain folder holds.

Half of the files come from history. The examples are the same in every run; a failure prints the steps.
ATOLL_MODEL=EXAMPLES runs that many others."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

import atoll
from atoll import registry
from atoll.places import default_store
from atoll.workspace import Workspace
from tests.drivers.picture import differences, take, without_times

ROOT = os.geteuid() == 0
EXCHANGE, NOREPLACE = 2, 1
_libc = ctypes.CDLL(None, use_errno=True)

#: Few names, so that operations meet; the folders of `plant` are among them.
NAMES = st.sampled_from(["a", "b", "c", "d"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
SIZES = st.sampled_from([0, 1, 100, 129, 4096, 5000, 70_000, 400_000])
SEEDS = st.integers(0, 255)


def plant(folder: Path) -> None:
    """What comes from history."""
    for name in ("a/a", "a/b", "b/a", "c/d", "d"):
        (folder / name).mkdir(parents=True)
    for number, name in enumerate(("a/c", "a/a/a", "a/b/c", "b/b", "b/c", "c/a", "c/d/b", "b/a/d")):
        (folder / name).write_bytes(contents(number, 500 * number + 40))
    (folder / "c" / "c").write_bytes(contents(99, 400_000))
    for old, new in (("b/b", "c/b"), ("b/b", "a/d"), ("a/a/a", "a/a/b")):
        os.link(folder / old, folder / new)
    (folder / "d" / "a").symlink_to("../a/c")
    os.mkfifo(folder / "d" / "b")
    (folder / "b" / "c").chmod(0o4755)
    os.setxattr(folder / "c" / "a", "user.one", b"old")
    if ROOT:
        os.chown(folder / "a" / "b", 5, 6)


def contents(seed: int, size: int) -> bytes:
    """Bytes that differ from seed to seed and from place to place."""
    return bytes((seed + 7 * at + (at >> 8)) & 255 for at in range(min(size, 5000))) * (1 + size // 5000)


def renameat2(old: Path, new: Path, flags: int) -> None:
    """rename with flags."""
    if _libc.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


@dataclass
class Open:
    """The same file, open in the workspace and in the model."""

    files: list[int]
    maps: list[mmap.mmap] | None


class Machine(RuleBasedStateMachine):
    """See the module. `place` holds what an example is made in."""

    store: atoll.Store
    driver: str
    scratch: str
    memory: str
    count = 0

    def __init__(self) -> None:
        super().__init__()
        Machine.count += 1
        self.branch = f"m{Machine.count}"
        self.store.fork("main", self.branch)
        self.ws = self.mount()
        self.model = Path(tempfile.mkdtemp(dir=self.memory))
        self.model.chmod(0o755)
        plant(self.model)
        self.open: list[Open] = []

    def mount(self) -> Workspace:
        return self.store.mount(self.branch, driver=self.driver, scratch=self.scratch)

    def teardown(self) -> None:
        try:
            self.close_all()
            self.commit_and_mount_again()
            with self.store.fork(self.branch, f"{self.branch}-fork").mount(driver=self.driver) as fork:
                self.compare(fork.path)
            out = self.ws.path.parent / f"{self.branch}-out"
            self.store.export(self.branch, out)
            self.compare(out)
            shutil.rmtree(out)
        finally:
            self.close_all()
            self.store.drop(f"{self.branch}*")
            shutil.rmtree(self.model)

    # -- both sides ------------------------------------------------------------------------------------------

    def both(self, operation: Callable[[Path], Any], same: dict[int, int] | None = None) -> list[Any] | None:
        """Does it in the workspace and in the model; both succeed, or both fail with the same error.
        Errors in `same` count as the other one."""
        results: list[Any] = []
        errors: list[str | None] = []
        for top in (self.ws.path, self.model):
            try:
                results.append(operation(top))
                errors.append(None)
            except OSError as error:
                code = error.errno or 0
                errors.append(errno.errorcode[(same or {}).get(code, code)])
        assert errors[0] == errors[1], f"workspace: {errors[0]}, plain folder: {errors[1]}"
        return results if errors == [None, None] else None

    def compare(self, folder: Path) -> None:
        """Everything but times is the same."""
        found = differences(without_times(take(folder)), without_times(take(self.model)))
        assert not found, "\n".join(found)

    # -- files -----------------------------------------------------------------------------------------------

    @rule(path=PATHS, size=SIZES, seed=SEEDS)
    def write(self, path: str, size: int, seed: int) -> None:
        self.both(
            lambda top: (top / path).write_bytes(contents(seed, size)) if not fifo(top / path) else None
        )

    @rule(path=PATHS, seed=SEEDS)
    def append(self, path: str, seed: int) -> None:
        def work(top: Path) -> None:
            with opened(top / path, os.O_WRONLY | os.O_APPEND) as file:
                os.write(file, contents(seed, 50))

        self.both(work)

    @rule(path=PATHS, at=st.sampled_from([0, 1, 4095, 200_000, 1 << 20]), size=SIZES, seed=SEEDS)
    def write_at(self, path: str, at: int, size: int, seed: int) -> None:
        def work(top: Path) -> None:
            with opened(top / path, os.O_WRONLY) as file:
                os.pwrite(file, contents(seed, size), at)

        self.both(work)

    @rule(path=PATHS, size=st.sampled_from([0, 1, 128, 4097, 300_000, 2 << 20]))
    def truncate(self, path: str, size: int) -> None:
        self.both(lambda top: os.truncate(top / path, size))

    @rule(path=PATHS, seed=SEEDS)
    def store_through_a_map(self, path: str, seed: int) -> None:
        def work(top: Path) -> None:
            with opened(top / path, os.O_RDWR) as file:
                if size := os.fstat(file).st_size:
                    with mmap.mmap(file, 0) as mapped:
                        mapped[size // 2] = seed
                        mapped[size - 1] = seed

        self.both(work)

    @rule(path=PATHS)
    def replace_by_rename(self, path: str) -> None:
        """As editors save."""

        def work(top: Path) -> None:
            data = b"saved" if fifo(top / path) else (top / path).read_bytes() + b"saved"
            (top / "save~").write_bytes(data)
            try:
                os.rename(top / "save~", top / path)
            except OSError:
                (top / "save~").unlink()
                raise

        self.both(work)

    # -- names -----------------------------------------------------------------------------------------------

    @rule(path=PATHS)
    def mkdir(self, path: str) -> None:
        self.both(lambda top: (top / path).mkdir())

    @rule(path=PATHS)
    def rmdir(self, path: str) -> None:
        self.both(lambda top: (top / path).rmdir())

    @rule(path=PATHS)
    def unlink(self, path: str) -> None:
        self.both(lambda top: (top / path).unlink())

    @rule(path=PATHS)
    def remove_tree(self, path: str) -> None:
        def work(top: Path) -> None:
            if (top / path).is_dir() and not (top / path).is_symlink():
                shutil.rmtree(top / path)

        self.both(work)

    @rule(old=PATHS, new=PATHS)
    def rename(self, old: str, new: str) -> None:
        self.both(lambda top: os.rename(top / old, top / new))

    @rule(old=PATHS, new=PATHS, flags=st.sampled_from([EXCHANGE, NOREPLACE, EXCHANGE | NOREPLACE]))
    def rename_with_flags(self, old: str, new: str, flags: int) -> None:
        """Case 5: honoured, or the same error; never a plain rename."""
        self.both(lambda top: renameat2(top / old, top / new, flags))

    @rule(old=PATHS, new=PATHS)
    def link(self, old: str, new: str) -> None:
        self.both(lambda top: os.link(top / old, top / new, follow_symlinks=False))

    @rule(path=PATHS, leads=st.sampled_from(["a", "../b", "/nowhere", "x" * 300]))
    def symlink(self, path: str, leads: str) -> None:
        self.both(lambda top: (top / path).symlink_to(leads))

    @rule(path=PATHS)
    def mkfifo(self, path: str) -> None:
        self.both(lambda top: os.mkfifo(top / path))

    # -- attributes ------------------------------------------------------------------------------------------

    @rule(path=PATHS, mode=st.sampled_from([0o600, 0o644, 0o755, 0o4711, 0o1777, 0o2750]))
    def chmod(self, path: str, mode: int) -> None:
        def work(top: Path) -> None:
            if (top / path).is_symlink():  # a target may lead anywhere
                return
            if not ROOT and mode & 0o700 != 0o700 and (top / path).is_dir():
                return  # an ordinary user would lock himself out of it
            (top / path).chmod(mode)

        self.both(work)

    @rule(path=PATHS, owner=st.sampled_from([0, 1, 70_000]))
    def chown(self, path: str, owner: int) -> None:
        if ROOT:
            self.both(lambda top: os.chown(top / path, owner, owner + 1, follow_symlinks=False))

    @rule(path=PATHS, when=st.sampled_from([0, 1, 981173106_123456789]))
    def utime(self, path: str, when: int) -> None:
        self.both(lambda top: os.utime(top / path, ns=(when, when), follow_symlinks=False))

    @rule(path=PATHS, name=st.sampled_from(["user.one", "user.two"]), size=st.sampled_from([0, 5, 1000]))
    def set_attribute(self, path: str, name: str, size: int) -> None:
        self.both(lambda top: os.setxattr(top / path, name, b"v" * size, follow_symlinks=False))

    @rule(path=PATHS, name=st.sampled_from(["user.one", "user.two"]))
    def remove_attribute(self, path: str, name: str) -> None:
        # Inherited from a commit without any attribute (docs/SEMANTICS.md).
        same = {errno.EOPNOTSUPP: errno.ENODATA}
        self.both(lambda top: os.removexattr(top / path, name, follow_symlinks=False), same)

    # -- files that stay open, through commits ---------------------------------------------------------------

    @rule(path=PATHS, mapped=st.booleans())
    def open_and_keep(self, path: str, mapped: bool) -> None:
        def work(top: Path) -> int:
            with opened(top / path, os.O_RDWR) as file:
                return os.dup(file)

        if len(self.open) < 3 and (files := self.both(work)) is not None:
            large = os.fstat(files[0]).st_size >= mmap.PAGESIZE
            maps = [mmap.mmap(file, mmap.PAGESIZE) for file in files] if mapped and large else None
            self.open.append(Open(files, maps))

    @rule(which=st.integers(0, 2), at=st.integers(0, 4000), seed=SEEDS)
    def write_to_an_open_file(self, which: int, at: int, seed: int) -> None:
        if which < len(self.open):
            opened = self.open[which]
            for side in range(2):
                if opened.maps is None:
                    os.pwrite(opened.files[side], bytes([seed]), at)
                elif os.fstat(opened.files[side]).st_size > at:
                    opened.maps[side][at] = seed

    @rule(which=st.integers(0, 2))
    def close(self, which: int) -> None:
        if which < len(self.open):
            opened = self.open.pop(which)
            for mapped in opened.maps or ():
                mapped.close()
            for file in opened.files:
                os.close(file)

    def close_all(self) -> None:
        while self.open:
            self.close(0)

    # -- the workspace ---------------------------------------------------------------------------------------

    @rule()
    def commit(self) -> None:
        """While files are open and mapped. What was committed is what the workspace shows."""
        shown = take(self.ws)
        self.ws.commit("meanwhile")
        assert differences(take(self.ws), shown) == []
        assert self.ws.status().changes == ()

    @rule()
    def commit_and_fork(self) -> None:
        """The commit, seen through another workspace, times included."""
        self.ws.commit("fork it")
        shown = take(self.ws)
        name = f"{self.branch}-{self.store.commit(self.branch).id[:12]}"
        if name not in [ref.name for ref in self.store.branches()]:
            with self.store.fork(self.branch, name).mount(driver=self.driver) as fork:
                found = differences(take(fork), shown)
                assert not found, "\n".join(found)

    @rule()
    def commit_and_mount_again(self) -> None:
        """Everything becomes inherited."""
        self.close_all()
        self.ws.commit("all of it")
        shown = take(self.ws)
        left = self.ws.umount()
        assert not left.kept, left
        self.ws = self.mount()
        found = differences(take(self.ws), shown)
        assert not found, "\n".join(found)
        self.compare(self.ws.path)

    @rule()
    def mount_again(self) -> None:
        """With what is not committed."""
        self.close_all()
        shown = take(self.ws)
        self.ws.umount()
        self.ws = self.mount()
        found = differences(take(self.ws), shown)
        assert not found, "\n".join(found)

    @invariant()
    def same(self) -> None:
        self.compare(self.ws.path)


def fifo(path: Path) -> bool:
    """Whether opening it would wait for somebody."""
    with contextlib.suppress(OSError):
        return stat.S_ISFIFO(path.stat().st_mode)
    return False


@contextlib.contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    """An existing regular file, open."""
    if fifo(path):
        raise OSError(errno.ESPIPE, "a FIFO")
    file = os.open(path, flags)
    try:
        yield file
    finally:
        os.close(file)


@pytest.mark.slow
@pytest.mark.timeout(0 if os.environ.get("ATOLL_MODEL") else 300)
@pytest.mark.parametrize("scratch", ["disk", "memory"])
def test_random_operations(driver: str, scratch: str, home: Path) -> None:
    """A workspace behaves as a plain folder does, and history keeps it."""
    if (driver, scratch) == ("copy", "memory"):
        pytest.skip("copy has no scratch in memory")
    project = home / "app"
    project.mkdir()
    plant(project)
    shared = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with (
        atoll.create(default_store(project)) as store,
        tempfile.TemporaryDirectory(prefix="atoll-model-", dir=shared) as memory,
    ):
        registry.record("project", project, store.path)
        store.import_folder(project, branch="main")
        settings = {"store": store, "driver": driver, "scratch": scratch, "memory": memory}
        machine = type("Machine", (Machine,), settings)
        asked = int(os.environ.get("ATOLL_MODEL") or 0)
        how = hypothesis.settings(
            max_examples=asked or 10,
            stateful_step_count=40,
            deadline=None,
            derandomize=not asked,
            database=None,
            phases=[hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        run_state_machine_as_test(machine, settings=how)
