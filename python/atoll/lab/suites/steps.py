"""What a process of `smallfile` or `mdtest` does to its share of the files: system calls in a loop, and
nothing that Python's library would add. A path is a string."""

from __future__ import annotations

import os
from collections.abc import Sequence

from atoll.lab.model import CheckFailed
from atoll.lab.trees import Blocks

__all__ = [
    "XATTR",
    "append",
    "chmod",
    "create",
    "create_empty",
    "delete",
    "get_xattr",
    "list_folders",
    "make_folders",
    "open_close",
    "read",
    "remove_folders",
    "rename",
    "set_xattr",
    "stat",
]

XATTR = "user.lab"

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def create(paths: Sequence[str], blocks: Blocks, first: int) -> None:
    """A block in a new file at each path; the blocks are numbered from `first`."""
    for number, path in enumerate(paths, first):
        descriptor = os.open(path, _CREATE, 0o644)
        _write(descriptor, blocks[number])
        os.close(descriptor)


def append(paths: Sequence[str], blocks: Blocks, first: int) -> None:
    """A further block at the end of each file."""
    for number, path in enumerate(paths, first):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
        _write(descriptor, blocks[number])
        os.close(descriptor)


def read(paths: Sequence[str], blocks: Blocks, first: int, second: int) -> None:
    """Reads each file whole; it must hold the blocks numbered from `first` and then from `second`."""
    wanted = 2 * blocks.size
    for index, path in enumerate(paths):
        descriptor = os.open(path, os.O_RDONLY)
        data = os.read(descriptor, wanted + 1)
        os.close(descriptor)
        if data != blocks[first + index] + blocks[second + index]:
            raise CheckFailed(f"{path} does not hold what was written ({len(data)} bytes)")


def rename(paths: Sequence[str], to: Sequence[str]) -> None:
    """Each file to another name in its folder."""
    for path, new in zip(paths, to, strict=True):
        os.rename(path, new)


def stat(paths: Sequence[str], size: int | None = None, mode: int | None = None) -> None:
    """Attributes of each path; where `size` or `mode` is given, they must be these."""
    for path in paths:
        found = os.stat(path)
        if size is not None and found.st_size != size:
            raise CheckFailed(f"{path} has {found.st_size} bytes instead of {size}")
        if mode is not None and found.st_mode & 0o7777 != mode:
            raise CheckFailed(f"{path} has mode {found.st_mode & 0o7777:o} instead of {mode:o}")


def chmod(paths: Sequence[str], mode: int) -> None:
    """Sets the permissions of each file."""
    for path in paths:
        os.chmod(path, mode)


def set_xattr(paths: Sequence[str], value: bytes) -> None:
    """Sets an extended attribute of each file."""
    for path in paths:
        os.setxattr(path, XATTR, value)


def get_xattr(paths: Sequence[str], value: bytes) -> None:
    """Reads it; it must be `value`."""
    for path in paths:
        if os.getxattr(path, XATTR) != value:
            raise CheckFailed(f"{XATTR} of {path} is not what was set")


def list_folders(folders: Sequence[str], entries: int) -> None:
    """Reads each folder; together they must hold so many entries."""
    found = 0
    for folder in folders:
        found += len(os.listdir(folder))
    if found != entries:
        raise CheckFailed(f"the folders list {found} entries instead of {entries}")


def delete(paths: Sequence[str]) -> None:
    """Removes each file."""
    for path in paths:
        os.unlink(path)


def create_empty(paths: Sequence[str]) -> None:
    """An empty new file at each path."""
    for path in paths:
        os.close(os.open(path, _CREATE, 0o644))


def open_close(paths: Sequence[str]) -> None:
    """Opens each file to read, and closes it."""
    for path in paths:
        os.close(os.open(path, os.O_RDONLY))


def make_folders(paths: Sequence[str]) -> None:
    """A new folder at each path."""
    for path in paths:
        os.mkdir(path)


def remove_folders(paths: Sequence[str]) -> None:
    """Removes each folder, which must be empty."""
    for path in paths:
        os.rmdir(path)


def _write(descriptor: int, data: bytes) -> None:
    if (written := os.write(descriptor, data)) != len(data):
        raise CheckFailed(f"write took {written} bytes instead of {len(data)}")
