"""A host folder or an archive becomes a commit."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from atoll import _native, registry
from atoll.errors import Conflict, NotFound, Usage
from atoll.history import Ref
from atoll.results import ImportResult, _import_result

if TYPE_CHECKING:
    from atoll.drivers.base import Progress

__all__ = ["author", "import_folder", "import_tar", "request"]


def author() -> str:
    """Who commits: ATOLL_AUTHOR, else the user's name. No git is asked: its configuration may be a
    workspace's own."""
    named = os.environ.get("ATOLL_AUTHOR")
    if named:
        return named
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def request(
    *,
    branch: str,
    head: str | None,
    message: str,
    kind: str,
    note: str,
    meta: Mapping[str, Any] | None = None,
    workspace: str | None = None,
    folder: str | None = None,
    allow_empty: bool = False,
    by: str | None = None,
) -> _native.RequestDict:
    """A commit to be made, as the core takes it."""
    now = time.time_ns()
    return {
        "branch": branch,
        "head": head,
        "author": by or author(),
        "time_ns": now,
        "utc_offset": time.localtime(now // 1_000_000_000).tm_gmtoff // 60,
        "message": message,
        "meta": {key: json.dumps(value, ensure_ascii=False) for key, value in (meta or {}).items()},
        "folder": None if folder is None else os.fsencode(folder),
        "kind": kind,
        "note": note,
        "workspace": workspace,
        "allow_empty": allow_empty,
    }


def _base(store: _native.Store, branch: Ref | None, folder: str) -> str | None:
    """The folder's last import: on the branch, else on any other branch that remembers the folder."""
    raw = os.fsencode(folder)
    candidates = [branch] if branch is not None else []
    candidates += [ref for ref in map(Ref._of, store.refs()) if ref.kind == "branch" and ref.folder == folder]
    for ref in candidates:
        found = _native.last_import(store, ref.commit, raw)
        if found is not None:
            return found
    return None


def _excludes(store: _native.Store, base: str | None, given: Iterable[str] | None) -> list[str]:
    """What to leave out: as said, else as in the folder's last import."""
    if given is not None:
        return list(given)
    if base is None:
        return []
    kept = json.loads(store.commit(base)["meta"].get("exclude", "[]"))
    return [str(pattern) for pattern in kept]


def _refuse_shown_workspace(store: _native.Store, folder: Path) -> None:
    """Inside of a command the imported folder's path shows a workspace: that is committed, not imported."""
    inside = os.environ.get("ATOLL_WORKSPACE")
    for record in store.workspaces() if inside is not None else ():
        where = record["mountpoint"]
        if record["id"] != inside or where is None or not os.path.exists(where):
            continue
        if os.path.samefile(where, folder):
            branch = record["branch"]
            raise Usage(
                f"{folder} shows the workspace '{branch}' here; `atoll commit` keeps what changed in it."
            )


def import_folder(
    store: _native.Store,
    folder: str | os.PathLike[str],
    *,
    branch: str,
    message: str | None,
    exclude: Iterable[str] | None,
    skip_unreadable: bool,
    replace: bool,
    meta: Mapping[str, Any] | None,
    progress: Progress | None,
    kind: str = "import",
) -> ImportResult:
    """See `Store.import_folder`."""
    source = Path(os.path.realpath(os.path.expanduser(folder)))
    if not source.exists():
        raise NotFound(f"There is no folder {source} to import.")
    if not source.is_dir():
        raise Usage(f"{source} is not a folder; import the folder that it is in, or `--tar` for an archive.")
    _refuse_shown_workspace(store, source)
    raw = store.get_ref("branch", branch)
    ref = None if raw is None else Ref._of(raw)
    if ref is not None and ref.folder not in (None, str(source)) and not replace:
        raise Conflict(
            f"Branch '{branch}' was imported from {ref.folder}, not from {source}; import to another branch"
            " with --branch, or give --replace when the folder has moved."
        )
    base = _base(store, ref, str(source))
    excludes = _excludes(store, base, exclude)
    done = _native.import_folder(
        store,
        request(
            branch=branch,
            head=None if ref is None else ref.commit,
            message=message or f"import {source.name or source}",
            kind=kind,
            note=f"{kind} {source} to {branch}" if kind == "import" else f"{message} to {source}",
            meta={**(meta or {}), **({"exclude": excludes} if excludes else {})},
            folder=str(source),
        ),
        source,
        base=base,
        excludes=excludes,
        skip_unreadable=skip_unreadable,
        progress=progress,
    )
    registered = registry.find("project", source)
    if registered is None:
        registry.record("project", source, Path(store.dir))
    return _import_result(done)


def import_tar(
    store: _native.Store,
    source: str | os.PathLike[str] | IO[bytes],
    *,
    branch: str,
    message: str | None,
    progress: Progress | None,
) -> ImportResult:
    """See `Store.import_tar`."""
    raw = store.get_ref("branch", branch)
    head = None if raw is None else raw["commit"]
    if not hasattr(source, "fileno"):
        with open(os.path.expanduser(source), "rb", buffering=0) as file:
            return import_tar(store, file, branch=branch, message=message, progress=progress)
    done = _native.import_tar(
        store,
        request(
            branch=branch,
            head=head,
            message=message or "import tar",
            kind="import",
            note=f"import a tar to {branch}",
        ),
        source.fileno(),
        base=head,
        progress=progress,
    )
    return _import_result(done)
