"""Several processes that do one step of a piece of work at the same time. Processes, not threads: Python's
threads would wait for each other more than for the file system."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

__all__ = ["Crew"]


class Crew:
    """`prepare` hands a step to each process and waits until all of them have it; `go` lets them start
    together and returns when the last one has ended. So a clock around `go` holds neither the start of a
    process nor the sending of arguments, only two messages for each (some 0.1 ms for four).

        with Crew(4) as crew:
            crew.prepare(create, [(paths,) for paths in shares])
            with work.timed("create"):
                crew.go()
    """

    def __init__(self, size: int) -> None:
        self.size = size
        # A fork starts in milliseconds and has imported already; a sample's process has one thread.
        context = multiprocessing.get_context("fork")
        self._ends: list[Connection] = []
        self._processes = []
        for _ in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, [*self._ends, ours]), daemon=True)
            process.start()
            theirs.close()
            self._ends.append(ours)
            self._processes.append(process)

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join()

    def prepare(self, step: Callable[..., object], arguments: Sequence[tuple[Any, ...]]) -> None:
        """Hands out a step, with the arguments of each process."""
        for end, own in zip(self._ends, arguments, strict=True):
            end.send((step, own))
        for end in self._ends:
            end.recv()

    def go(self) -> None:
        """Lets all of them do it, and waits for the last. Raises what the first of them raised."""
        for end in self._ends:
            end.send_bytes(b"go")
        ended = [end.recv() for end in self._ends]
        if error := next((each for each in ended if each is not None), None):
            raise error

    def do(self, step: Callable[..., object], arguments: Sequence[tuple[Any, ...]]) -> None:
        """Both, where no clock runs."""
        self.prepare(step, arguments)
        self.go()


def _serve(end: Connection, others: Sequence[Connection]) -> None:
    # What a fork inherits would keep the pipes open when the one that gives the steps has died.
    for other in others:
        other.close()
    while True:
        try:
            step, arguments = end.recv()
            end.send(None)
            end.recv_bytes()
        except (EOFError, ConnectionError):
            return
        try:
            step(*arguments)
            end.send(None)
        except Exception as error:
            end.send(error)
