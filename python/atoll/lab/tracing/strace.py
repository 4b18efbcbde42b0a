"""Traces with strace: sees every system call, and slows the traced program down."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from atoll.lab.tracing.events import Event, Tracer

__all__ = ["Strace"]

# A question mark before a name: not every machine has the call.
_TRACE = "trace=fsync,fdatasync,?sync_file_range,syncfs,sync,msync,?open,openat,?openat2,?creat"

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
        options = ["-ff", "-qq", "-ttt", "-T", "-y", "--seccomp-bpf", "-e", "signal=none", "-e", _TRACE]
        return ["strace", *options, "-o", str(log), "--"]


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
