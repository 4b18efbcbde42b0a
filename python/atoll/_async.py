"""Coroutines over the blocking verbs.

The core releases the interpreter, so a thread for each call is all it takes. The threads are atoll's own:
asyncio's default pool has too few for `gather` over many workspaces. Nothing here starts an event loop, so
notebooks work.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

__all__ = ["in_thread", "paired"]

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

#: Threads are made as they are needed; this many calls wait for the core or for a command at once.
THREADS = 256

_executors: list[Any] = []


def _executor() -> Any:
    # asyncio and its pool are imported when the first coroutine runs: the command line never needs them.
    if not _executors:
        from concurrent.futures import ThreadPoolExecutor

        _executors.append(ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="atoll"))
    return _executors[0]


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs `work` on a thread. Work that has begun is finished even when the waiting task is cancelled, so
    that no half-done mount or commit is left to a thread that nobody waits for."""
    import asyncio
    import functools

    call = functools.partial(work, *args, **kwargs)
    future: asyncio.Future[T] = asyncio.get_running_loop().run_in_executor(_executor(), call)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:
                continue
        if not future.cancelled():
            future.exception()
        raise


def paired(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """The `_async` twin of a blocking method."""

    async def twin(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await in_thread(method, self, *args, **kwargs)

    twin.__name__ = f"{method.__name__}_async"
    twin.__qualname__ = f"{method.__qualname__}_async"
    twin.__doc__ = f"`{method.__name__}` as a coroutine."
    return twin
