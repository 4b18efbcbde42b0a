"""Brings a workspace back to what a commit has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from atoll import _native
from atoll.browsing import clean
from atoll.errors import NotFound
from atoll.results import CommitResult

if TYPE_CHECKING:
    from atoll.drivers.base import Progress
    from atoll.workspace import Workspace

__all__ = ["restore", "write_state"]


def restore(
    workspace: Workspace, source: str, paths: Sequence[str], progress: Progress | None
) -> CommitResult:
    """See `Workspace.restore`; the workspace is locked."""
    if not workspace.mounted:
        raise NotFound(f"'{workspace.branch}' is not mounted; `atoll mount {workspace.branch}` mounts it.")
    commit = workspace.store.resolve(source)
    workspace._commit(f"before restore from {source}", progress=progress)
    write_state(workspace, commit, paths, progress)
    what = f"{len(paths)} paths" if paths else "everything"
    return workspace._commit(
        f"restore {what} from {source}",
        kind="restore",
        meta={"restore": {"from": commit, "paths": list(paths)}},
    )


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
