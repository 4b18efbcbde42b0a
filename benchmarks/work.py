"""Pieces of work that several benchmarks time: commands, walks, stores and workspaces of their own."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import atoll
from benchmarks.harness import Options
from scripts.leftovers import mounts_below

_numbers = itertools.count(1)


def fresh(options: Options, what: str) -> Path:
    """A path below the measured place that does not exist yet."""
    return options.place / f"{what}-{next(_numbers)}"


def run(options: Options, *args: str, cwd: Path | None = None) -> str:
    """The installed `atoll` with these arguments; returns stdout, raises with stderr on failure."""
    done = subprocess.run(
        [str(options.atoll), *args], env=options.env, cwd=cwd, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"atoll {' '.join(args)} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def shell(command: str, cwd: Path) -> float:
    """Seconds that a shell command takes; its output goes nowhere, a failure raises."""
    began = time.perf_counter()
    done = subprocess.run(["bash", "-c", command], cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    seconds = time.perf_counter() - began
    if done.returncode != 0:
        raise RuntimeError(f"{command!r} ended with {done.returncode}: {done.stderr.decode()[-300:]}")
    return seconds


def stat_walk(folder: Path) -> float:
    """Seconds of `find FOLDER -printf '%s %C@\\n'`: one lstat of everything."""
    began = time.perf_counter()
    subprocess.run(["find", str(folder), "-printf", "%s %C@\\n"], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def sync_path(path: Path) -> None:
    """fsync of a file and of its folder."""
    for each in (path, path.parent):
        descriptor = os.open(each, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def tar_zstd(tree: Path, archive: Path) -> float:
    """Seconds of `tar c | zstd -1 -T2` of a tree into a file, until it would survive a power cut."""
    began = time.perf_counter()
    command = f"set -o pipefail; tar c -C '{tree}' . | zstd -q -f -1 -T2 -o '{archive}'"
    subprocess.run(["bash", "-c", command], check=True)
    sync_path(archive)
    seconds = time.perf_counter() - began
    archive.unlink()
    return seconds


@contextmanager
def store(options: Options) -> Iterator[atoll.Store]:
    """A fresh store, gone at the end."""
    place = fresh(options, "store")
    try:
        with atoll.create(place) as made:
            yield made
    finally:
        if place.exists():
            with atoll.open(store=place) as again:
                # Dropping unmounts, and lets go of what a workspace in memory still holds.
                for workspace in again.workspaces():
                    again.drop(workspace.branch)
        shutil.rmtree(place, ignore_errors=True)


def servers(options: Options, where: atoll.Store) -> list[dict[str, Any]]:
    """The history servers of a store, as `atoll servers --json` lists them."""
    listed = json.loads(run(options, "servers", "--json"))
    return [server for server in listed["servers"] if server["store"] == str(where.path)]


def requests(options: Options, where: atoll.Store) -> dict[str, int]:
    """Requests by kind that the store's history server answered so far."""
    total: dict[str, int] = {}
    for server in servers(options, where):
        for kind, count in server["requests"].items():
            total[kind] = total.get(kind, 0) + int(count)
    return total


def wait_for_no_server(options: Options, seconds: float = 60.0) -> None:
    """Until the history server has ended by itself, so that the next mount starts with nothing cached."""
    deadline = time.monotonic() + seconds
    # Its mounts tell; asking the server itself would keep it awake.
    while mounts_below(options.env["XDG_RUNTIME_DIR"]):
        if time.monotonic() > deadline:
            raise RuntimeError("the history server did not end by itself")
        time.sleep(0.05)


def disk_bytes(folder: Path) -> int:
    """Bytes of disk below a folder, as `du` counts them."""
    done = subprocess.run(
        ["du", "-s", "--block-size=1", str(folder)], capture_output=True, text=True, check=True
    )
    return int(done.stdout.split()[0])


def read_calls() -> int:
    """Bytes that this process has asked of read() so far."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("rchar:"):
            return int(line.split()[1])
    return 0
