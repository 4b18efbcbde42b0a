"""Which store belongs to which folder: project folders, and the mount points of workspaces.

One small file for each folder, named by the folder's digest, replaced by rename: many processes may write at
once and nothing has to be locked. It is an index and no truth: a wiped registry costs a `--store`, nothing
else.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Literal

from atoll.places import data_home, short_digest

__all__ = ["find", "forget", "project_of", "record", "workspace_of"]

Kind = Literal["project", "workspace"]
SCHEMA = 1


def _file(kind: Kind, folder: str) -> Path:
    return data_home() / "registry" / f"{kind}-{short_digest(folder, 32)}.json"


def record(kind: Kind, folder: str | os.PathLike[str], store: Path) -> None:
    """Remembers that `folder` (an absolute path without symbolic links) belongs to `store`."""
    path = os.fspath(folder)
    file = _file(kind, path)
    file.parent.mkdir(parents=True, exist_ok=True)
    # JSON's ASCII escapes carry names that are not UTF-8 (lone surrogates) there and back.
    text = json.dumps({"schema": SCHEMA, "folder": path, "store": os.fspath(store)})
    temporary = file.with_name(f".{file.name}.{os.getpid()}.{short_digest(os.urandom(8))}")
    temporary.write_text(text, encoding="ascii")
    os.replace(temporary, file)


def forget(kind: Kind, folder: str | os.PathLike[str]) -> None:
    """Takes a folder out; one that is not there is no error."""
    _file(kind, os.fspath(folder)).unlink(missing_ok=True)


def find(kind: Kind, folder: str | os.PathLike[str]) -> Path | None:
    """The store of exactly this folder."""
    path = os.fspath(folder)
    try:
        entry = json.loads(_file(kind, path).read_text(encoding="ascii"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    if not isinstance(entry, dict) or entry.get("folder") != path or not isinstance(entry.get("store"), str):
        return None
    return Path(entry["store"])


def _nearest(kind: Kind, start: str | os.PathLike[str]) -> tuple[Path, Path] | None:
    folder = Path(os.path.realpath(start))
    for candidate in (folder, *folder.parents):
        store = find(kind, candidate)
        if store is not None:
            return candidate, store
    return None


def project_of(path: str | os.PathLike[str]) -> tuple[Path, Path] | None:
    """The nearest registered project folder at or above `path`, and its store."""
    return _nearest("project", path)


def workspace_of(path: str | os.PathLike[str]) -> tuple[Path, Path] | None:
    """The mount point of the workspace that `path` lies in, and its store."""
    return _nearest("workspace", path)
