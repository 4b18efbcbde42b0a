"""Brings what a branch changed into a real folder, and takes that back.

The folder's state before and after is committed on the branch that was imported from it: so nothing that is
overwritten is lost, and `undo` of the apply brings the folder back."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from atoll import _native, importing, places, refs
from atoll.browsing import clean
from atoll.errors import Conflict, NotFound, Usage
from atoll.history import Change, Operation, Ref
from atoll.results import ApplyResult, LeftOut

if TYPE_CHECKING:
    from atoll.drivers.base import Progress
    from atoll.store import PathLike, Store

__all__ = ["apply", "take_back"]


def _base(store: Store, reference: str) -> str:
    """What a reference's changes are measured from: a branch's fork point, else a commit's first parent."""
    raw = store.native.get_ref("branch", reference.removeprefix("branch/"))
    if raw is not None:
        return raw["base"]
    commit = store.commit(reference)
    if not commit.parents:
        raise Usage(f"{reference} has no parent to measure its changes from; name one with --base.")
    return commit.parents[0]


def _target(store: Store, reference: str, folder: PathLike | None) -> Path:
    if folder is None:
        imported = refs.folder_of(store.native, reference)
        if imported is None:
            raise Usage(f"{reference} was not imported from a folder; name the folder with --to DIR.")
        folder = imported
    target = Path(os.path.realpath(os.path.expanduser(folder)))
    if not target.is_dir():
        raise NotFound(f"There is no folder {target} to apply to; name another with --to DIR.")
    return target


def _journal(store: Store, target: Path) -> Path:
    return store.path / "apply" / places.short_digest(str(target), 16)


def _home_branch(store: Store, target: Path) -> Ref | None:
    """The branch that was imported from the folder: `main` if it was, else the first one that is no fork."""
    found = [ref for ref in store.branches() if ref.folder == str(target)]
    imported = [
        ref
        for ref in found
        if _native.last_import(store.native, ref.commit, os.fsencode(target)) == ref.commit
    ]
    for ref in (*imported, *found):
        if ref.name == "main":
            return ref
    return imported[0] if imported else None


def apply(
    store: Store,
    reference: str,
    folder: PathLike | None,
    *,
    base: str | None,
    paths: Iterable[str],
    all: bool,
    force: bool,
    dry_run: bool,
    progress: Progress | None,
) -> ApplyResult:
    """See `Store.apply`."""
    result = store.resolve(reference)
    since = store.resolve(base) if base is not None else _base(store, reference)
    target = _target(store, reference, folder)
    journal = _journal(store, target)
    wanted = [clean(path) for path in paths]
    if not dry_run:
        _native.resume_apply(journal)
    plan = _native.plan_apply(
        store.native,
        since,
        result,
        target,
        journal=journal,
        paths=wanted,
        all=all,
        force=force,
        progress=progress,
    )
    conflicts = tuple(os.fsdecode(path) for path, _, _ in plan["conflicts"])
    if dry_run:
        return _result(target, plan, conflicts, dry_run=True)
    if any(always or not force for _, _, always in plan["conflicts"]):
        raise _refused(target, plan)
    home = _home_branch(store, target)
    saved = _record(store, target, home, f"before apply of {reference}", force and bool(conflicts), progress)
    done = _native.apply_changes(
        store.native,
        since,
        result,
        target,
        journal=journal,
        paths=wanted,
        all=all,
        force=force,
        progress=progress,
    )
    commit = None
    if saved is not None and done["changes"]:
        meta = {"apply": {"from": result, "base": since}}
        commit = importing.import_folder(
            store.native,
            target,
            branch=saved[0],
            message=f"apply {reference}",
            exclude=None,
            skip_unreadable=True,
            replace=False,
            meta=meta,
            progress=progress,
            kind="apply",
        ).commit
    return _result(target, done, conflicts, saved=saved[1] if saved else None, commit=commit, applied=done)


def _record(
    store: Store, target: Path, home: Ref | None, message: str, needed: bool, progress: Progress | None
) -> tuple[str, str] | None:
    """Commits the folder's present state; returns branch and commit. A folder that no branch was imported
    from is only recorded when something of it gets overwritten, on a branch of its own."""
    if home is None and not needed:
        return None
    branch = home.name if home is not None else f"saved/{places.short_digest(str(target))}"
    done = importing.import_folder(
        store.native,
        target,
        branch=branch,
        message=message,
        exclude=None,
        skip_unreadable=True,
        replace=False,
        meta=None,
        progress=progress,
    )
    return branch, done.commit


def _refused(target: Path, plan: _native.PlanDict) -> Conflict:
    names = [f"{os.fsdecode(path)} ({why})" for path, why, _ in plan["conflicts"]]
    listed = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    stuck = any(always for _, _, always in plan["conflicts"])
    way = (
        "put a folder back in its place"
        if stuck
        else "import the folder and merge, or overwrite with --force"
    )
    return Conflict(
        f"{target} has changes of its own at {listed}; {way}.",
        details={"conflicts": [os.fsdecode(path) for path, _, _ in plan["conflicts"]]},
    )


def _result(
    target: Path,
    plan: _native.PlanDict,
    conflicts: tuple[str, ...],
    *,
    dry_run: bool = False,
    saved: str | None = None,
    commit: str | None = None,
    applied: _native.AppliedDict | None = None,
) -> ApplyResult:
    return ApplyResult(
        folder=str(target),
        changes=tuple(Change._of(change) for change in plan["changes"]),
        left_out=tuple(LeftOut(os.fsdecode(path), why) for path, why in plan["left_out"]),
        conflicts=conflicts,
        dry_run=dry_run,
        lost=tuple((os.fsdecode(path), what) for path, what in applied["lost"]) if applied else (),
        kept_folders=tuple(os.fsdecode(path) for path in applied["kept_folders"]) if applied else (),
        kept_aside=applied["kept_aside"] if applied else None,
        saved=saved,
        commit=commit,
    )


def take_back(store: Store, operation: Operation) -> None:
    """Brings the folder of an undone apply back to what it was, unless it changed since at the same paths."""
    for move in operation.moves:
        if move.kind != "branch" or move.old is None or move.new is None:
            continue
        meta = store.commit(move.new).meta.get("import")
        folder = meta.get("folder") if isinstance(meta, dict) else None
        if folder is None or not os.path.isdir(folder):
            continue
        target = Path(folder)
        _native.apply_changes(
            store.native,
            move.new,
            move.old,
            target,
            journal=_journal(store, target),
            paths=[],
            all=True,
            force=False,
        )
