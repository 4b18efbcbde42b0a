"""The loops of `calls`: each goes round many times and gives the time of every call.

`python -m atoll.lab.suites.call_loops` does each of them once and prints when instead of how long: that is
what runs under a tracer.
"""

from __future__ import annotations

import gc
import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from atoll.lab.model import CheckFailed, Options
from atoll.lab.tracing import Window
from atoll.lab.trees import Blocks

__all__ = ["Loop", "Pass", "loops"]

SMALL = 4096

Pass = dict[str, list[int]]
"""Nanoseconds of each call, by step."""
Note = Callable[[str, int], None]
"""Takes the name of a part and its number of calls; called before and after it."""

_clock = time.perf_counter_ns


@dataclass(frozen=True)
class Loop:
    """One kind of call, or a cycle of some."""

    name: str
    steps: tuple[str, ...]
    """The rows that it fills. The last one is the loop's whole: its total decides which pass is shown."""
    parts: tuple[str, ...]
    """What it is made of one after the other, for the tracer."""
    bytes: int
    files: int
    once: Callable[[Note], Pass]
    """Goes round in the current folder, which it leaves as it was; raises `CheckFailed` when what it wrote is
    not there."""


def loops(options: Options) -> list[Loop]:
    """All of them, at the size that the options ask for."""
    files, writes = options.count(2000, 50), options.count(20_000, 200)
    large, larger, flushed = options.count(256, 16), options.count(32, 4), options.count(200, 10)
    seed = options.seed
    return [
        Loop("empty call", ("empty call",), (), 0, 0, lambda note: _empty(writes)),
        Loop(
            "new file",
            ("create+open", "first write", "close", "delete", "full cycle"),
            ("create, write and close", "delete"),
            files * SMALL,
            files,
            lambda note: _new_file(files, Blocks(SMALL, seed), note),
        ),
        _append("append 4 KiB", SMALL, writes, seed),
        Loop(
            "overwrite 4 KiB",
            ("overwrite 4 KiB",),
            ("overwrite 4 KiB",),
            writes * SMALL,
            1,
            lambda note: _overwrite(writes, Blocks(SMALL, seed), random.Random(seed), note),
        ),
        _append("append 64 KiB", 16 * SMALL, large, seed),
        _append("append 1 MiB", 256 * SMALL, larger, seed),
        _append("append 4 KiB + fsync", SMALL, flushed, seed, flush=True),
    ]


def _append(name: str, size: int, count: int, seed: int, *, flush: bool = False) -> Loop:
    def once(note: Note) -> Pass:
        return {name: _appended(name, count, Blocks(size, seed), flush, note)}

    return Loop(name, (name,), (name,), count * size, 1, once)


def _empty(count: int) -> Pass:
    """What two readings of the clock and a call of Python cost: it is in each figure of the others."""
    nothing, times = len, []
    for _ in range(count):
        began = _clock()
        nothing(())
        times.append(_clock() - began)
    return {"empty call": times}


def _new_file(count: int, blocks: Blocks, note: Note) -> Pass:
    """All files are made first, then all are deleted."""
    create: list[int] = []
    write: list[int] = []
    close: list[int] = []
    delete: list[int] = []
    names = [f"n{index:06d}" for index in range(count)]
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    note("create, write and close", count)
    for index, name in enumerate(names):
        data = blocks[index]
        began = _clock()
        descriptor = os.open(name, flags, 0o644)
        opened = _clock()
        os.write(descriptor, data)
        written = _clock()
        os.close(descriptor)
        closed = _clock()
        create.append(opened - began)
        write.append(written - opened)
        close.append(closed - written)
    note("create, write and close", count)
    check(names, blocks)
    note("delete", count)
    for name in names:
        began = _clock()
        os.unlink(name)
        delete.append(_clock() - began)
    note("delete", count)
    if os.listdir():
        raise CheckFailed(f"{len(os.listdir())} files are left")
    cycle = [sum(steps) for steps in zip(create, write, close, delete, strict=True)]
    return {
        "create+open": create,
        "first write": write,
        "close": close,
        "delete": delete,
        "full cycle": cycle,
    }


def _appended(name: str, count: int, blocks: Blocks, flush: bool, note: Note) -> list[int]:
    times = []
    descriptor = os.open("appended", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
    note(name, count)
    for index in range(count):
        data = blocks[index]
        began = _clock()
        os.write(descriptor, data)
        if flush:
            os.fsync(descriptor)
        times.append(_clock() - began)
    note(name, count)
    os.close(descriptor)
    check_blocks("appended", range(count), blocks)
    os.unlink("appended")
    return times


def _overwrite(count: int, blocks: Blocks, rng: random.Random, note: Note) -> Pass:
    """Each block of a file once, in random order, with other bytes than it had."""
    times = []
    descriptor = os.open("overwritten", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    for index in range(count):
        os.write(descriptor, blocks[count + index])
    os.fsync(descriptor)
    order = list(range(count))
    rng.shuffle(order)
    note("overwrite 4 KiB", count)
    for index in order:
        data = blocks[index]
        began = _clock()
        os.pwrite(descriptor, data, index * SMALL)
        times.append(_clock() - began)
    note("overwrite 4 KiB", count)
    os.close(descriptor)
    check_blocks("overwritten", range(count), blocks)
    os.unlink("overwritten")
    return {"overwrite 4 KiB": times}


def check(names: Sequence[str], blocks: Blocks) -> None:
    """Each file holds its block. Raises `CheckFailed`."""
    for index, name in enumerate(names):
        check_blocks(name, (index,), blocks)


def check_blocks(name: str, numbers: Sequence[int], blocks: Blocks) -> None:
    """A file holds these blocks and nothing else. Raises `CheckFailed`."""
    with open(name, "rb") as file:
        for number in numbers:
            if file.read(blocks.size) != blocks[number]:
                raise CheckFailed(f"block {number} of {name} is not what was written")
        if file.read(1):
            raise CheckFailed(f"{name} is longer than what was written")


def in_own_folder(loop: Loop, note: Note) -> Pass:
    """One pass in a new folder below the current one, without Python's garbage collector."""
    os.mkdir("pass")
    os.chdir("pass")
    gc.disable()
    try:
        return loop.once(note)
    finally:
        gc.enable()
        os.chdir("..")
        shutil.rmtree("pass", ignore_errors=True)


def main() -> int:
    """Options come on stdin; the windows of the loops go to stdout."""
    options = msgspec.json.decode(sys.stdin.buffer.read(), type=Options)
    windows: list[Window] = []
    began: dict[str, float] = {}

    def note(name: str, calls: int) -> None:
        if name in began:
            windows.append(Window(name=name, start=began.pop(name), end=time.time(), calls=calls))
        else:
            began[name] = time.time()

    for loop in loops(options):
        in_own_folder(loop, note)
    sys.stdout.buffer.write(msgspec.json.encode(windows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
