"""What history is made of, as plain immutable values: commits, entries of their trees, changes, operations,
refs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from atoll import _native

__all__ = ["Change", "Commit", "Entry", "Operation", "Ref", "RefMove", "Summary"]

FileType = Literal["file", "dir", "symlink", "fifo", "socket", "char", "block"]
ChangeKind = Literal["added", "deleted", "modified", "metadata", "renamed", "type_changed"]
RefKind = Literal["branch", "tag"]


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts over a whole tree."""

    files: int
    dirs: int
    others: int
    bytes: int
    xattrs: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A tree, its parents, and who made it, when and why."""

    id: str
    """64 hexadecimal digits."""
    tree: str
    """The tree's root hash: equal trees have equal ones, in every store."""
    content: str
    """The second hash: equal for equal content wherever it came from."""
    parents: tuple[str, ...]
    author: str
    time: datetime
    """With the author's offset from UTC."""
    time_ns: int
    """Nanoseconds since 1970, exactly."""
    message: str
    meta: Mapping[str, Any] = field(repr=False)
    """Free metadata (the command, its exit code, the import)."""
    summary: Summary = field(repr=False)

    @property
    def subject(self) -> str:
        """The first line of the message."""
        return self.message.split("\n", 1)[0]

    @classmethod
    def _of(cls, raw: _native.CommitDict) -> Commit:
        zone = timezone(timedelta(minutes=raw["utc_offset"]))
        return cls(
            id=raw["id"],
            tree=raw["tree"],
            content=raw["content"],
            parents=tuple(raw["parents"]),
            author=raw["author"],
            time=datetime.fromtimestamp(raw["time_ns"] / 1e9, zone),
            time_ns=raw["time_ns"],
            message=raw["message"],
            meta={key: json.loads(text) for key, text in raw["meta"].items()},
            summary=Summary(**raw["summary"]),
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a tree. Times are nanoseconds since 1970."""

    path_bytes: bytes
    """From the tree's root, without a leading slash; empty for the root."""
    type: FileType
    ino: int
    """The inode number that programs see in a workspace."""
    mode: int
    """The twelve permission bits."""
    uid: int
    gid: int
    size: int
    nlink: int
    rdev: int
    mtime_ns: int
    ctime_ns: int
    btime_ns: int

    @property
    def path(self) -> str:
        """The path as text; bytes that are not UTF-8 are escaped as Python's file functions do."""
        return os.fsdecode(self.path_bytes)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return os.fsdecode(self.path_bytes.rsplit(b"/", 1)[-1])

    @classmethod
    def _of(cls, raw: _native.EntryDict) -> Entry:
        return cls(
            raw["path"], raw["type"], raw["ino"], raw["mode"], raw["uid"], raw["gid"], raw["size"],
            raw["nlink"], raw["rdev"], raw["mtime_ns"], raw["ctime_ns"], raw["btime_ns"],
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """One path in which two trees differ. A renamed folder is one change."""

    kind: ChangeKind
    path_bytes: bytes
    old_path_bytes: bytes | None
    old: Entry | None
    new: Entry | None
    content_changed: bool

    @property
    def path(self) -> str:
        """The path in the new tree (of a deletion: in the old one)."""
        return os.fsdecode(self.path_bytes)

    @property
    def old_path(self) -> str | None:
        """Of a rename: the path in the old tree."""
        return None if self.old_path_bytes is None else os.fsdecode(self.old_path_bytes)

    @property
    def letter(self) -> str:
        """One letter, as `git status` has it: A, D, M, R, T, and m where only metadata differ."""
        return _LETTERS[self.kind]

    @classmethod
    def _of(cls, raw: _native.ChangeDict) -> Change:
        return cls(
            kind=raw["kind"],
            path_bytes=raw["path"],
            old_path_bytes=raw["old_path"],
            old=None if raw["old"] is None else Entry._of(raw["old"]),
            new=None if raw["new"] is None else Entry._of(raw["new"]),
            content_changed=raw["content_changed"],
        )


_LETTERS: dict[str, str] = {
    "added": "A",
    "deleted": "D",
    "modified": "M",
    "metadata": "m",
    "renamed": "R",
    "type_changed": "T",
}


@dataclass(frozen=True, slots=True)
class Ref:
    """A branch or a tag and what it names."""

    kind: RefKind
    name: str
    commit: str
    base: str
    """The commit that a branch was forked at."""
    folder: str | None
    """The host folder that its history was imported from."""

    def _state(self) -> _native.RefStateDict:
        folder = None if self.folder is None else os.fsencode(self.folder)
        return {"commit": self.commit, "base": self.base, "folder": folder}

    @classmethod
    def _of(cls, raw: _native.RefDict) -> Ref:
        folder = None if raw["folder"] is None else os.fsdecode(raw["folder"])
        return cls(raw["kind"], raw["name"], raw["commit"], raw["base"], folder)


@dataclass(frozen=True, slots=True)
class RefMove:
    """What an operation did to one ref; `None` means that it did not exist."""

    kind: RefKind
    name: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class Operation:
    """One entry of the operation log."""

    seq: int
    time: datetime
    time_ns: int
    user: str
    kind: str
    note: str
    workspace: str | None
    undoes: int | None
    moves: tuple[RefMove, ...]

    @classmethod
    def _of(cls, raw: _native.OperationDict) -> Operation:
        return cls(
            seq=raw["seq"],
            time=datetime.fromtimestamp(raw["time_ns"] / 1e9).astimezone(),
            time_ns=raw["time_ns"],
            user=raw["user"],
            kind=raw["kind"],
            note=raw["note"],
            workspace=raw["workspace"],
            undoes=raw["undoes"],
            moves=tuple(
                RefMove(
                    move["kind"],
                    move["name"],
                    None if move["old"] is None else move["old"]["commit"],
                    None if move["new"] is None else move["new"]["commit"],
                )
                for move in raw["changes"]
            ),
        )
