"""What a driver has to do, and what it is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from atoll import _native

__all__ = ["Capture", "Driver", "MountOptions", "Note", "Place", "Progress"]

#: Called a few times a second with the phase, files and bytes; may raise to stop the work.
Progress = Callable[[str, int, int], None]
#: Takes one sentence for the person in front of the terminal.
Note = Callable[[str], None]
#: Freezes (True) and thaws (False) the processes of a workspace.
Freeze = Callable[[bool], None]


@dataclass(frozen=True, slots=True)
class MountOptions:
    """How a workspace is to be mounted."""

    fsync: Literal["full", "commit"] = "full"
    """`commit`: what programs fsync is only durable with the next commit (overlay's `volatile`)."""
    scratch: str = "disk"
    """`disk`, or `memory[:SIZE]` for an upper in memory."""
    chosen: bool = False
    """Whether a person chose the driver: then nothing is printed about what would be better."""


@dataclass(frozen=True, slots=True)
class Place:
    """One workspace as its driver sees it."""

    store: _native.Store
    record: _native.WorkspaceDict
    folder: Path
    """`STORE/workspaces/ID`."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The driver's own, kept in the workspace's record."""

    @property
    def mountpoint(self) -> Path:
        """Where it is mounted or was last."""
        where = self.record["mountpoint"]
        assert where is not None
        return Path(where)


@dataclass(frozen=True, slots=True)
class Capture:
    """What capture needs beside the place."""

    progress: Progress | None = None
    freeze: Freeze | None = None
    """Stops the processes that write here when they never keep still."""
    trust_index: bool = True
    """Whether unchanged stat data vouch for contents."""


class Driver(Protocol):
    """Mount, capture, unmount. A driver keeps no state of its own: what has to survive is in `settings`,
    which the caller stores after `mount` and `unmount`, and in the workspace's folder."""

    @property
    def name(self) -> str:
        """As in `--driver`."""

    def unavailable(self, store_dir: Path, options: MountOptions) -> str | None:
        """Why it does not work here, in one sentence that names what would mend it; `None` when it works."""

    def is_mounted(self, place: Place) -> bool:
        """Whether the workspace is usable at its mount point now."""

    def is_cut_off(self, place: Place) -> bool:
        """Whether a workspace that is mounted has lost what it shows: the processes behind it were killed."""

    def has_content(self, place: Place) -> bool:
        """Whether there is something to capture, mounted or not."""

    def recover(self, place: Place, *, note: Note) -> None:
        """Puts in order what a crash left of an unmounted workspace; comes before `has_content` and
        `mount`."""

    def mount(self, place: Place, options: MountOptions, *, note: Note, progress: Progress | None) -> None:
        """Makes the workspace usable at its mount point, which is an existing empty folder or (after an
        unmount or a crash) what the driver left there. Uncommitted changes come back."""

    def commit(self, place: Place, request: _native.RequestDict, capture: Capture) -> _native.CommittedDict:
        """Captures and publishes."""

    def changes(self, place: Place, capture: Capture) -> list[_native.ChangeDict]:
        """What a commit would hold now, against the workspace's head."""

    def unmount(self, place: Place, *, note: Note) -> int:
        """Takes the workspace away from its mount point and returns how many paths are uncommitted: they are
        kept for the next mount; nothing is kept when there are none.

        Raises `Busy` naming process and pid while something uses it."""

    def discard(self, place: Place) -> None:
        """Removes what an unmounted workspace keeps."""
