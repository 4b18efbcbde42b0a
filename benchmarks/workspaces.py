"""Forks and mounts of small and large trees, and a hundred workspaces of one large tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import atoll
from benchmarks.harness import Options, Row, interleave, median, number, progress, scaled, settle
from benchmarks.trees import cached_small_files, real_tree
from benchmarks.work import disk_bytes, store

FORKS = 50


@contextmanager
def small_and_large(options: Options) -> Iterator[dict[str, atoll.Store]]:
    """A store with 100 files and one with 100,000."""
    large = options.count(100_000)
    with store(options) as first, store(options) as second:
        first.import_folder(cached_small_files(100))
        second.import_folder(cached_small_files(large))
        yield {"100 files": first, f"{large:,} files": second}


def fork(options: Options) -> list[Row]:
    """A fork, in process, of 100 and of 100,000 files; a sample is the mean of 50."""
    with small_and_large(options) as stores:
        serial = iter(range(10**9))

        def sample(made: atoll.Store) -> float:
            began = time.perf_counter()
            for _ in range(FORKS):
                made.fork("main", f"fork-{next(serial)}")
            return (time.perf_counter() - began) / FORKS

        samples = interleave({name: partial(sample, made) for name, made in stores.items()}, options.runs, 1)
    small, large = (median(values) for values in samples.values())
    shown = scaled(samples, 1000)
    return [
        Row("fork", shown, "ms", large * 1000, 2, "median of the large tree, ms"),
        Row("fork, large against small tree", shown, "ms", large / small, 1.3, "ratio of medians"),
    ]


def mount(options: Options) -> list[Row]:
    """Mount to the first `ls`, in process, the history server already up."""
    with small_and_large(options) as stores:
        serial = iter(range(10**9))
        holders = [made.fork("main", "holder").mount() for made in stores.values()]
        driver = holders[0].driver

        def sample(made: atoll.Store) -> float:
            branch = made.fork("main", f"mount-{next(serial)}")
            began = time.perf_counter()
            workspace = branch.mount()
            os.listdir(workspace.path)
            seconds = time.perf_counter() - began
            workspace.umount()
            return seconds

        samples = interleave({name: partial(sample, made) for name, made in stores.items()}, options.runs, 1)
        for holder in holders:
            holder.umount()
    small, large = (median(values) for values in samples.values())
    shown, notes = scaled(samples, 1000), {"driver": driver}
    return [
        Row("mount to first ls", shown, "ms", large * 1000, 25, "median of the large tree, ms", notes),
        Row("mount, large against small tree", shown, "ms", large / small, 1.3, "ratio of medians", notes),
    ]


def big_tree(options: Options) -> Path:
    """About 1 GB: node_modules, a Python environment, a Rust `target`, each real."""
    source = real_tree()
    tree = source.parent / "big"
    done = source.parent / "big.done"
    if not done.exists():
        shutil.rmtree(tree, ignore_errors=True)
        shutil.copytree(source, tree, symlinks=True, ignore=shutil.ignore_patterns(".git"))
        target = tree / "target"
        target.mkdir()
        left = 450 << 20
        for path in sorted(source.parents[1].parent.glob("*/deps/*")):
            if path.is_file() and 0 < path.stat().st_size < left:
                shutil.copy2(path, target / path.name)
                left -= path.stat().st_size
        done.touch()
    return tree


def edit(folder: Path, paths: list[Path], mark: str) -> int:
    """Add a line to each file; returns the bytes that zstd makes of all of them together."""
    data = b""
    for path in paths:
        file = folder / path
        content = file.read_bytes() + f"\n// {mark} {path}\n".encode()
        file.write_bytes(content)
        data += content
    done = subprocess.run(["zstd", "-q", "-1", "-c"], input=data, capture_output=True, check=True)
    return len(done.stdout)


def hundred(options: Options) -> list[Row]:
    """100 workspaces of one 1 GB tree, 20 edited source files each: fork + mount, disk once committed."""
    tree = big_tree(options)
    workspaces = options.count(100)
    # Files that are stored whole: of large ones only the changed part is, which would flatter the figure.
    found = (path for path in tree.glob("app/node_modules/*/lib/**/*.js") if path.is_file())
    sources = sorted(path.relative_to(tree) for path in found if path.stat().st_size <= 64 << 10)[:2000]
    with store(options) as made:
        made.import_folder(tree)
        progress("imported")
        settle()
        before = disk_bytes(made.path)
        holder = made.fork("main", "holder").mount()
        seconds, open_ones, edited = [], [], 0
        for index in range(workspaces):
            began = time.perf_counter()
            workspace = made.fork("main", f"ws-{index}").mount()
            seconds.append(time.perf_counter() - began)
            open_ones.append(workspace)
        for index, workspace in enumerate(open_ones):
            edited += edit(
                workspace.path, [sources[(index * 20 + i) % len(sources)] for i in range(20)], str(index)
            )
        for workspace in open_ones:
            workspace.commit("edited")
            workspace.umount()
        holder.umount()
        settle()
        each = (disk_bytes(made.path) - before - edited) / workspaces
        driver = holder.driver
    slowest = max(seconds) * 1000
    notes = {"driver": driver, "compressed edited bytes each": edited / workspaces}
    times = {"fork + mount": [s * 1000 for s in seconds]}
    progress(f"{number(each)} bytes each beyond the edits")
    return [
        Row(
            f"{workspaces} workspaces: fork + mount, slowest",
            times,
            "ms",
            slowest,
            50,
            "slowest of all, ms",
            notes,
        ),
        Row("disk each, beyond the edits", {"disk": [each / 1000]}, "KB", each / 1000, 60, "mean, KB", notes),
    ]
