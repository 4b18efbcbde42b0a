"""Trees of files: bytes to fill them with, and what shows that one is whole."""

from __future__ import annotations

import functools
import hashlib
import os
import random
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

__all__ = ["Blocks", "Tree", "text", "tree_of"]

WORDS = (
    "branch commit chunk pack tree fork mount capture store history lease epoch remote driver overlay lower "
    "upper inode folder entry value return self import class async await const function struct match error"
).split()


def text(rng: random.Random, size: int) -> bytes:
    """Bytes like source text: zstd makes about 2.5 of them one."""
    out: list[str] = []
    length = 0
    while length < size:
        word = rng.choice(WORDS) if rng.random() < 0.6 else f"{rng.getrandbits(32):x}"
        out.append(word)
        length += len(word) + 1
    return " ".join(out).encode()[:size]


@functools.cache
def _pool(seed: int, size: int) -> bytes:
    return text(random.Random(seed), size)


class Blocks:
    """Blocks of text of one size, each with its number in front, so that no two are alike. Cheap enough to
    be made while a clock runs: a slice of one mebibyte that was made before."""

    HEAD = 16

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self._pool = _pool(seed, (1 << 20) + size)

    def __getitem__(self, number: int) -> bytes:
        start = number * 4099 % (1 << 20)
        return b"%015d\n" % number + self._pool[start : start + self.size - self.HEAD]


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """What a folder holds, in three figures. Two folders with equal ones hold the same files."""

    files: int
    """Regular files and symbolic links."""
    bytes: int
    digest: str
    """Over the path, kind, executable bit and content of each, in the order of the paths."""


def tree_of(folder: Path, without: str = "") -> Tree:
    """Reads a whole tree. `without` is a name at its top that is left out, as ".git"."""
    files = size = 0
    whole = hashlib.blake2b(digest_size=16)
    for path in sorted(_files(os.fspath(folder), without)):
        found = os.lstat(path)
        if stat.S_ISLNK(found.st_mode):
            content, kind = os.fsencode(os.readlink(path)), b"l"
        else:
            with open(path, "rb") as file:
                content = file.read()
            kind = b"x" if found.st_mode & stat.S_IXUSR else b"f"
        name = os.fsencode(os.path.relpath(path, folder))
        whole.update(b"%b %d %b\0" % (kind, len(content), name))
        whole.update(content)
        files += 1
        size += len(content)
    return Tree(files=files, bytes=size, digest=whole.hexdigest())


def _files(folder: str, without: str) -> Iterator[str]:
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            if entry.name != without:
                yield from _files(entry.path, "")
        elif entry.name != without:
            yield entry.path
