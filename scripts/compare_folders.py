"""Compare two folders byte for byte: names, kinds, modes, link targets, times of files, xattrs, contents."""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path

BLOCK = 1 << 20


def same_bytes(left: Path, right: Path) -> bool:
    """Whether two files hold the same bytes."""
    with left.open("rb") as a, right.open("rb") as b:
        while True:
            block = a.read(BLOCK)
            if block != b.read(BLOCK):
                return False
            if not block:
                return True


def user_xattrs(path: Path) -> dict[str, bytes]:
    """The extended attributes in the `user.` name space."""
    try:
        every = os.listxattr(path, follow_symlinks=False)
    except OSError as error:
        # A file system without xattrs says so; a history mount of a tree that has none does too.
        if error.errno == errno.ENOTSUP:
            return {}
        raise
    names = [name for name in every if name.startswith("user.")]
    return {name: os.getxattr(path, name, follow_symlinks=False) for name in names}


def difference(left: Path, right: Path, times: bool = True) -> str | None:
    """What two paths of the same name differ in, or None; `times`: whether the mtime of files counts."""
    a, b = left.lstat(), right.lstat()
    if stat.S_IFMT(a.st_mode) != stat.S_IFMT(b.st_mode):
        return "kind"
    if stat.S_ISLNK(a.st_mode):
        return None if os.readlink(left) == os.readlink(right) else "link target"
    if a.st_mode != b.st_mode:
        return "mode"
    if (a.st_uid, a.st_gid) != (b.st_uid, b.st_gid):
        return "owner"
    if user_xattrs(left) != user_xattrs(right):
        return "xattrs"
    if stat.S_ISREG(a.st_mode):
        if a.st_size != b.st_size or not same_bytes(left, right):
            return "content"
        if times and a.st_mtime_ns != b.st_mtime_ns:
            return "mtime"
    return None


def differences(
    left: Path, right: Path, leave_out: frozenset[str] = frozenset(), times: bool = True
) -> list[str]:
    """A line for each path that differs; `leave_out` names entries of the top folder to pass over."""
    found: list[str] = []
    folders = [Path()]
    while folders:
        folder = folders.pop()
        names = []
        for side in (left, right):
            entries = set(os.listdir(side / folder))
            names.append(entries - leave_out if folder == Path() else entries)
        found += [f"{folder / name} (only in {left})" for name in sorted(names[0] - names[1])]
        found += [f"{folder / name} (only in {right})" for name in sorted(names[1] - names[0])]
        for name in sorted(names[0] & names[1]):
            path = folder / name
            if reason := difference(left / path, right / path, times):
                found.append(f"{path} ({reason})")
            if (left / path).is_dir() and not (left / path).is_symlink() and reason != "kind":
                folders.append(path)
    return found


if __name__ == "__main__":
    lines = differences(Path(sys.argv[1]), Path(sys.argv[2]))
    print("\n".join(lines))
    sys.exit(1 if lines else 0)
