"""What a report is: a class that makes text of records. Other packages register theirs with an entry point in
the group `atoll.lab.reports`."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import ClassVar

from atoll.lab.record import Record

__all__ = ["Report"]


class Report(abc.ABC):
    """A form that records are shown in."""

    name: ClassVar[str]
    suffix: ClassVar[str]
    """Of its files, with the dot."""

    def missing(self) -> str | None:
        """A sentence that names the library which is not installed and what brings it; None when all is
        there. Asked before a run that is to end in this report."""
        return None

    @abc.abstractmethod
    def render(self, records: Sequence[Record], reference: str | None = None) -> str:
        """The whole report. `reference` names the target that others are compared with; without it, it is
        each suite's first one.

        Raises:
            Usage: no record has that target.
            Unsupported: what `missing` says.
        """
