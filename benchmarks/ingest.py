"""Import and commit of many small files, import again, and a second commit."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

from benchmarks.harness import Options, Row, interleave, median, ratio_row, scaled, settle, timed
from benchmarks.trees import cached_small_files, small_files
from benchmarks.work import fresh, run, stat_walk, store, tar_zstd

KINDS = (("text", True), ("random", False))


def import100k(options: Options) -> list[Row]:
    """`atoll import` of 100,000 new files of 4 KiB into a fresh store against `tar | zstd`, synced."""
    rows = []
    files = options.count(100_000)
    for kind, compressible in KINDS:
        tree = cached_small_files(files, compressible)
        stat_walk(tree)

        def ours(tree: Path = tree) -> float:
            place = fresh(options, "store")
            run(options, "init", "--store", str(place))
            settle()
            seconds = timed(
                lambda: run(options, "import", str(tree), "--branch", "main", "--store", str(place))
            )
            shutil.rmtree(place)
            return seconds

        def base(tree: Path = tree) -> float:
            settle()
            return tar_zstd(tree, fresh(options, "archive"))

        samples = interleave({"atoll import": ours, "tar+zstd": base}, options.runs, warm_up=1)
        rows.append(ratio_row(f"import {files:,} files, {kind}", samples, "atoll import", "tar+zstd", 1.5))
    return rows


def commit100k(options: Options) -> list[Row]:
    """`atoll commit` of 100,000 new files of 4 KiB in an overlay workspace against `tar | zstd`, synced."""
    rows = []
    files = options.count(100_000)
    for kind, compressible in KINDS:
        tree = cached_small_files(files, compressible)

        def ours(tree: Path = tree) -> float:
            with store(options) as made:
                empty = fresh(options, "empty")
                empty.mkdir()
                made.import_folder(empty)
                workspace = made.fork("main", "try").mount()
                subprocess.run(["cp", "-r", str(tree), str(workspace.path / "tree")], check=True)
                settle()
                command = ("commit", "try", "-m", "many files", "--store", str(made.path))
                seconds = timed(lambda: run(options, *command))
                workspace.umount()
            return seconds

        def base(tree: Path = tree) -> float:
            settle()
            return tar_zstd(tree, fresh(options, "archive"))

        samples = interleave({"atoll commit": ours, "tar+zstd": base}, options.runs, warm_up=1)
        rows.append(
            ratio_row(f"commit {files:,} new files, {kind}", samples, "atoll commit", "tar+zstd", 1.5)
        )
    return rows


def reimport(options: Options) -> list[Row]:
    """Import of 60,000 unchanged files again, in process, against one stat walk."""
    files = options.count(60_000)
    tree = cached_small_files(files)
    with store(options) as made:
        made.import_folder(tree)
        time.sleep(0.1)
        read = 0

        def ours() -> float:
            nonlocal read
            began = time.perf_counter()
            result = made.import_folder(tree)
            seconds = time.perf_counter() - began
            read += result.read_files
            if result.changed:
                raise RuntimeError("an unchanged folder gave a new commit")
            return seconds

        samples = interleave({"import again": ours, "walk": lambda: stat_walk(tree)}, options.runs, warm_up=1)
    row = ratio_row(f"import again, {files:,} files unchanged", samples, "import again", "walk", 1.5)
    row.notes = {"files read": read}
    return [
        row,
        Row("files read by it", {"import again": [float(read)]}, "files", read, 0, "sum of all runs"),
    ]


def second_commit(options: Options) -> list[Row]:
    """A commit after 10 changed files in a workspace of 100,000 new ones, beyond one walk of the upper."""
    files = options.count(100_000)
    with store(options) as made:
        empty = fresh(options, "empty")
        empty.mkdir()
        made.import_folder(empty)
        workspace = made.fork("main", "try").mount()
        small_files(workspace.path / "tree", files)
        time.sleep(0.05)  # what is written in the clock tick of a commit is read again by the next
        workspace.commit("many files")
        changed = sorted((workspace.path / "tree").rglob("*.txt"))[:: files // 10][:10]
        upper = workspace.folder / "upper"
        if not upper.is_dir():
            upper = workspace.path
        reads = []

        def ours() -> float:
            for path in changed:
                path.write_bytes(os.urandom(4096))
            time.sleep(0.05)
            began = time.perf_counter()
            result = workspace.commit("ten files")
            seconds = time.perf_counter() - began
            reads.append(result.read_files)
            return seconds

        samples = interleave({"commit": ours, "walk": lambda: stat_walk(upper)}, options.runs, warm_up=1)
        driver = workspace.driver
        workspace.umount()
    beyond = (median(samples["commit"]) - median(samples["walk"])) * 1000
    how = "median commit - median walk of the upper, ms"
    notes = {"driver": driver, "files read": reads}
    return [
        Row(f"second commit, 10 of {files:,} changed", scaled(samples, 1000), "ms", beyond, 60, how, notes),
        Row(
            "files read by it",
            {"commit": [float(n) for n in reads]},
            "files",
            max(reads),
            10,
            "most in one commit",
        ),
    ]
