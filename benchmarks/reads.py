"""Reading a real tree: cold through a fresh mount, a second time, git status, the server's memory."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import atoll
from benchmarks.harness import Options, Row, median, progress, scaled
from benchmarks.trees import cached_small_files, real_tree
from benchmarks.work import requests, servers, shell, stat_walk, store, wait_for_no_server

# name: command, bar cold with the spinning transport, bar cold with io_uring
COMMANDS: dict[str, tuple[str, float, float]] = {
    "find": ("find . >/dev/null", 7, 4.5),
    "stat walk": ("find . -printf '%s %C@\\n' >/dev/null", 6, 4.5),
    "git status": ("git status --porcelain", 9.5, 6),
    "grep -r": ("grep -r atoll-is-not-in-here . || true", 6.5, 5),
    "tar into a pipe": ("tar c . | cat >/dev/null", 5, 4),
    "node program, 4 starts": ("cd app; for i in 1 2 3 4; do node start.js; done", 1.9, 1.5),
}
AGAIN = 1.6
GIT_OWN = (
    "cat .git/{index,config,HEAD,packed-refs,info/exclude,objects/pack/*.idx} >/dev/null 2>&1; "
    "find . -name .gitignore -exec cat {} + >/dev/null; git log -1 --oneline; git diff --cached --quiet"
)


def prepare(tree: Path) -> None:
    """Bring the tree into the page cache, and git's index to where it calls nothing racy."""
    subprocess.run(["git", "status", "--porcelain"], cwd=tree, check=True, capture_output=True)
    shell("tar c . | cat >/dev/null", tree)


@contextmanager
def fresh_mount(options: Options, made: atoll.Store, branch: str) -> Iterator[atoll.Workspace]:
    """A workspace whose history server has just started: nothing of its tree is in the kernel's caches."""
    wait_for_no_server(options)
    shell(f"cat '{made.path}'/packs/* '{made.path}'/meta.db '{made.path}'/oplog", options.place)
    workspace = made.mount(branch, driver="overlay")
    try:
        yield workspace
    finally:
        workspace.umount()


def transports() -> list[str]:
    """The default one, and io_uring where root has turned it on for the machine."""
    switch = Path("/sys/module/fuse/parameters/enable_uring")
    return ["spin", "uring"] if switch.exists() and switch.read_text().strip() == "Y" else ["spin"]


def cold(options: Options) -> list[Row]:
    """Commands on a fresh mount of a real tree, and a second time, against the same tree warm on the disk."""
    tree = real_tree()
    prepare(tree)
    names = list(COMMANDS)
    base: dict[str, list[float]] = {name: [] for name in names}
    first = {(name, transport): list[float]() for name in names for transport in transports()}
    second: dict[str, list[float]] = {name: [] for name in names}
    late: list[float] = []
    kinds: list[str] = []
    with store(options) as made:
        made.import_folder(tree)
        progress("imported")
        made.fork("main", "cold")
        for number in range(options.runs):
            for name in names:
                command = COMMANDS[name][0]
                shell(command, tree)
                base[name].append(shell(command, tree))
                said = [f"disk {base[name][-1] * 1000:.0f} ms"]
                for transport in transports():
                    os.environ["ATOLL_TRANSPORT"] = transport
                    with fresh_mount(options, made, "cold") as workspace:
                        first[name, transport].append(shell(command, workspace.path))
                        said.append(f"{transport} {first[name, transport][-1] * 1000:.0f} ms")
                        if transport == "spin":
                            before = requests(options, made)
                            second[name].append(shell(command, workspace.path))
                            more = later(before, requests(options, made))
                            late.append(sum(more.values()))
                            kinds.append(f"{name}: {more}")
                            said.append(f"again {second[name][-1] * 1000:.0f} ms, requests {more or 0}")
                del os.environ["ATOLL_TRANSPORT"]
                progress(f"{name} {number + 1}/{options.runs}: {', '.join(said)}")
    rows = []
    for transport in transports():
        for name, (_, *bars) in COMMANDS.items():
            samples = scaled({"cold": first[name, transport], "disk": base[name]}, 1000)
            figure = median(samples["cold"]) / median(samples["disk"])
            bar = bars[transport == "uring"]
            rows.append(Row(f"cold: {name} ({transport})", samples, "ms", figure, bar, "ratio of medians"))
    for name in names:
        samples = scaled({"again": second[name], "disk": base[name]}, 1000)
        figure = median(samples["again"]) / median(samples["disk"])
        rows.append(Row(f"again: {name}", samples, "ms", figure, AGAIN, "ratio of medians"))
    how, notes = "most for one command", {"late": kinds}
    rows.append(Row("requests the second time", {"late": late}, "requests", max(late), 5, how, notes))
    return rows


def later(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """The requests that came between two looks, by kind."""
    return {
        kind: count - before.get(kind, 0) for kind, count in after.items() if count != before.get(kind, 0)
    }


def git_status(options: Options) -> list[Row]:
    """READ requests that `git status` causes in a fresh fork of an imported repository."""
    tree = real_tree()
    prepare(tree)
    reads: list[float] = []
    with store(options) as made:
        made.import_folder(tree)
        for number in range(options.runs):
            made.fork("main", f"status-{number}")
            with fresh_mount(options, made, f"status-{number}") as workspace:
                # What git reads for itself is not counted: index, references, the commit, ignore rules.
                shell(GIT_OWN, workspace.path)
                before = requests(options, made)["READ"]  # there were some: reading the index
                shell("git status --porcelain", workspace.path)
                reads.append(requests(options, made)["READ"] - before)
                progress(f"git status {number + 1}/{options.runs}: {reads[-1]:.0f} READ requests")
    return [Row("git status in a fresh fork", {"READ": reads}, "requests", max(reads), 0, "most of all runs")]


def memory(options: Options) -> list[Row]:
    """Memory of the history server after a walk of 100,000 files."""
    files = options.count(100_000)
    with store(options) as made:
        made.import_folder(cached_small_files(files))
        workspace = made.fork("main", "walk").mount(driver="overlay")
        stat_walk(workspace.path)
        shell("tar c . | cat >/dev/null", workspace.path)
        listed = servers(options, made)
        workspace.umount()
    resident = sum(int(server["rss_bytes"]) for server in listed) / 1e6
    how = "resident after a stat walk and reading everything, MB"
    return [Row(f"history server, {files:,} files", {"memory": [resident]}, "MB", resident, 150, how)]
