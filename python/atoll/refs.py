"""Branches and tags: fork, tag, rename; each one operation, decided by compare-and-swap."""

from __future__ import annotations

from typing import Literal

from atoll import _native
from atoll.errors import NotFound
from atoll.history import Ref

__all__ = ["folder_of", "fork", "get", "move", "rename_branch", "tag", "untag"]


def get(store: _native.Store, name: str, kind: Literal["branch", "tag"] = "branch") -> Ref:
    """One ref."""
    raw = store.get_ref(kind, name)
    if raw is None:
        known = [ref["name"] for ref in store.refs() if ref["kind"] == kind]
        raise NotFound(f"There is no {kind} '{name}'{_nearest(name, known, kind)}.")
    return Ref._of(raw)


def _nearest(name: str, known: list[str], kind: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if near:
        return (
            f"; the nearest {'name is' if len(near) == 1 else 'names are'}"
            f" {', '.join(repr(each) for each in near)}"
        )
    return f"; `atoll {kind}` lists what there is"


def move(
    store: _native.Store,
    kind: str,
    note: str,
    changes: list[_native.RefChangeDict],
    workspace: str | None = None,
) -> _native.PublishedDict:
    """Publishes ref moves as one operation."""
    return _native.move_refs(
        store, {"kind": kind, "note": note, "workspace": workspace, "undoes": None, "changes": changes}
    )


def folder_of(store: _native.Store, reference: str) -> str | None:
    """The host folder that a reference's history was imported from: its branch's, else the only one there
    is."""
    name = reference.split("~", 1)[0].split("^", 1)[0].removeprefix("branch/")
    raw = store.get_ref("branch", name)
    if raw is not None:
        return Ref._of(raw).folder
    folders = {ref.folder for ref in map(Ref._of, store.refs()) if ref.folder is not None}
    return folders.pop() if len(folders) == 1 else None


def fork(store: _native.Store, base: str, name: str) -> Ref:
    """A new branch on the commit that `base` means."""
    commit = store.resolve(base)
    ref = Ref("branch", name, commit, commit, folder_of(store, base))
    change: _native.RefChangeDict = {"kind": "branch", "name": name, "old": None, "new": ref._state()}
    move(store, "fork", f"fork {base} as {name}", [change])
    return ref


def tag(store: _native.Store, name: str, reference: str) -> Ref:
    """A fixed name for a commit."""
    commit = store.resolve(reference)
    ref = Ref("tag", name, commit, commit, None)
    change: _native.RefChangeDict = {"kind": "tag", "name": name, "old": None, "new": ref._state()}
    move(store, "tag", f"tag {reference} as {name}", [change])
    return ref


def untag(store: _native.Store, name: str) -> None:
    """Takes a tag away."""
    old = get(store, name, "tag")
    move(
        store, "tag", f"delete tag {name}", [{"kind": "tag", "name": name, "old": old._state(), "new": None}]
    )


def rename_branch(store: _native.Store, old: str, new: str) -> None:
    """Gives a branch another name, and its workspace too."""
    state = get(store, old)._state()
    changes: list[_native.RefChangeDict] = [
        {"kind": "branch", "name": old, "old": state, "new": None},
        {"kind": "branch", "name": new, "old": None, "new": state},
    ]
    move(store, "branch", f"rename branch {old} to {new}", changes)
    for record in store.workspaces():
        if record["branch"] == old:
            store.put_workspace({**record, "branch": new})
