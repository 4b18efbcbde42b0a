"""Finds the store that a command or a program means: named, in the environment, by workspace, by project."""

from __future__ import annotations

import os
from pathlib import Path

from atoll import _native, registry
from atoll.errors import NoStore, Usage
from atoll.places import default_store

__all__ = ["create_store", "find_store", "store_for_import"]


def find_store(
    start: str | os.PathLike[str] | None = None, store: str | os.PathLike[str] | None = None
) -> Path:
    """The store's folder. Order: `store`, `ATOLL_STORE`, the workspace that `start` (default: the current
    folder) lies in, the registered project that it lies in.

    Raises `NoStore` when there is none."""
    if store is not None:
        return Path(os.path.abspath(os.path.expanduser(store)))
    named = os.environ.get("ATOLL_STORE")
    if named:
        return Path(os.path.abspath(named))
    here = os.path.realpath(os.path.expanduser(start if start is not None else os.curdir))
    found = registry.workspace_of(here) or registry.project_of(here)
    if found is None:
        raise NoStore(
            f"{here} belongs to no store; `atoll import` in the project's folder makes one, `--store DIR` or"
            " ATOLL_STORE names another."
        )
    return found[1]


def create_store(folder: Path, profile: str = "full") -> _native.Store:
    """Makes a store in a folder that does not exist or is empty, with the folders above it."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Usage(
            f"The store cannot be made at {folder}: {error.strerror}; choose another place with --store."
        ) from error
    return _native.Store.create(folder, profile)


def store_for_import(
    folder: Path, store: str | os.PathLike[str] | None, profile: str = "full"
) -> tuple[_native.Store, bool]:
    """The store that `folder` is imported into, and whether it was made just now. A named place that holds
    nothing yet becomes a store; without one the project gets its own beside the others of this user."""
    try:
        place = find_store(folder, store)
    except NoStore:
        place = default_store(folder)
    if (place / "atoll.toml").exists():
        return _native.Store.open(place), False
    if place.exists() and any(place.iterdir()):
        # The core says what is wrong with it: no store, or a damaged one.
        return _native.Store.open(place), False
    return create_store(place, profile), True
