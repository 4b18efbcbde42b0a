"""Traces with a small library that stands before the C library's functions."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from atoll.lab.tracing.events import Event, Tracer

__all__ = ["Preload"]

SOURCE = Path(__file__).with_name("preload.c")


class Preload(Tracer):
    """Compiled when it is needed. Does not see what makes its system calls itself: a static program, Go."""

    name = "preload"

    def missing(self) -> str | None:
        if shutil.which("cc") is None:
            return "a C compiler is missing: Debian's package gcc"
        try:
            self._library()
        except subprocess.CalledProcessError as error:
            said = (error.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[0]
            return f"cc cannot compile the library ({said}); Debian's package libc6-dev brings the headers"
        return None

    def command(self, command: Sequence[str]) -> list[str]:
        return list(command)

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        environment = super().environment(base)
        others = environment.get("LD_PRELOAD")
        environment["LD_PRELOAD"] = f"{self._library()}:{others}" if others else str(self._library())
        environment["ATOLL_TRACE_LOG"] = str(self.folder / "log")
        return environment

    def events(self) -> list[Event]:
        log = self.folder / "log"
        if not log.exists():
            return []
        found = []
        for line in log.read_text(errors="surrogateescape").splitlines():
            time, duration, call, path = line.split(" ", 3)
            found.append(Event(time=float(time), duration=float(duration), call=call, path=path))
        return sorted(found, key=lambda event: event.time)

    def _library(self) -> Path:
        library = self.folder / "preload.so"
        if not library.exists():
            command = ["cc", "-shared", "-fPIC", "-O2", "-o", os.fspath(library), os.fspath(SOURCE), "-ldl"]
            subprocess.run(command, check=True, capture_output=True)
        return library
