"""The history of a git repository as plain trees: which snapshots, how each is brought about, what it must
hold."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from atoll.lab.git import GIT
from atoll.lab.model import CheckFailed, Unavailable

__all__ = ["Entry", "Snapshots", "differences", "make_repository"]

_LINK, _SUBMODULE = 0o120000, 0o160000


@dataclass(frozen=True)
class Entry:
    """A file of a snapshot: git's mode, and the object id of its content."""

    mode: int
    blob: str


class Snapshots:
    """Evenly spaced commits of a repository, in topological order, oldest first.

    Contents come straight from the objects: a checkout would apply filters and line endings, and no file
    system under test should depend on those.
    """

    def __init__(self, repository: Path, count: int) -> None:
        """Raises `Unavailable` when it is no repository, or too young."""
        self._git = ["git", "-C", os.fspath(repository), "-c", "safe.directory=*"]
        commits = self._lines("rev-list", "--topo-order", "--reverse", "HEAD")
        if not commits:
            raise Unavailable(f"{repository} has no commits")
        count = min(count, len(commits))
        last = len(commits) - 1
        self.commits = [commits[round(index * last / max(count - 1, 1))] for index in range(count)]
        self._contents: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Snapshots:
        self._contents = subprocess.Popen(
            [*self._git, "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._contents and self._contents.stdin and self._contents.stdout
        self._contents.stdin.close()
        self._contents.stdout.close()
        self._contents.wait()

    def _lines(self, *arguments: str) -> list[str]:
        done = subprocess.run([*self._git, *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Unavailable(f"git {arguments[0]}: {done.stderr.strip().splitlines()[-1]}")
        return done.stdout.split()

    def tree(self, commit: str) -> dict[bytes, Entry]:
        """Every file and link of a commit, by path. Submodules are left out."""
        done = subprocess.run(
            [*self._git, "ls-tree", "-r", "-z", "--full-tree", commit], capture_output=True, check=True
        )
        found = {}
        for line in done.stdout.split(b"\0")[:-1]:
            head, _, path = line.partition(b"\t")
            mode, _, blob = head.split()
            if int(mode, 8) != _SUBMODULE:
                found[path] = Entry(int(mode, 8), blob.decode())
        return found

    def content(self, blob: str) -> bytes:
        """A blob's bytes. Raises `Unavailable` when the repository lacks it."""
        assert self._contents and self._contents.stdin and self._contents.stdout
        self._contents.stdin.write(blob.encode() + b"\n")
        self._contents.stdin.flush()
        head = self._contents.stdout.readline().split()
        if head[1:2] == [b"missing"]:
            raise Unavailable(f"the repository lacks the object {blob}")
        data = self._contents.stdout.read(int(head[2]))
        self._contents.stdout.read(1)
        return data

    def bring_about(self, folder: Path, before: dict[bytes, Entry], after: dict[bytes, Entry]) -> None:
        """Turns a folder that holds one snapshot into another; what both have alike is not touched."""
        root = os.fsencode(folder)
        for path in before.keys() - after.keys():
            os.unlink(os.path.join(root, path))
        for path in before.keys() - after.keys():
            above = os.path.dirname(path)
            with contextlib.suppress(OSError):
                while above:
                    os.rmdir(os.path.join(root, above))
                    above = os.path.dirname(above)
        os.makedirs(root, exist_ok=True)
        for path, entry in after.items():
            if before.get(path) == entry:
                continue
            where = os.path.join(root, path)
            os.makedirs(os.path.dirname(where), exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(where)
            data = self.content(entry.blob)
            if entry.mode == _LINK:
                os.symlink(data, where)
                continue
            with open(where, "wb") as file:
                file.write(data)
                os.fchmod(file.fileno(), entry.mode & 0o777)


def differences(folder: Path, expected: dict[bytes, Entry]) -> Iterator[str]:
    """Compares a folder with a snapshot, byte for byte: one sentence for each path that is not right."""
    root = os.fsencode(folder)
    missing = set(expected)
    for above, folders, names in os.walk(root):
        # A link to a folder is listed among the folders.
        for name in [*names, *(each for each in folders if os.path.islink(os.path.join(above, each)))]:
            where = os.path.join(above, name)
            path = os.path.relpath(where, root)
            if path == b".git":
                continue
            entry = expected.get(path)
            if entry is None:
                yield f"{os.fsdecode(path)} should not be there"
                continue
            missing.discard(path)
            found = _entry(where)
            if found != entry:
                yield f"{os.fsdecode(path)} is {found} instead of {entry}"
        if above == root:
            folders[:] = [each for each in folders if each != b".git"]
    for path in sorted(missing):
        yield f"{os.fsdecode(path)} is missing"


def _entry(path: bytes) -> Entry:
    """What git would call it."""
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        data, mode = os.readlink(path), _LINK
    else:
        with open(path, "rb") as file:
            data = file.read()
        mode = 0o100755 if status.st_mode & 0o100 else 0o100644
    digest = hashlib.sha1(b"blob %d\0" % len(data), usedforsecurity=False)
    digest.update(data)
    return Entry(mode, digest.hexdigest())


def make_repository(folder: Path, trees: Sequence[dict[str, bytes]]) -> None:
    """A repository with one commit for each tree, for a run that names none."""
    folder.mkdir(parents=True)
    subprocess.run([*GIT, "init", "-q", "-b", "main"], cwd=folder, check=True)
    before: set[str] = set()
    for number, tree in enumerate(trees):
        for path in before - tree.keys():
            (folder / path).unlink()
        for path, data in tree.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        before = set(tree)
        subprocess.run([*GIT, "add", "-A"], cwd=folder, check=True)
        subprocess.run([*GIT, "commit", "-q", "--allow-empty", "-m", str(number)], cwd=folder, check=True)
    if not before:
        raise CheckFailed("a repository needs a file")
