"""The first change to an inherited file: append with the upper in memory, chmod with it on disk."""

from __future__ import annotations

import os
import time

from benchmarks.harness import Options, Row, median, progress
from benchmarks.trees import cached_small_files
from benchmarks.work import stat_walk, store

FILES = 500


def copyup(options: Options) -> list[Row]:
    """Microseconds a file: append to, or chmod of, 500 inherited files of 4 KiB; caches warm."""
    appends: list[float] = []
    chmods: list[float] = []
    with store(options) as made:
        made.import_folder(cached_small_files(FILES))
        for number in range(options.runs):
            for scratch, samples in (("memory", appends), ("disk", chmods)):
                branch = made.fork("main", f"{scratch}-{number}")
                workspace = branch.mount(driver="overlay", scratch=scratch)
                paths = sorted(workspace.path.rglob("*.txt"))
                stat_walk(workspace.path)
                for path in paths:
                    path.read_bytes()
                os.sync()
                began = time.perf_counter()
                for path in paths:
                    if scratch == "disk":
                        path.chmod(0o600)
                    else:
                        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
                        os.write(descriptor, b"x")
                        os.close(descriptor)
                samples.append((time.perf_counter() - began) / len(paths) * 1e6)
                progress(f"{scratch} {number + 1}/{options.runs}: {samples[-1]:.0f} us a file")
                workspace.umount()
    how = "median, microseconds a file"
    return [
        Row(
            "append to an inherited file, upper in memory",
            {"atoll": appends},
            "us",
            median(appends),
            150,
            how,
        ),
        Row("chmod of an inherited file, upper on disk", {"atoll": chmods}, "us", median(chmods), 100, how),
    ]
