"""Everything that atoll raises: one class for each stable code of the core.

`code` is what `--json` shows and what scripts branch on, `exit_code` is what the command line ends with. The
message is one sentence that names the cause and the next step.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "Ambiguous",
    "AtollError",
    "Busy",
    "Changed",
    "Conflict",
    "Damaged",
    "Exists",
    "Interrupted",
    "InvalidName",
    "Io",
    "Moved",
    "NewerFormat",
    "NoSpace",
    "NoStore",
    "NotFound",
    "PermissionDenied",
    "StoreExists",
    "Unsupported",
    "Usage",
    "from_code",
]


class AtollError(Exception):
    """Base of all errors of atoll."""

    code: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = 70

    def __init__(
        self, message: str, *, errno: int | None = None, details: dict[str, object] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        #: The operating system's error number below it, if there is one.
        self.errno = errno
        #: What a program may want to read beside the sentence (paths, holders, names); JSON values.
        self.details: dict[str, object] = details or {}


class NoStore(AtollError):
    """There is no store at the place looked at."""

    code = "no_store"
    exit_code = 3


class StoreExists(AtollError):
    """A store, or a folder with something else in it, is already there."""

    code = "store_exists"
    exit_code = 5


class NewerFormat(AtollError):
    """The store was written by a newer version than this program."""

    code = "newer_format"
    exit_code = 13


class NotFound(AtollError):
    """No branch, tag, commit, workspace or path of this name."""

    code = "not_found"
    exit_code = 4


class Ambiguous(AtollError):
    """A prefix names more than one commit."""

    code = "ambiguous"
    exit_code = 4


class Exists(AtollError):
    """The branch, tag or workspace exists already."""

    code = "exists"
    exit_code = 5


class InvalidName(AtollError):
    """A name that cannot be a branch, tag or workspace."""

    code = "invalid_name"
    exit_code = 2


class Moved(AtollError):
    """A branch moved while its new commit was being made: a lost race."""

    code = "moved"
    exit_code = 6


class Busy(AtollError):
    """Something else holds what is needed: a mount, a lock, a running git, a process in the workspace."""

    code = "busy"
    exit_code = 7


class Damaged(AtollError):
    """Stored bytes do not match their checksum, or something that must exist is missing."""

    code = "damaged"
    exit_code = 8


class NoSpace(AtollError):
    """No space, or a quota reached."""

    code = "no_space"
    exit_code = 9


class PermissionDenied(AtollError):
    """The operating system refused for lack of a right."""

    code = "permission"
    exit_code = 10


class Unsupported(AtollError):
    """This cannot be done here (driver, kernel, file system)."""

    code = "unsupported"
    exit_code = 11


class Conflict(AtollError):
    """The target has changes of its own that would be overwritten."""

    code = "conflict"
    exit_code = 12


class Changed(AtollError):
    """A file or folder kept changing while it was read."""

    code = "changed"
    exit_code = 14


class Interrupted(AtollError):
    """The caller asked to stop."""

    code = "interrupted"
    exit_code = 130


class Usage(AtollError):
    """An argument makes no sense."""

    code = "usage"
    exit_code = 2


class Io(AtollError):
    """Any other failure of the operating system."""

    code = "io"
    exit_code = 74


_BY_CODE: dict[str, type[AtollError]] = {
    kind.code: kind
    for kind in (
        Ambiguous, Busy, Changed, Conflict, Damaged, Exists, Interrupted, InvalidName, Io, Moved, NewerFormat,
        NoSpace, NoStore, NotFound, PermissionDenied, StoreExists, Unsupported, Usage,
    )
}  # fmt: skip


def from_code(code: str, message: str, errno: int | None = None) -> AtollError:
    """The exception for an error of the core; called by `atoll._native`."""
    return _BY_CODE.get(code, AtollError)(message, errno=errno)
