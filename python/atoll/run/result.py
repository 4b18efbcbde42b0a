"""How a command in a workspace ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from atoll.errors import AtollError

__all__ = ["CommandFailed", "RunResult"]


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a command ended, what it used, and what was written to the streams that were captured."""

    args: tuple[str, ...]
    """The command as it was given."""
    returncode: int
    """The command's own exit code; 128 and the signal's number when a signal ended it; 124 after its timeout;
    126 and 127 when it could not be started or found."""
    started: bool
    """Whether the command began: not with 126 and 127 of atoll's own."""
    signal: int | None
    """The number of the signal that ended it."""
    timed_out: bool
    duration_s: float
    """From start to end, in seconds."""
    cpu_s: float | None
    """Processor time of the command and all it started, in seconds."""
    peak_memory_bytes: int | None
    """See `peak_memory_of`."""
    peak_memory_of: str | None
    """`all`: the command's processes together; `largest_process`: where there is no memory controller."""
    shown_at: str
    """The folder that the command saw the workspace at."""
    namespace: str
    """`mount`, `user` (a mount namespace inside a user namespace), or `none`."""
    cgroup: bool
    """Whether its processes were in a cgroup of their own."""
    left_behind: tuple[tuple[int, str], ...] = ()
    """Processes (pid, name) that outlived the command: ended then, or with `detach_children` let go on."""
    detached: bool = False
    """Whether those were let go on."""
    notes: tuple[str, ...] = ()
    """Sentences for people: what was not as asked for."""
    stdout: Any = field(default=None, repr=False)
    stderr: Any = field(default=None, repr=False)

    @property
    def ok(self) -> bool:
        """Whether it ended with 0."""
        return self.returncode == 0

    @property
    def left_behind_alive(self) -> bool:
        """Whether processes of the command still use the workspace."""
        return self.detached and bool(self.left_behind)

    def check(self) -> RunResult:
        """Itself.

        Raises:
            CommandFailed: The exit code is not 0.
        """
        if not self.ok:
            raise CommandFailed(self)
        return self

    def meta(self, command: Sequence[str] | None) -> dict[str, Any]:
        """What a commit records of it: the value of its metadata's `run`. `command` is the masked command
        line, None leaves it out."""
        meta: dict[str, Any] = {} if command is None else {"command": list(command)}
        meta.update(
            exit_code=self.returncode,
            duration_s=round(self.duration_s, 3),
            cpu_s=None if self.cpu_s is None else round(self.cpu_s, 3),
            peak_memory_bytes=self.peak_memory_bytes,
            peak_memory_of=self.peak_memory_of,
            timed_out=self.timed_out,
        )
        if self.signal is not None:
            meta["signal"] = self.signal
        return meta


class CommandFailed(AtollError):
    """A command ended with another exit code than 0."""

    code = "command_failed"

    def __init__(self, result: RunResult) -> None:
        how = "ran into its timeout" if result.timed_out else f"ended with exit code {result.returncode}"
        super().__init__(f"The command '{result.args[0]}' {how}.", details={"returncode": result.returncode})
        self.result = result
