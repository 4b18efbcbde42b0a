"""`atoll exec`: a command in a workspace that is there, or on a branch that is mounted for it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from atoll.errors import Busy, NotFound
from atoll.run.command import Options, PathLike, carry_out
from atoll.run.result import RunResult
from atoll.run.whole import commit_result

if TYPE_CHECKING:
    from atoll.drivers.base import Note, Progress
    from atoll.store import Store
    from atoll.workspace import Workspace

__all__ = ["run_in"]


def run_in(
    store: Store,
    branch: str,
    command: Sequence[PathLike],
    options: Options,
    *,
    commit: bool,
    message: str | None,
    record_command: bool,
    note: Note,
    progress: Progress | None = None,
    patience: contextlib.AbstractContextManager[object] | None = None,
) -> tuple[RunResult, str | None]:
    """Runs a command in the branch's workspace and returns how it ended and, with `commit`, what it left. A
    workspace that was not mounted is unmounted again; what the command changed is kept for the next mount.

    Raises:
        NotFound: There is no such branch.
        KeyboardInterrupt: After an interrupted command's work was kept.
    """
    workspace, was_mounted = _ready(store, branch, note, progress)
    try:
        result, interrupt = carry_out(workspace, command, options, note=note)
    except BaseException:
        if not was_mounted:
            with contextlib.suppress(Busy):
                workspace.umount()
        raise
    with patience or contextlib.nullcontext():
        done = None
        if commit and result.started:
            done = commit_result(workspace, result, message, record_command, progress)
        if not was_mounted and not result.left_behind_alive:
            # Another command may use it by now: the last one unmounts it.
            with contextlib.suppress(Busy, NotFound):
                left = workspace.umount(note=note)
                if left.kept:
                    note(
                        f"{left.changes} changed paths of '{branch}' are not committed; `atoll commit "
                        f"{branch}` keeps "
                        f"them, `atoll mount {branch}` shows them."
                    )
    if interrupt is not None:
        raise interrupt
    return result, done


def _ready(store: Store, branch: str, note: Note, progress: Progress | None) -> tuple[Workspace, bool]:
    for workspace in store.workspaces():
        if workspace.branch == branch and workspace.mounted:
            return workspace, True
    try:
        return store.mount(branch, note=note, progress=progress), False
    except Busy:
        # Somebody mounted it between the look and the mount.
        return store.workspace(branch), True
