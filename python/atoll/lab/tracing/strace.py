"""Traces with strace: sees every system call, and slows the traced program down."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from atoll.lab.model import Unavailable
from atoll.lab.tracing.events import Event, Tracer

__all__ = ["Strace"]

# A question mark before a name: not every machine has the call.
_TRACE = "trace=fsync,fdatasync,?sync_file_range,syncfs,sync,msync,?open,openat,?openat2,?creat"

_OPTIONS = ("-ff", "-ttt", "-T", "-y", "-e", "signal=none", "-e", _TRACE)

# 1700000000.123456 fsync(3</a/file>) = 0 <0.000123>
_LINE = re.compile(r"^(\d+\.\d+) (\w+)\((.*)\)\s+= (-?\d+)(?:<(.*)>)?.*? <(\d+\.\d+)>$")
_DESCRIPTOR = re.compile(r"^\d+<(.*?)>(?:,|$)")
_SYNCHRONOUS = re.compile(r"\bO_D?SYNC\b")


class Strace(Tracer):
    """One log for each thread, so that no line is cut in two by another thread's."""

    name = "strace"

    def missing(self) -> str | None:
        if shutil.which("strace") is None:
            return "strace is missing: Debian's package strace"
        trial = self.folder / "trial"
        done = subprocess.run(
            [*self._start(trial), "true"], capture_output=True, text=True, check=False, timeout=20
        )
        for log in self.folder.glob(f"{trial.name}.*"):
            log.unlink()
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["it gives no reason"])[-1]
            return f"strace may not trace here ({last}); a container needs CAP_SYS_PTRACE"
        return None

    def command(self, command: Sequence[str]) -> list[str]:
        return [*self._start(self.folder / "log"), *command]

    def events(self) -> list[Event]:
        found: list[Event] = []
        for log in self.folder.glob("log.*"):
            found += _events(log)
        return sorted(found, key=lambda event: event.time)

    @staticmethod
    def _start(log: Path) -> list[str]:
        # The filter in the kernel lets the other system calls run at full speed.
        return ["strace", *_OPTIONS, "-qq", "--seccomp-bpf", "-o", str(log), "--"]

    @contextlib.contextmanager
    def attached(self, pids: Sequence[int]) -> Iterator[list[Event]]:
        """Traces processes that run already, and what they start, as long as the block lasts; the list is
        filled at its end. Raises `Unavailable` where they cannot be traced."""
        found: list[Event] = []
        words = [word for pid in pids for word in ("-p", str(pid))]
        with (self.folder / "attached").open("w+b") as said:
            command = ["strace", *_OPTIONS, "-o", str(self.folder / "server"), *words]
            strace = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
            try:
                _wait_attached(strace, said.name, len(pids))
                yield found
            finally:
                # It lets go of them, and they go on.
                strace.terminate()
                strace.wait()
        for log in self.folder.glob("server.*"):
            found += _events(log)
        found.sort(key=lambda event: event.time)


def _wait_attached(strace: subprocess.Popen[bytes], said: str, number: int) -> None:
    deadline = time.monotonic() + 20
    while (text := Path(said).read_text(errors="replace")).count(" attached") < number:
        if strace.poll() is not None or time.monotonic() > deadline:
            last = (text.strip().splitlines() or ["it gives no reason"])[-1]
            raise Unavailable(f"strace cannot trace the target's servers ({last})")
        time.sleep(0.01)


def _events(log: Path) -> Iterator[Event]:
    for line in log.read_text(errors="surrogateescape").splitlines():
        match = _LINE.match(line)
        if match is None or int(match[4]) < 0:
            continue
        time, call, arguments, _, opened, duration = match.groups()
        if call.startswith(("open", "creat")):
            if _SYNCHRONOUS.search(arguments) is None:
                continue
            call, path = "open", opened or "?"
        elif call == "msync":
            if "MS_SYNC" not in arguments:
                continue
            path = "?"
        else:
            of = _DESCRIPTOR.match(arguments)
            path = of[1] if of else ""
        yield Event(time=float(time), duration=float(duration), call=call, path=path)
