"""What a job with many files says about the wait for each of them; the same formula as in the HTML report."""

from __future__ import annotations

from dataclasses import dataclass

from atoll.errors import Usage

__all__ = ["PerFile", "per_file"]


@dataclass(frozen=True)
class PerFile:
    """A job's time, shared out to its files. Times in seconds."""

    local: float | None
    """What a file takes on the local disk; None without a local time."""
    other: float
    """What a file takes on the other system."""
    wait: float | None
    """What a file waits for, beyond the local disk; below zero where the other system is quicker."""
    round_trips: float | None
    """That wait in round trips; None without a round-trip time."""


def per_file(files: int, other: float, local: float | None = None, rtt: float | None = None) -> PerFile:
    """`other` and `local` are seconds of the whole job, `rtt` is seconds of one round trip.

    Raises:
        Usage: a number that makes no sense.
    """
    if files < 1:
        raise Usage("A job without files has no time per file; give --files a number above 0.")
    if other < 0 or (local is not None and local < 0):
        raise Usage("A time below zero makes no sense; give the seconds that the job took.")
    if rtt is not None and rtt <= 0:
        raise Usage("A round trip takes more than no time; give --rtt as 0.5ms.")
    wait = None if local is None else (other - local) / files
    return PerFile(
        local=None if local is None else local / files,
        other=other / files,
        wait=wait,
        round_trips=None if wait is None or rtt is None else wait / rtt,
    )
