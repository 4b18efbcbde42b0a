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
    settings = workspace.settings
    head = workspace.head
    since = int(settings.get("written_ns", 0))
    if head != workspace.base:
        since = max(since, workspace.store.commit(head).time_ns)
    if since and workspace.store.ref(workspace.branch).commit == head:
        changes = workspace._changes(progress, trust_index=False)
        lost = [change for change in changes if _is_lost(workspace.path, change, since)]
        if lost:
            workspace._commit(
                "found after the machine went down", kind="recover", progress=progress, trust_index=False
            )
            paths = {path for change in lost for path in (change.path, change.old_path) if path is not None}
            write_state(workspace, head, sorted(paths), progress)
            done = workspace._commit(f"bring back what {head[:12]} had", kind="recover", trust_index=False)
            note(
                f"The machine went down before all of '{workspace.branch}' was on the disk; {len(lost)} paths"
                f" were brought back from its last commit. What was found is {done.commit[:12]}~1."
            )
    place = workspace._place()
    place.settings["boot"] = machine.boot_id()
    workspace._save(place)


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
