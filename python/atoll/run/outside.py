"""What in a workspace points at the original folder: virtual environments, shebangs, `.pth` files, links.

Where a workspace is not shown at the path that was imported, such a file leads a program out of it: `pytest`
tests the original, `pip install` writes to the original. A look at a few known places says so in one line; it
is cheap, not complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Outside", "find", "sentence"]

#: Folders whose insides are not looked at for links and virtual environments.
_SKIPPED = {".git", "node_modules", "__pycache__", "target", ".tox", ".mypy_cache", ".cache"}
_DEPTH = 3
#: Directory entries looked at altogether: the look must not take longer than the mount itself.
_BUDGET = 4_000


@dataclass(frozen=True, slots=True)
class Outside:
    """A file that points at the original folder."""

    path: str
    """Relative to the workspace."""
    kind: str
    """`pyvenv.cfg`, `shebang`, `.pth`, `link`."""
    target: str


def find(root: str | os.PathLike[str], original: str | os.PathLike[str]) -> list[Outside]:
    """The files below `root` that point into `original`, as far as a quick look finds them."""
    top, origin = os.fspath(root), os.fspath(original)
    found: list[Outside] = []
    environments: list[str] = []
    for entry in _walk(top):
        if entry.is_symlink():
            target = os.readlink(entry.path)
            if _inside(target, origin) and os.path.isabs(target):
                found.append(Outside(os.path.relpath(entry.path, top), "link", target))
        elif entry.name == "pyvenv.cfg":
            environments.append(os.path.dirname(entry.path))
    for environment in environments:
        found += _environment(environment, top, origin)
    return found


def _inside(text: str, folder: str) -> bool:
    return text == folder or text.startswith(folder + "/")


def _walk(top: str) -> Iterator[os.DirEntry[str]]:
    folders = [(top, 1)]
    budget = _BUDGET
    while folders:
        folder, depth = folders.pop(0)
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        environment = any(entry.name == "pyvenv.cfg" for entry in entries)
        for entry in entries:
            budget -= 1
            if budget < 0:
                return
            yield entry
            if (
                depth < _DEPTH
                and not environment
                and entry.name not in _SKIPPED
                and entry.is_dir(follow_symlinks=False)
            ):
                folders.append((entry.path, depth + 1))


def _head(path: str, size: int) -> str:
    try:
        with open(path, "rb") as file:
            return os.fsdecode(file.read(size))
    except OSError:
        return ""


def _environment(folder: str, top: str, origin: str) -> Iterator[Outside]:
    def outside(path: str, kind: str, target: str) -> Outside:
        return Outside(os.path.relpath(path, top), kind, target)

    configuration = os.path.join(folder, "pyvenv.cfg")
    for line in _head(configuration, 4096).splitlines():
        value = line.partition("=")[2].strip()
        if origin in value:
            yield outside(configuration, "pyvenv.cfg", value)
            break
    programs = os.path.join(folder, "bin")
    for name in _names(programs):
        path = os.path.join(programs, name)
        if os.path.islink(path):
            target = os.readlink(path)
            if os.path.isabs(target) and _inside(target, origin):
                yield outside(path, "link", target)
            continue
        head = _head(path, 256)
        # pip writes `#!/bin/sh` and the interpreter in the second line when its path is long.
        if head.startswith("#!") and origin + "/" in head:
            yield outside(path, "shebang", head.splitlines()[0][2:].strip())
    for packages in Path(folder).glob("lib/python*/site-packages"):
        for name in _names(os.fspath(packages)):
            editable = name.startswith("__editable__") and name.endswith(".py")
            if name.endswith(".pth") or editable:
                path = os.path.join(packages, name)
                for line in _head(path, 65536).splitlines():
                    if origin in line:
                        target = line.strip() if not editable else origin
                        yield outside(path, ".pth", target)
                        break


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def sentence(root: str | os.PathLike[str], original: str | os.PathLike[str]) -> str | None:
    """One line for people, or None when nothing was found."""
    found = find(root, original)
    if not found:
        return None
    order = ("pyvenv.cfg", "shebang", ".pth", "link")
    parts: list[str] = []
    for kind in order:
        paths = [each.path for each in found if each.kind == kind]
        if paths:
            more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            parts.append(f"{kind} {paths[0]}{more}" if kind in ("shebang", "link") else f"{paths[0]}{more}")
    return (
        f"These point at the original {os.fspath(original)}, so programs may leave the workspace through "
        "them: "
        f"{'; '.join(parts)}."
    )
