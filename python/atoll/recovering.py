"""What a workspace lost when the machine went down, brought back from its last commit.

A commit is on the disk when it returns; the files in the workspace that it was made of need not be, if nobody
synced them. After a power cut they can be empty, old or gone, and would look like changes that undo the
commit. Such a change is told from a person's by its time: what was changed after the commit has a later
ctime.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from atoll import machine
from atoll.restoring import write_state

if TYPE_CHECKING:
    from atoll.drivers.base import Note, Progress
    from atoll.history import Change
    from atoll.workspace import Workspace

__all__ = ["recover"]


def recover(workspace: Workspace, *, note: Note, progress: Progress | None) -> None:
    """Looks through a workspace that was mounted when the machine went down, and is mounted again; it is
    locked. What was found is committed before anything is brought back.

    Raises:
        AtollError: It could not be captured or written; the next mount tries again.
    """
    if workspace.driver == "fuse":
        # Its journal has every change up to the last sync, whole, and none behind it.
        _set(workspace, boot=machine.boot_id())
        return
    # What status has read is known by stat data, which vouch for nothing now.
    (workspace.folder / "looked").unlink(missing_ok=True)
    # What an earlier try that was cut off has touched cannot be told from a person's work any more.
    good, paths = workspace.settings.get("recover") or (workspace.head, _lost_paths(workspace, progress))
    if paths:
        _set(workspace, recover=[good, paths])
        if workspace.store.ref(workspace.branch).commit != workspace.head:
            # The branch went on without this workspace, which gets one of its own.
            moved, branch = workspace.branch, f"{workspace.branch}-recovered-{workspace.head[:8]}"
            workspace._switch(branch)
            note(f"'{moved}' moved since this workspace was mounted; it is on branch '{branch}' now.")
        # All that is there now, so that nothing that is taken for lost can be lost by that.
        message = "found after the machine went down"
        found = workspace._commit(message, kind="recover", progress=progress, trust_index=False)
        write_state(workspace, good, paths, progress)
        workspace._commit(f"bring back what {good[:12]} had", kind="recover", trust_index=False)
        note(
            f"The machine went down before all of '{workspace.branch}' was on the disk; {len(paths)} paths"
            f" were brought back from its last commit. What was found is {found.commit[:12]}."
        )
    _set(workspace, recover=None, boot=machine.boot_id())


def _set(workspace: Workspace, **values: object) -> None:
    """Durable on return."""
    place = workspace._place()
    place.settings.update(values)
    workspace._save(place)


def _lost_paths(workspace: Workspace, progress: Progress | None) -> list[str]:
    """The paths, sorted, that differ from the last commit and that nobody can have changed since."""
    since = int(workspace.settings.get("written_ns", 0))
    if workspace.head != workspace.base:
        since = max(since, workspace.store.commit(workspace.head).time_ns)
    if not since:
        return []
    changes = workspace._changes(progress, trust_index=False)
    lost = [change for change in changes if _is_lost(workspace.path, change, since)]
    return sorted({path for change in lost for path in (change.path, change.old_path) if path is not None})


def _is_lost(folder: Path, change: Change, since: int) -> bool:
    """Whether a difference from the last commit is older than that: nobody can have made it afterwards."""
    path = folder / change.path
    if change.kind == "deleted":
        # What took the name away, if somebody did, changed the folder that it was in.
        path = path.parent
        while not path.is_dir() and path != folder:
            path = path.parent
    elif change.kind == "metadata" and path.is_dir() and not path.is_symlink():
        return False
    try:
        return path.lstat().st_ctime_ns <= since
    except FileNotFoundError:
        return False
