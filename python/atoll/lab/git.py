"""git as the suites use it: one author, and nothing of the user's configuration that would ask or wait."""

from __future__ import annotations

import shlex

from atoll.lab.model import Tool

__all__ = ["GIT", "GIT_TOOL", "SHELL_GIT"]

GIT_TOOL = Tool("git", "Debian's package git")

#: The words of a command, before its own. No clean-up in the background: it would run on into the next clock.
GIT = (
    *("git", "-c", "user.name=lab", "-c", "user.email=lab@localhost"),
    *("-c", "commit.gpgsign=false", "-c", "gc.auto=0"),
)

#: The same for a shell.
SHELL_GIT = shlex.join(GIT)
