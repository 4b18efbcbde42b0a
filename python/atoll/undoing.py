"""Takes an operation back: its branches, and the workspaces and folders that show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from atoll import _native, workspaces
from atoll.errors import AtollError, Busy
from atoll.history import Operation

if TYPE_CHECKING:
    from atoll.store import Store

__all__ = ["undo"]


def undo(store: Store, seq: int | None) -> Operation:
    """See `Store.undo`."""
    operation = Operation._of(_native.undo(store.native, seq))
    try:
        _follow(store, operation)
    except AtollError:
        # The branches go forward again: half an undo would be worse than none.
        for done in store.operations(20):
            if done.undoes == operation.seq:
                _native.undo(store.native, done.seq)
                break
        raise
    return operation


def _follow(store: Store, operation: Operation) -> None:
    """Brings folders and workspaces to where an undone operation left its branches."""
    moved = {move.name: move for move in operation.moves if move.kind == "branch"}
    on_them = [workspace for workspace in workspaces.every(store) if workspace.branch in moved]
    for workspace in on_them:
        if moved[workspace.branch].old is None:
            raise Busy(
                f"Branch '{workspace.branch}' has a workspace at {workspace.path}, so what made it cannot be "
                f"taken back; unmount it, or `atoll drop {workspace.branch}`.",
                details={"branch": workspace.branch},
            )
    if operation.kind == "apply":
        from atoll import applying

        applying.take_back(store, operation)
    for workspace in on_them:
        move = moved[workspace.branch]
        with workspace._locked():
            if move.old is None or workspace.head != move.new:
                continue
            if operation.kind == "restore" and workspace.mounted:
                from atoll import restoring

                restoring.write_state(workspace, move.old, [], None)
            # What the commit held is what the workspace has beyond the older one: uncommitted again.
            workspace._save(head=move.old)
