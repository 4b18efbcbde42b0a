"""atoll: every agent gets an island.

A writable workspace of its own over one shared, versioned, deduplicated history:

    import atoll

    with atoll.open() as store:
        store.import_folder("~/src/app", branch="main")
        with store.fork("main", "try-1").mount() as ws:
            result = ws.run(["npm", "ci"], check=False, timeout=600)
            ws.commit(f"npm ci: exit {result.returncode}")

Names are imported when they are first used, so that `import atoll` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from atoll import errors
    from atoll.errors import AtollError
    from atoll.history import Change, Commit, Entry, Operation, Ref, Summary
    from atoll.results import ApplyResult, CommitResult, ImportResult
    from atoll.store import Branch, Store, create, open
    from atoll.workspace import Workspace

__all__ = [
    "ApplyResult",
    "AtollError",
    "Branch",
    "Change",
    "Commit",
    "CommitResult",
    "Entry",
    "ImportResult",
    "Operation",
    "Ref",
    "Store",
    "Summary",
    "Workspace",
    "__version__",
    "create",
    "errors",
    "open",
]

_HOMES = {
    "ApplyResult": "results",
    "AtollError": "errors",
    "Branch": "store",
    "Change": "history",
    "Commit": "history",
    "CommitResult": "results",
    "Entry": "history",
    "ImportResult": "results",
    "Operation": "history",
    "Ref": "history",
    "Store": "store",
    "Summary": "history",
    "Workspace": "workspace",
    "create": "store",
    "open": "store",
}

__version__: str


def __getattr__(name: str) -> object:
    import importlib

    if name == "errors":
        return importlib.import_module("atoll.errors")
    if name == "__version__":
        return importlib.import_module("atoll._native").__version__
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'atoll' has no attribute {name!r}")
    return getattr(importlib.import_module(f"atoll.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
