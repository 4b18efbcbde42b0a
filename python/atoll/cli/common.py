"""What the commands share: options, the store, notes, progress."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from atoll.errors import AtollError

if TYPE_CHECKING:
    from atoll.drivers.base import Progress
    from atoll.store import Store
    from atoll.workspace import Workspace

__all__ = [
    "COMMAND",
    "REF",
    "WORKSPACE",
    "json_option",
    "note",
    "open_store",
    "progress",
    "store_option",
    "z_option",
]

F = TypeVar("F", bound=Callable[..., Any])

#: Settings of every command.
COMMAND: dict[str, Any] = {
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 110}
}


def store_option(function: F) -> F:
    """`--store DIR`."""
    return click.option(
        "--store",
        metavar="DIR",
        help=(
            "The store. Default: ATOLL_STORE, else the store of the workspace or project that one stands in."
        ),
    )(function)


def json_option(function: F) -> F:
    """`--json`."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print JSON (docs/JSON.md); errors too, on stderr."
    )(function)


def z_option(function: F) -> F:
    """`-z`."""
    return click.option(
        "-z", "null", is_flag=True, help="End each name with a zero byte instead of a newline."
    )(function)


def open_store(store: str | None) -> Store:
    """The store that the command line means."""
    import atoll

    return atoll.open(store=store)


def note(sentence: str) -> None:
    """A sentence for the person in front of the terminal, on stderr."""
    print(f"atoll: {sentence}", file=sys.stderr)


class _Progress:
    """Draws on stderr, and only when the work takes a while; rich is imported when there is something to
    draw."""

    def __init__(self, what: str) -> None:
        import time

        self._what = what
        self._from = time.monotonic() + 0.7
        self._clock = time.monotonic
        self._status: Any = None

    def __call__(self, phase: str, files: int, size: int) -> None:
        if self._status is None:
            if self._clock() < self._from:
                return
            from rich.console import Console
            from rich.status import Status

            self._status = Status("", console=Console(stderr=True), spinner="dots")
            self._status.start()
        megabytes = f", {size / 1e6:,.0f} MB" if size else ""
        self._status.update(f"{self._what}: {phase} {files:,} files{megabytes}")

    def close(self) -> None:
        if self._status is not None:
            self._status.stop()


class progress:
    """`with progress("import") as p:` gives a callback, or `None` where nobody looks at stderr."""

    def __init__(self, what: str) -> None:
        self._drawn = _Progress(what) if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" else None

    def __enter__(self) -> Progress | None:
        return self._drawn

    def __exit__(self, *_: object) -> None:
        if self._drawn is not None:
            self._drawn.close()


def _complete(kinds: tuple[str, ...]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    @functools.wraps(_complete)
    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        # Completion must never print: whatever goes wrong, there is nothing to offer.
        try:
            store = open_store(ctx.params.get("store"))
            if kinds == ("workspace",):
                names = [workspace.branch for workspace in store.workspaces()]
            else:
                names = [ref.name for ref in store.refs() if ref.kind in kinds]
        except (AtollError, OSError):
            return []
        return [name for name in names if name.startswith(incomplete)]

    return complete


#: Completion of branches and tags.
REF = _complete(("branch", "tag"))
#: Completion of branches.
BRANCH = _complete(("branch",))
#: Completion of workspaces.
WORKSPACE = _complete(("workspace",))


def workspace_of(store: str | None, name: str | None) -> Workspace:
    """The workspace that an argument means; its store is found by it when it is a path."""
    import atoll

    if store is None and name is not None and os.path.isdir(name) and "ATOLL_STORE" not in os.environ:
        from atoll import registry

        found = registry.workspace_of(name)
        if found is not None:
            return atoll.open(store=found[1]).workspace(name)
    return atoll.open(store=store).workspace(name)


def reference_or_here(store: Store, reference: str | None) -> str:
    """A reference that may be left out: then the branch of the workspace that one stands in, else `main`."""
    if reference is not None:
        return reference
    from atoll.errors import NotFound

    try:
        return store.workspace().branch
    except NotFound:
        return "main"


def split_reference(text: str) -> tuple[str, str]:
    """`COMMIT:path` taken apart; without a colon the path is the whole tree."""
    reference, _, path = text.partition(":")
    return reference, path
