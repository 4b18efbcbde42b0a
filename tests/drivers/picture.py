"""A folder as plain values, read by system calls alone: what two folders must have in common to be equal."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from dataclasses import dataclass, replace

BLOCK = 4096


@dataclass(frozen=True)
class Item:
    """One file. `links` are all of its paths; `data` is a digest of what is not zero."""

    kind: int
    mode: int
    uid: int
    gid: int
    size: int
    rdev: int
    mtime_ns: int
    links: tuple[bytes, ...]
    target: bytes | None
    data: str | None
    xattrs: tuple[tuple[str, bytes], ...]


Picture = dict[bytes, Item]


def _contents(path: bytes, size: int) -> str:
    """Reads what is data, by the file system's word, and leaves out zeros: a hole and stored zeros are
    equal."""
    digest = hashlib.sha256()
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        at = 0
        while at < size:
            try:
                at = os.lseek(file, at, os.SEEK_DATA)
            except OSError:
                break  # no data after this
            end = os.lseek(file, at, os.SEEK_HOLE)
            at -= at % BLOCK
            while at < end:
                block = os.pread(file, min(BLOCK, size - at), at)
                if not block:
                    return f"ends at {at} of {size}"
                if block.strip(b"\0"):
                    digest.update(b"%d:" % at + block)
                at += BLOCK
    finally:
        os.close(file)
    return digest.hexdigest()


def segments(path: str | os.PathLike[str]) -> list[tuple[int, int]]:
    """The data regions of a file, by the file system's word."""
    found = []
    file = os.open(path, os.O_RDONLY)
    try:
        at, size = 0, os.fstat(file).st_size
        while at < size:
            try:
                at = os.lseek(file, at, os.SEEK_DATA)
            except OSError:
                break
            end = os.lseek(file, at, os.SEEK_HOLE)
            found.append((at, end))
            at = end
    finally:
        os.close(file)
    return found


def _attributes(path: bytes) -> tuple[tuple[str, bytes], ...]:
    try:
        names = sorted(os.listxattr(path, follow_symlinks=False))
    except OSError as error:
        # Inherited from a commit without any attribute (docs/SEMANTICS.md).
        if error.errno != errno.EOPNOTSUPP:
            raise
        return ()
    return tuple((name, os.getxattr(path, name, follow_symlinks=False)) for name in names)


def take(folder: str | os.PathLike[str]) -> Picture:
    """Everything in a folder, and the folder itself as the empty path."""
    root = os.fsencode(folder)
    paths = [b""]
    for place, folders, names in os.walk(root):
        below = place[len(root) :].lstrip(b"/")
        paths += [os.path.join(below, name) for name in (*folders, *names)]
    groups: dict[tuple[int, int], list[bytes]] = {}
    stats = {path: os.lstat(os.path.join(root, path)) for path in sorted(paths)}
    for path, info in stats.items():
        groups.setdefault((info.st_dev, info.st_ino), []).append(path)
    found: Picture = {}
    for path, info in stats.items():
        full = os.path.join(root, path)
        links = tuple(groups[info.st_dev, info.st_ino])
        if not stat.S_ISDIR(info.st_mode):
            assert info.st_nlink == len(links), (path, info.st_nlink, links)
        regular, link = stat.S_ISREG(info.st_mode), stat.S_ISLNK(info.st_mode)
        found[path] = Item(
            kind=stat.S_IFMT(info.st_mode),
            mode=0 if link else stat.S_IMODE(info.st_mode),
            uid=info.st_uid,
            gid=info.st_gid,
            size=info.st_size if regular or link else 0,
            rdev=info.st_rdev if stat.S_ISCHR(info.st_mode) or stat.S_ISBLK(info.st_mode) else 0,
            mtime_ns=info.st_mtime_ns,
            links=links,
            target=os.readlink(full) if link else None,
            data=_contents(full, info.st_size) if regular else None,
            xattrs=_attributes(full),
        )
    return found


def without_times(picture: Picture) -> Picture:
    """The same where times cannot be compared."""
    return {path: replace(item, mtime_ns=0) for path, item in picture.items()}


def differences(one: Picture, other: Picture) -> list[str]:
    """One line for each path in which two pictures differ."""
    lines = []
    for path in sorted(one.keys() | other.keys()):
        if one.get(path) != other.get(path):
            lines.append(f"{path!r}: {one.get(path)} != {other.get(path)}")
    return lines
