"""Commands in workspaces: `Workspace.run`, `Store.run`.

A command sees its workspace at the path that was imported, in a mount namespace of its own, so that a copied
`.venv`, an editable install, a shebang or an absolute link leads into the workspace and never to the
original. Everything that it starts ends with it, its exit code is its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from atoll.run.result import CommandFailed, RunResult

if TYPE_CHECKING:
    from atoll.drivers.base import Note
    from atoll.run.launcher import Stop
    from atoll.run.whole import Run
    from atoll.store import Store
    from atoll.workspace import Workspace

__all__ = ["CommandFailed", "RunResult", "run", "run_async", "run_with_async"]

T = TypeVar("T")


def _silent(sentence: str) -> None:
    """Takes a sentence that nobody wants; `RunResult.notes` has it anyway."""


def run(
    workspace: Workspace,
    command: Sequence[str | os.PathLike[str]],
    *,
    check: bool = True,
    note: Note | None = None,
    _stop: Stop | None = None,
    **options: Any,
) -> RunResult:
    """Runs a command in a mounted workspace and returns how it ended. Nothing is committed.

    `options` are the fields of `atoll.run.command.Options`: `timeout`, `at`, `cwd`, `env`, `memory`, `cpus`,
    `pids`, `passes`, `detach_children`, and, as `subprocess.run` has them, `stdin`, `stdout`, `stderr`,
    `input`, `capture_output`, `text`.

    Raises:
        CommandFailed: The exit code is not 0; `check=False` leaves it to the caller.
        Unsupported: A limit, `at` or `passes` cannot be had here.
        KeyboardInterrupt: After the command was interrupted and has ended.
    """
    from atoll.run.command import Options, carry_out

    result, interrupt = carry_out(workspace, command, Options(**options), note=note or _silent, stop=_stop)
    if interrupt is not None:
        raise interrupt
    return result.check() if check else result


async def run_async(
    workspace: Workspace, command: Sequence[str | os.PathLike[str]], *, check: bool = True, **options: Any
) -> RunResult:
    """`run` as a coroutine. Cancelling it ends the command first."""
    return await _stoppable(run, workspace, command, check=check, **options)


async def run_with_async(
    store: Store, command: Sequence[str | os.PathLike[str]], *, check: bool = True, **keywords: Any
) -> Run:
    """`Store.run` as a coroutine. Cancelling it ends the command first; its work is committed."""
    from atoll.run.whole import run_with

    return await _stoppable(run_with, store, command, check=check, **keywords)


async def _stoppable(work: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
    import asyncio

    from atoll._async import in_thread
    from atoll.run.launcher import Stop

    stop = Stop()
    task = asyncio.ensure_future(in_thread(work, *arguments, _stop=stop, **keywords))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()
        raise
