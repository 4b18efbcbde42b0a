"""How results are printed: JSON with versioned keys, bytes as they are, tables, sizes, times, colours."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atoll.history import Change, Commit, Entry, Operation, Ref

__all__ = [
    "SCHEMA",
    "age",
    "change_json",
    "colour",
    "commit_json",
    "entry_json",
    "operation_json",
    "path_json",
    "print_json",
    "print_names",
    "ref_json",
    "shown",
    "size",
    "table",
    "time_json",
]

#: The version of every JSON document's keys.
SCHEMA = 1


def print_json(document: Mapping[str, Any]) -> None:
    """One document on one line, with its schema number first."""
    print(json.dumps({"schema": SCHEMA, **document}, ensure_ascii=True))


def path_json(path: bytes, key: str = "path") -> dict[str, str]:
    """`path`, and beside it `path_b64` when the name is not UTF-8 (then `path` has U+FFFD for what it cannot
    show)."""
    try:
        return {key: path.decode("utf-8")}
    except UnicodeDecodeError:
        return {key: path.decode("utf-8", "replace"), f"{key}_b64": base64.b64encode(path).decode("ascii")}


def time_json(ns: int, minutes: int | None = None) -> str:
    """ISO 8601 in UTC with all nine digits."""
    seconds, nanoseconds = divmod(ns, 1_000_000_000)
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{nanoseconds:09d}Z"


def entry_json(entry: Entry) -> dict[str, Any]:
    """One file of a tree."""
    return {
        **path_json(entry.path_bytes),
        "type": entry.type,
        "mode": f"{entry.mode:04o}",
        "uid": entry.uid,
        "gid": entry.gid,
        "size": entry.size,
        "nlink": entry.nlink,
        "ino": entry.ino,
        "rdev": entry.rdev,
        "mtime": time_json(entry.mtime_ns),
        "ctime": time_json(entry.ctime_ns),
        "btime": time_json(entry.btime_ns),
    }


def change_json(change: Change) -> dict[str, Any]:
    """One changed path."""
    document: dict[str, Any] = {"kind": change.kind, **path_json(change.path_bytes)}
    if change.old_path_bytes is not None:
        document |= path_json(change.old_path_bytes, "old_path")
    document["content_changed"] = change.content_changed
    document["old"] = None if change.old is None else entry_json(change.old)
    document["new"] = None if change.new is None else entry_json(change.new)
    return document


def commit_json(commit: Commit) -> dict[str, Any]:
    """One commit."""
    return {
        "id": commit.id,
        "tree": commit.tree,
        "content": commit.content,
        "parents": list(commit.parents),
        "author": commit.author,
        "time": commit.time.isoformat(),
        "time_ns": commit.time_ns,
        "message": commit.message,
        "meta": dict(commit.meta),
        "summary": {
            "files": commit.summary.files,
            "dirs": commit.summary.dirs,
            "others": commit.summary.others,
            "bytes": commit.summary.bytes,
            "xattrs": commit.summary.xattrs,
        },
    }


def ref_json(ref: Ref) -> dict[str, Any]:
    """One branch or tag."""
    document: dict[str, Any] = {"kind": ref.kind, "name": ref.name, "commit": ref.commit, "base": ref.base}
    return document | (
        {"folder": None} if ref.folder is None else path_json(os.fsencode(ref.folder), "folder")
    )


def operation_json(operation: Operation) -> dict[str, Any]:
    """One operation."""
    return {
        "seq": operation.seq,
        "time": time_json(operation.time_ns),
        "user": operation.user,
        "kind": operation.kind,
        "note": operation.note,
        "workspace": operation.workspace,
        "undoes": operation.undoes,
        "changes": [
            {"kind": move.kind, "name": move.name, "old": move.old, "new": move.new}
            for move in operation.moves
        ],
    }


def print_names(names: Iterable[bytes], null: bool) -> None:
    """Names as they are, each ended by a newline or a zero byte. A terminal is not sent control
    characters."""
    out = sys.stdout.buffer
    end = b"\0" if null else b"\n"
    plain = null or not sys.stdout.isatty()
    for name in names:
        out.write((name if plain else shown(name).encode("utf-8", "replace")) + end)
    out.flush()


def shown(name: bytes) -> str:
    """A name for people: what cannot be shown is escaped."""
    text = name.decode("utf-8", "backslashreplace")
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii") for sign in text
    )


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def age(ns: int, now: float | None = None) -> str:
    """How long ago, in one word or two."""
    seconds = (now if now is not None else datetime.now().timestamp()) - ns / 1e9
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{max(seconds, 0):.0f} s ago"


_CODES = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "cyan": 36, "bold": 1, "dim": 2}


def colour(text: str, *styles: str) -> str:
    """Colours, where stdout is a terminal and NO_COLOR is not set."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    codes = ";".join(str(_CODES[style]) for style in styles)
    return f"\x1b[{codes}m{text}\x1b[0m"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns, as wide as they must be; the head only when there are rows."""
    if not rows:
        return
    widths = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head))]

    def line(row: Sequence[str]) -> str:
        return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()

    print(colour(line(head), "dim"))
    for row in rows:
        print(line(row))
