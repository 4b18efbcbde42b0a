"""What the verbs of a store and a workspace return."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.history import Change

if TYPE_CHECKING:
    from atoll import _native

__all__ = [
    "ApplyResult",
    "CommitResult",
    "ExportResult",
    "ImportResult",
    "LeftOut",
    "Skipped",
    "Status",
    "UmountResult",
]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A path that an import left out, and why: `mount`, `store`, `vanished`, `unreadable`, `worktree`."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What a commit did."""

    commit: str
    """The branch's commit now: the new one, or the old one when nothing had changed."""
    changed: bool
    """Whether a commit was made."""
    operation: int | None
    stored_bytes: int
    """What the store grew by."""
    read_files: int
    """Files whose contents were read."""
    read_bytes: int


@dataclass(frozen=True, slots=True)
class ImportResult(CommitResult):
    """What an import did."""

    files: int
    dirs: int
    unchanged: int
    """Files that were taken over without a look at their contents."""
    ignored: int
    """Names left out by patterns; folders count once."""
    skipped: tuple[Skipped, ...]
    secrets: tuple[str, ...]
    """Newly read files that look like secrets."""
    rewritten: tuple[str, ...]
    """Git files whose absolute paths were made relative in the tree."""


def _commit_result(raw: _native.CommittedDict) -> CommitResult:
    published, report = raw["published"], raw["report"]
    return CommitResult(
        commit=raw["commit"],
        changed=published is not None,
        operation=published["seq"] if published else None,
        stored_bytes=published["stored_bytes"] if published else 0,
        read_files=report["read_files"],
        read_bytes=report["read_bytes"],
    )


def _import_result(raw: _native.CommittedDict) -> ImportResult:
    done, report = _commit_result(raw), raw["report"]
    return ImportResult(
        commit=done.commit,
        changed=done.changed,
        operation=done.operation,
        stored_bytes=done.stored_bytes,
        read_files=done.read_files,
        read_bytes=done.read_bytes,
        files=report["files"],
        dirs=report["dirs"],
        unchanged=report["unchanged"],
        ignored=report["ignored"],
        skipped=tuple(Skipped(os.fsdecode(path), reason) for path, reason in report["skipped"]),
        secrets=tuple(os.fsdecode(path) for path in report["secrets"]),
        rewritten=tuple(os.fsdecode(path) for path in report["rewritten"]),
    )


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What an export wrote."""

    files: int
    dirs: int
    bytes: int
    lost: tuple[tuple[str, str], ...]
    """What could not be restored: path and `owner`, `mode`, `device`, `xattr NAME`."""


def _export_result(raw: _native.ExportDict) -> ExportResult:
    lost = tuple((os.fsdecode(path), what) for path, what in raw["lost"])
    return ExportResult(raw["files"], raw["dirs"], raw["bytes"], lost)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A changed path that an apply left out, and why: `git`, `ignored`, `outside` (of the paths asked
    for)."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """What an apply did, or with `dry_run` would do."""

    folder: str
    changes: tuple[Change, ...]
    """The changes, sorted by path."""
    left_out: tuple[LeftOut, ...]
    conflicts: tuple[str, ...]
    """Paths that the folder changed too; empty unless `force` overrode them (or with `dry_run`)."""
    dry_run: bool
    lost: tuple[tuple[str, str], ...]
    """What could not be restored: path and `owner`, `mode`, `device`, `xattr NAME`."""
    kept_folders: tuple[str, ...]
    """Folders that are gone in the result but hold files of their own here, and stay."""
    kept_aside: str | None
    """Where things are that were in the way at the last moment."""
    saved: str | None
    """The commit that holds the folder's state from before."""
    commit: str | None
    """The commit that holds its state afterwards: `undo` takes both back."""


@dataclass(frozen=True, slots=True)
class Status:
    """How a workspace stands against its branch."""

    changes: tuple[Change, ...]
    """Since the last commit."""
    moved: bool
    """Whether the branch is at another commit than the workspace's last one."""


@dataclass(frozen=True, slots=True)
class UmountResult:
    """What an unmount left."""

    kept: bool
    """Whether uncommitted changes are kept for the next mount."""
    changes: int
    """How many paths they touch."""
    place: str | None
    """Where they are."""
