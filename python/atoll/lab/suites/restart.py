"""`restart`: how long a workspace is gone when the processes behind it are killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import atoll
from atoll import _native
from atoll.lab.model import Options, Row, Scenario, Suite, Target
from atoll.lab.servers import family
from atoll.lab.suites.ways import WayTarget
from atoll.lab.targets.atoll import AtollTarget
from atoll.lab.work import Work

__all__ = ["Restart"]

_OWN = 20
"""Files that are in the workspace alone, not committed."""


class _RestartTarget(WayTarget):
    def missing(self) -> str | None:
        return AtollTarget("atoll", "atoll:overlay", "overlay").missing()


class Restart(Suite):
    """Kills atoll's processes, so it has a target of its own."""

    name = "restart"
    title = "from a killed process to the first right listing"
    about = (
        "A workspace of the overlay driver on an imported tree, with 20 files of its own that are not "
        "committed. The process that serves the history is killed (SIGKILL), with the kernel's caches "
        "dropped just before, so that a listing has to ask; then that process and its supervisor are "
        "killed and the workspace is mounted again. The clock runs from the kill to the first walk that "
        "finds every name; then every file is read and compared. Beside each time: the requests that the "
        "kernel sent again. Nothing else is sent or replayed. A server and a client on another machine "
        "will join with the network."
    )

    def contenders(self, options: Options) -> Sequence[Target]:
        return [_RestartTarget("restart:atoll", "atoll workspace")]

    def scenarios(self, options: Options) -> Sequence[Scenario]:
        sizes = (100,) if options.quick else (500, 3000, 30_000)
        return [_scenario(files) for files in sizes]


def _scenario(files: int) -> Scenario:
    server = Row(f"server killed, {files:,} files", durable=False, files=files, cache="cold")
    both = Row(f"all processes killed, mounted again, {files:,} files", durable=False, files=files)

    def run(work: Work) -> None:
        run_dir = work.folder / "run"
        run_dir.mkdir(mode=0o700)
        os.environ |= {
            "XDG_RUNTIME_DIR": os.fspath(run_dir),
            "XDG_DATA_HOME": os.fspath(work.folder / "data"),
            "ATOLL_SERVER_IDLE": "1",
        }
        source = work.folder / "source"
        expected = _fill(source, files, work)
        store = atoll.create(work.folder / "store")
        store.import_folder(source)
        folder = work.folder / "workspace"
        store.fork("main", "try")
        store.mount("try", folder, driver="overlay")
        try:
            for number in range(_OWN):
                name = f"own{number}"
                (folder / name).write_bytes(b"%d" % number)
                expected[name] = b"%d" % number
            work.cold()
            _measure(work, server.name, folder, expected)
            work.cold()
            _measure(work, both.name, folder, expected, store=store)
        finally:
            for workspace in store.workspaces():
                workspace.umount()
            _native.stop_server(store.native)
            store.close()

    return Scenario(
        f"{files:,} files", (server, both), run, warm_ups=0, bytes=files * 16384, files=2 * files, limit=300.0
    )


def _measure(
    work: Work,
    row: str,
    folder: Path,
    expected: dict[str, bytes],
    store: atoll.Store | None = None,
) -> None:
    (before,) = _native.servers()
    # Supervisor, server and standby: none may be left to take over.
    doomed = family(before["supervisor_pid"]) if store is not None else [before["pid"]]
    began = time.perf_counter()
    for pid in doomed:
        os.kill(pid, signal.SIGKILL)
    if store is not None:
        store.mount("try", folder, driver="overlay")
    found = {
        os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names
    }
    seconds = time.perf_counter() - began
    work.check(found == expected.keys(), f"{len(found)} files are listed instead of {len(expected)}")
    (after,) = _native.servers()
    work.check(after["pid"] != before["pid"], "the server was not killed")
    requests = float(sum(after["requests"].values()))
    for name, data in expected.items():
        work.check((folder / name).read_bytes() == data, f"{name} does not hold what was written")
    work.measure(row, seconds, details={"requests": requests})


def _fill(folder: Path, files: int, work: Work) -> dict[str, bytes]:
    held = {}
    for number in range(files):
        name = f"d{number // 500:03d}/f{number:05d}"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        held[name] = work.rng.randbytes(100)
        (folder / name).write_bytes(held[name])
    return held
