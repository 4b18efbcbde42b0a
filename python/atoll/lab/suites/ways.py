"""Places for suites that compare ways to do something, not folders."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from atoll.lab.model import Handle, Target
from atoll.lab.targets.path import barrier_of

__all__ = ["WayTarget"]


class WayTarget(Target):
    """The lab's own folder on the disk, or, where a way needs a file system of its own, another target
    below it.

    Its kind is `SUITE:WAY`: by it a sample knows what to do. Its name says the way in words.
    """

    title = "a way of its suite"

    def __init__(
        self, kind: str, name: str, below: Target | None = None, facts: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(name, kind)
        self.kind = kind  # type: ignore[misc]  # a suite has several
        self._below = below
        self._facts = dict(facts or {})

    def missing(self) -> str | None:
        return self._below.missing() if self._below else None

    def start(self, scratch: Path) -> Handle:
        if self._below is None:
            root, barrier = os.fspath(scratch), barrier_of(scratch)
        else:
            self.cleanup.callback(self._below.stop)
            handle = self._below.start(scratch)
            root, barrier = handle.root, handle.barrier
        return Handle(
            name=self.name,
            kind=self.kind,
            root=root,
            scratch=os.fspath(scratch),
            barrier=barrier,
            facts=self._facts,
        )

    def versions(self) -> dict[str, str]:
        return self._below.versions() if self._below else {}
