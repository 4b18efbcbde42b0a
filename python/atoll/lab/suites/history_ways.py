"""The ways to keep a history that `history` compares: atoll, git, btrfs snapshots, borg."""

from __future__ import annotations

import abc
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import atoll
from atoll.lab.git import GIT
from atoll.lab.model import CheckFailed
from atoll.lab.work import Work, make_durable

__all__ = ["WAYS", "Way"]


class Way(abc.ABC):
    """One way, in the folder of a sample. `tree` is what changes between two commits."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.tree = work.folder / "tree"
        self.kept = work.folder / "kept"

    @abc.abstractmethod
    def begin(self) -> None:
        """Makes what will hold the history."""

    @abc.abstractmethod
    def commit(self, number: int) -> None:
        """Keeps the present state of `tree` under this number."""

    def size(self) -> int:
        """Bytes of all files that hold the history."""
        return sum(
            os.lstat(os.path.join(at, name)).st_size for at, _, names in os.walk(self.kept) for name in names
        )

    def pack(self) -> None:  # noqa: B027
        """The way's own clean-up for size; nothing by default."""

    @abc.abstractmethod
    @contextmanager
    def read(self, number: int) -> Iterator[Path]:
        """A folder with what was kept under this number."""

    def end(self) -> None:  # noqa: B027
        """Lets go of everything."""


class AtollWay(Way):
    """Imports of the folder, in process; every commit is read through the history mount, or exported where
    nothing may be mounted."""

    def begin(self) -> None:
        # The server that shows the history is this sample's own, and ends soon after it.
        run = self.work.folder / "run"
        run.mkdir(mode=0o700)
        os.environ |= {"XDG_RUNTIME_DIR": os.fspath(run), "ATOLL_SERVER_IDLE": "1"}
        self.store = atoll.create(self.kept)
        self.commits: list[str] = []

    def commit(self, number: int) -> None:
        self.commits.append(self.store.import_folder(self.tree).commit)

    def pack(self) -> None:
        self.store.gc(thorough=True)

    def size(self) -> int:
        # An open database keeps a log beside it; closing it is its checkpoint.
        self.store.close()
        size = super().size()
        self.store = atoll.open(store=self.kept)
        return size

    @contextmanager
    def read(self, number: int) -> Iterator[Path]:
        from atoll import _native, helpers
        from atoll.errors import AtollError

        commit = self.commits[number]
        try:
            yield Path(os.fsdecode(_native.history_path(self.store.native, helpers.command(), commit)))
            return
        except AtollError:
            if os.geteuid() == 0:
                raise
        out = self.work.folder / "out"
        self.store.export(commit, out)
        yield out
        shutil.rmtree(out)

    def end(self) -> None:
        self.store.close()
        run = os.fsencode(self.work.folder / "run")
        deadline = time.monotonic() + 30
        while any(run in line for line in Path("/proc/self/mounts").read_bytes().splitlines()):
            if time.monotonic() > deadline:
                raise CheckFailed("the history server did not end by itself")
            time.sleep(0.05)


class GitWay(Way):
    """git add and git commit of everything, ignored files too, without filters; at the end git's own best
    pack."""

    def begin(self) -> None:
        self.git = (*GIT, f"--git-dir={self.kept}", f"--work-tree={self.tree}")
        self.work.run((*GIT, "init", "-q", "--bare", os.fspath(self.kept)))
        (self.kept / "info").mkdir(exist_ok=True)
        (self.kept / "info" / "attributes").write_text("* -text -ident !filter\n")
        self.work.run((*GIT, f"--git-dir={self.kept}", "config", "core.bare", "false"))

    def commit(self, number: int) -> None:
        self.work.run((*self.git, "add", "-A", "-f", "."), cwd=self.tree)
        self.work.run((*self.git, "commit", "-q", "--allow-empty", "-m", str(number)))
        self.work.run((*self.git, "tag", f"n{number}"))

    def pack(self) -> None:
        self.work.run((*self.git, "repack", "-adfq", "--depth=50", "--window=250"))
        self.work.run((*self.git, "prune"))

    def size(self) -> int:
        """Objects alone: packs with their indexes, and loose ones."""
        objects = self.kept / "objects"
        return sum(
            os.lstat(os.path.join(at, name)).st_size for at, _, names in os.walk(objects) for name in names
        )

    @contextmanager
    def read(self, number: int) -> Iterator[Path]:
        out = self.work.folder / "out"
        out.mkdir()
        # -o: a file's time is of no interest here.
        self.work.shell(f"git --git-dir='{self.kept}' archive --format=tar n{number} | tar xmf - -C '{out}'")
        yield out
        shutil.rmtree(out)


class BtrfsWay(Way):
    """A read-only snapshot of the subvolume that the tree lies in; the space that the file system counts as
    used."""

    def begin(self) -> None:
        self.kept.mkdir()
        self.work.run(("btrfs", "subvolume", "create", os.fspath(self.tree)))
        make_durable(self.work.handle.barrier)
        self.empty = self._used()

    def _used(self) -> int:
        found = os.statvfs(self.kept)
        return (found.f_blocks - found.f_bfree) * found.f_frsize

    def commit(self, number: int) -> None:
        self.work.run(
            ("btrfs", "subvolume", "snapshot", "-r", os.fspath(self.tree), os.fspath(self.kept / str(number)))
        )

    def size(self) -> int:
        make_durable(self.work.handle.barrier)
        return self._used() - self.empty

    @contextmanager
    def read(self, number: int) -> Iterator[Path]:
        yield self.kept / str(number)

    def end(self) -> None:
        for each in [*self.kept.iterdir(), self.tree]:
            subprocess.run(
                ["btrfs", "subvolume", "delete", os.fspath(each)], capture_output=True, check=False
            )


class BorgWay(Way):
    """borg create with zstd, without encryption; compact at the end."""

    def begin(self) -> None:
        base = self.work.folder / "borg"
        os.environ |= {
            "BORG_BASE_DIR": os.fspath(base),
            "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes",
            "BORG_RELOCATED_REPO_ACCESS_IS_OK": "yes",
        }
        self.work.run(("borg", "init", "-e", "none", os.fspath(self.kept)))

    def commit(self, number: int) -> None:
        create = ("borg", "create", "--compression", "zstd", f"{self.kept}::n{number}", ".")
        self.work.run(create, cwd=self.tree)

    def pack(self) -> None:
        self.work.run(("borg", "compact", os.fspath(self.kept)))

    @contextmanager
    def read(self, number: int) -> Iterator[Path]:
        out = self.work.folder / "out"
        out.mkdir()
        self.work.run(("borg", "extract", f"{self.kept}::n{number}"), cwd=out)
        yield out
        shutil.rmtree(out)


#: Ways by the kind of their target.
WAYS: dict[str, type[Way]] = {
    "history:atoll": AtollWay,
    "history:git": GitWay,
    "history:btrfs": BtrfsWay,
    "history:borg": BorgWay,
}
