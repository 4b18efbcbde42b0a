"""Where things are on this machine: stores, managed mount points, the history mount."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

__all__ = ["cache_home", "data_home", "default_store", "history_root", "managed_mountpoint", "mounts_root"]


def data_home() -> Path:
    """`$XDG_DATA_HOME/atoll`."""
    base = os.environ.get("XDG_DATA_HOME")
    if not base or not os.path.isabs(base):
        base = os.path.expanduser("~/.local/share")
    return Path(base) / "atoll"


def cache_home() -> Path:
    """`$XDG_CACHE_HOME/atoll`: what can be made again, and may be deleted at any time."""
    base = os.environ.get("XDG_CACHE_HOME")
    if not base or not os.path.isabs(base):
        base = os.path.expanduser("~/.cache")
    return Path(base) / "atoll"


def short_digest(text: str | bytes, digits: int = 8) -> str:
    """A few hexadecimal digits that stand for a path."""
    raw = os.fsencode(text) if isinstance(text, str) else text
    return hashlib.blake2b(raw, digest_size=16).hexdigest()[:digits]


def default_store(project: Path) -> Path:
    """The place of a project's store when nobody names one: outside of the project, where `git clean` cannot
    reach."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", project.name).strip("-.") or "project"
    return data_home() / "stores" / f"{name[:40]}-{short_digest(str(project))}"


def mounts_root(store_id: str) -> Path:
    """The folder of a store's managed mount points."""
    return data_home() / "mnt" / store_id[:8]


def managed_mountpoint(store_id: str, branch: str) -> Path:
    """Where a branch is mounted when nobody says where."""
    return mounts_root(store_id) / branch


def history_root(store_id: str) -> Path:
    """The folder of a store's history mounts, for this user."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isabs(runtime):
        return Path(runtime) / "atoll" / store_id[:8]
    return Path("/run/atoll") / str(os.geteuid()) / store_id[:8]
