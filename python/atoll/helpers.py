"""How atoll's long-lived helper processes are started: the history server, its supervisor, the launcher."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["command"]

_CODE = (
    "import sys; sys.path.insert(0, {parent!r}); from atoll import _native;"
    " sys.exit(_native.main(sys.argv[1:]))"
)


def command() -> list[str]:
    """A command whose further arguments reach the core's `main`. The interpreter starts without the user's
    site packages and environment: it takes a few milliseconds, and nothing there can change what runs."""
    parent = os.fspath(Path(__file__).resolve().parent.parent)
    return [sys.executable, "-I", "-S", "-c", _CODE.format(parent=parent)]
