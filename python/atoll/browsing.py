"""Reading history: log, patches, entries, export."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from atoll import _native
from atoll.errors import NotFound
from atoll.history import Commit, Entry
from atoll.results import ExportResult, _export_result

if TYPE_CHECKING:
    from atoll.drivers.base import Progress

__all__ = ["clean", "export", "log", "patch", "stat"]


def clean(path: str | bytes) -> bytes:
    """A path as trees have it: bytes without slashes at its ends and without `.` parts."""
    parts = os.fsencode(path).split(b"/")
    return b"/".join(part for part in parts if part not in (b"", b"."))


def log(store: _native.Store, commit: str, limit: int | None) -> Iterator[Commit]:
    """The commit and its ancestors, newest first."""
    for raw in _native.ancestors(store, commit, limit):
        yield Commit._of(raw)


def patch(store: _native.Store, old: str, new: str, paths: Sequence[str]) -> bytes:
    """A patch that `git apply --binary` accepts."""
    return _native.patch(store, old, new, [clean(path) for path in paths])[0]


def stat(store: _native.Store, commit: str, path: bytes) -> Entry:
    """The entry at a path."""
    wanted = clean(path)
    raw = _native.stat(store, commit, wanted)
    if raw is None:
        raise NotFound(
            f"There is no '{os.fsdecode(wanted)}' in commit {commit[:12]}; `atoll ls {commit[:12]}` lists"
            " what there is."
        )
    return Entry._of(raw)


def export(
    store: _native.Store,
    commit: str,
    directory: str | os.PathLike[str],
    *,
    path: str | bytes,
    into_existing: bool,
    durable: bool,
    progress: Progress | None,
) -> ExportResult:
    """Writes a commit's folder to a host folder."""
    target = Path(os.path.abspath(os.path.expanduser(directory)))
    raw = _native.export_folder(
        store, commit, clean(path), target, durable=durable, into_existing=into_existing, progress=progress
    )
    return _export_result(raw)
