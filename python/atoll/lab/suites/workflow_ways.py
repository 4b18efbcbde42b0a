"""The ways to give each of many agents a copy that `workflow` compares."""

from __future__ import annotations

import abc
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import atoll
from atoll.lab.git import GIT
from atoll.lab.suites.workflow_project import Project
from atoll.lab.targets.atoll import atoll_command
from atoll.lab.work import Work

__all__ = ["WAYS", "AtollWay", "Way"]


class Way(abc.ABC):
    """One way. Copies are numbered from 1."""

    def __init__(self, work: Work, project: Project) -> None:
        self.work = work
        self.project = project
        self.copies = work.folder / "copies"
        self.copies.mkdir()

    def copy(self, number: int) -> Path:
        """Where a copy is."""
        return self.copies / str(number)

    def take_in(self) -> None:  # noqa: B027
        """What has to be done once, before the first copy."""

    @abc.abstractmethod
    def make(self, count: int) -> None:
        """All copies, ready to work in."""

    def disk(self) -> int:
        """Bytes that the copies take."""
        return int(self.work.run(("du", "-s", "--block-size=1", os.fspath(self.copies))).split()[0])

    def start(self, number: int, script: str) -> subprocess.Popen[bytes]:
        """A script of bash in a copy, as an agent would run it."""
        return _start(("bash", "-c", script), self.copy(number))

    def changed(self, number: int) -> int:
        """How many files a copy has changed."""
        self.work.run((*GIT, "add", "-A"), cwd=self.copy(number))
        return len(
            self.work.run((*GIT, "diff", "--cached", "--name-only"), cwd=self.copy(number)).splitlines()
        )

    def bring(self, number: int) -> None:
        """A copy's changes as a commit of the project. Its changes were looked at before."""
        patch = self.copies / "patch"
        self.work.shell(f"git diff --cached --binary >'{patch}'", cwd=self.copy(number))
        self.work.run((*GIT, "apply", "--index", os.fspath(patch)), cwd=self.project.folder)
        self.work.run((*GIT, "commit", "-q", "-m", f"copy {number}"), cwd=self.project.folder)

    def discard(self, numbers: Sequence[int]) -> None:
        """Throws copies away."""
        self.work.run(("rm", "-rf", *(os.fspath(self.copy(number)) for number in numbers)))

    def end(self) -> None:  # noqa: B027
        """Lets go of everything."""


def _start(command: Sequence[str], cwd: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(list(command), cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


class CopyWay(Way):
    """`cp -a` of the whole project."""

    flags: tuple[str, ...] = ("--reflink=never",)

    def make(self, count: int) -> None:
        for number in range(1, count + 1):
            self.work.run(
                ("cp", "-a", *self.flags, os.fspath(self.project.folder), os.fspath(self.copy(number)))
            )


class ReflinkWay(CopyWay):
    """`cp -a --reflink=always`, on a file system that shares blocks."""

    flags = ("--reflink=always",)

    def make(self, count: int) -> None:
        before = self._used()
        super().make(count)
        self._grown = self._used() - before

    def _used(self) -> int:
        os.sync()
        found = os.statvfs(self.copies)
        return (found.f_blocks - found.f_bfree) * found.f_frsize

    def disk(self) -> int:
        # du counts shared blocks once for each copy.
        return self._grown


class WorktreeWay(Way):
    """`git worktree add`, and a fresh install of everything that git ignores."""

    def make(self, count: int) -> None:
        for number in range(1, count + 1):
            self.work.run(
                (*GIT, "worktree", "add", "-q", "-b", f"copy-{number}", os.fspath(self.copy(number))),
                cwd=self.project.folder,
            )
            self.project.install(self.work, self.copy(number))

    def changed(self, number: int) -> int:
        self.work.run((*GIT, "commit", "-q", "-a", "-m", f"copy {number}"), cwd=self.copy(number))
        return len(
            self.work.run((*GIT, "diff", "--name-only", "main", "HEAD"), cwd=self.copy(number)).splitlines()
        )

    def bring(self, number: int) -> None:
        self.work.run(
            (*GIT, "merge", "-q", "--no-edit", "-m", f"copy {number}", f"copy-{number}"),
            cwd=self.project.folder,
        )

    def discard(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self.work.run(
                (*GIT, "worktree", "remove", "--force", os.fspath(self.copy(number))), cwd=self.project.folder
            )
            self.work.run((*GIT, "branch", "-q", "-D", f"copy-{number}"), cwd=self.project.folder)


class AtollWay(Way):
    """An import, and a fork and mount for each copy (in process); work in a copy goes through `atoll exec`,
    which shows it at the project's own path."""

    def take_in(self) -> None:
        self.command = atoll_command()
        run = self.work.folder / "run"
        run.mkdir(mode=0o700)
        os.environ |= {
            "XDG_RUNTIME_DIR": os.fspath(run),
            "XDG_DATA_HOME": os.fspath(self.work.folder / "data"),
            "ATOLL_SERVER_IDLE": "1",
        }
        self.place = self.work.folder / "store"
        self.store = atoll.create(self.place)
        self.store.import_folder(self.project.folder)
        self._before = self._size()

    def _size(self) -> int:
        return int(self.work.run(("du", "-s", "--block-size=1", os.fspath(self.place))).split()[0])

    def make(self, count: int) -> None:
        for number in range(1, count + 1):
            self.store.fork("main", f"copy-{number}").mount(
                self.copy(number), driver=self.work.handle.facts["driver"]
            )

    def disk(self) -> int:
        return self._size() - self._before

    def start(self, number: int, script: str) -> subprocess.Popen[bytes]:
        command = (
            *self.command,
            "exec",
            f"copy-{number}",
            "--commit",
            "-q",
            "--store",
            os.fspath(self.place),
        )
        return _start((*command, "--", "bash", "-c", script), self.project.folder)

    def changed(self, number: int) -> int:
        # git itself writes its index when it is asked for the state; the project has its own.
        return sum(
            change.kind == "modified" and not change.path_bytes.startswith(b".git/")
            for change in self.store.diff("main", f"copy-{number}")
        )

    def bring(self, number: int) -> None:
        self.store.apply(f"copy-{number}", self.project.folder)
        self.work.run((*GIT, "commit", "-q", "-a", "-m", f"copy {number}"), cwd=self.project.folder)

    def discard(self, numbers: Sequence[int]) -> None:
        self.store.drop(*(f"copy-{number}" for number in numbers))

    def end(self) -> None:
        from atoll import _native

        for workspace in self.store.workspaces():
            workspace.umount()
        _native.stop_server(self.store.native)
        self.store.close()


#: Ways by the kind of their target.
WAYS: dict[str, type[Way]] = {
    "workflow:atoll": AtollWay,
    "workflow:worktree": WorktreeWay,
    "workflow:copy": CopyWay,
    "workflow:reflink": ReflinkWay,
}
