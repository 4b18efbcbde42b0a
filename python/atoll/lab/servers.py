"""Processes that serve a target: started in sessions of their own, awaited, ended."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from atoll.errors import AtollError
from atoll.lab.model import Unavailable
from atoll.lab.mounts import bounded, is_mounted, kill, unmount

__all__ = ["Server", "end_history_servers", "family", "free_ports", "listens", "run"]


class Server:
    """A program that goes on until it is stopped. What it prints goes to `log`; the end of that is in the
    error when it does not come up."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=None if env is None else {**os.environ, **env},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Also the id of its session and process group."""
        return self.process.pid

    def wait_until(self, ready: Callable[[], bool], seconds: float, *, daemon: bool = False) -> None:
        """Until `ready`. With `daemon` the program may end well before: it left the work to a child.

        Raises:
            Unavailable: it ended, or is not ready after `seconds`; with its last words.
        """
        deadline = time.monotonic() + seconds
        while not ready():
            code = self.process.poll()
            if code is not None and not (daemon and code == 0):
                raise Unavailable(f"{self.name} ended with {code}: {self.last_words()}")
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"{self.name} was not ready within {seconds:.0f} s; it said: {self.last_words()}"
                )
            time.sleep(0.02)

    def last_words(self) -> str:
        """The end of what it printed."""
        with contextlib.suppress(OSError):
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - 4096))
                lines = file.read().decode(errors="replace").strip().splitlines()[-3:]
            if lines:
                return " / ".join(line.strip()[:300] for line in lines)
        return "nothing"

    def serves(self, cleanup: contextlib.ExitStack, point: Path) -> None:
        """Says that it serves the FUSE mount at `point`: `cleanup` unmounts that first, then ends it."""
        cleanup.callback(self.stop)
        cleanup.callback(unmount, point, self.kill)

    def wait_mounted(self, point: Path, seconds: float = 60.0) -> None:
        """Until its mount is there."""
        self.wait_until(lambda: is_mounted(point), seconds)

    def stop(self, patience: float = 10.0) -> None:
        """Asks it to end, and ends it when it has not after `patience` seconds."""
        if self.process.poll() is None:
            self._signal(signal.SIGCONT)
            self._signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=patience)
        self.kill()

    def kill(self) -> None:
        """Ends it at once, with what it started. A stopped process can be killed too."""
        if self.process.poll() is None:
            kill(self.process, 10)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def end_history_servers(folder: Path) -> None:
    """Asks atoll's history servers of the stores at or below a folder to end, and waits for that. They mount
    outside of it, and would leave dead mounts there if they were killed."""
    from atoll import _native

    own = [each for each in _native.servers() if Path(each["store"]).is_relative_to(folder)]
    for each in own:
        with contextlib.suppress(AtollError):
            _native.stop_server(_native.Store.open(Path(each["store"])))
    pids = [pid for each in own for pid in (each["pid"], each["supervisor_pid"]) if pid]
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.01)


def family(pid: int) -> list[int]:
    """A process and all that it started, as far as they are still its children; empty when it has ended."""
    found = [pid] if Path(f"/proc/{pid}").exists() else []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [each for child in listed.read_text().split() for each in family(int(child))]
    return found


def run(command: Sequence[str], seconds: float = 120.0) -> str:
    """A program of a target's set-up to its end; returns its output. Raises `Unavailable`."""
    done = bounded(command, seconds)
    name = os.path.basename(command[0])
    if done is None:
        raise Unavailable(f"`{name}` did not end within {seconds:.0f} s")
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["no message"]
        raise Unavailable(f"`{name}` ended with {done.returncode}: {said[0][:300]}")
    return done.stdout


def free_ports(number: int) -> list[int]:
    """TCP ports of 127.0.0.1 that nobody uses just now, as the kernel chooses them."""
    with contextlib.ExitStack() as stack:
        # Held until all are known, so that no two are the same.
        held = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]


def listens(port: int) -> bool:
    """Whether somebody takes connections there."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
