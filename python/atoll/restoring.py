"""Brings a workspace back to what a commit has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from atoll import _native
from atoll.browsing import clean
from atoll.results import CommitResult

if TYPE_CHECKING:
    from atoll.drivers.base import Progress
    from atoll.store import Store
    from atoll.workspace import Workspace

__all__ = ["restore", "restore_branch", "write_state"]


def restore(
    workspace: Workspace, source: str, paths: Sequence[str], progress: Progress | None
) -> CommitResult:
    """See `Workspace.restore`; the workspace is mounted and locked."""
    commit = workspace.store.resolve(source)
    workspace._commit(f"before restore from {source}", progress=progress)
    write_state(workspace, commit, paths, progress)
    what = f"{len(paths)} paths" if paths else "everything"
    return workspace._commit(
        f"restore {what} from {source}",
        kind="restore",
        meta={"restore": {"from": commit, "paths": list(paths)}},
    )


def restore_branch(
    store: Store, branch: str, source: str, paths: Iterable[str], *, progress: Progress | None
) -> CommitResult:
    """The same for a branch whose workspace is not mounted, or that has none: mounted meanwhile."""
    store.resolve(source)  # Before anything is mounted for it.
    with store.mount(branch) as workspace:
        return workspace.restore(source, paths, progress=progress)


def write_state(workspace: Workspace, commit: str, paths: Sequence[str], progress: Progress | None) -> None:
    """Makes the mounted folder, which equals its head, hold what `commit` has at `paths` (none:
    everywhere)."""
    _native.apply_changes(
        workspace.store.native,
        workspace.head,
        commit,
        workspace.path,
        journal=workspace.folder / "restore",
        paths=[clean(path) for path in paths],
        all=True,
        force=False,
        times=True,
        progress=progress,
    )
