"""Starts the launcher (`atoll._native.main(["launch", …])`, in Rust) and reads what it reports.

The launcher is a process of its own because it changes itself: it enters a mount namespace and a cgroup, and
becomes the reaper of everything that the command starts. Settings and events pass through memory files, not
through arguments, which other users can read and which cannot be longer than 128 KiB."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any

from atoll import helpers
from atoll.errors import Io, Unsupported, from_code

__all__ = ["Ended", "LauncherLost", "Limits", "NoNamespace", "Spec", "Stop", "Streams", "launch"]

Stream = int | IO[Any] | None

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a command and all it starts may use together."""

    memory: int | None = None
    """Bytes."""
    cpus: float | None = None
    """Processors: 1.5 is one and a half."""
    pids: int | None = None
    """Processes and threads."""


@dataclass(frozen=True, slots=True)
class Spec:
    """One run of one command; paths are absolute."""

    command: Sequence[str]
    workspace: Path
    at: Path | None
    """Where the command sees the workspace; None: where it is."""
    cwd: Path
    """As the command sees it."""
    env: Mapping[str, str]
    """On top of the caller's own."""
    passes: Sequence[tuple[Path, Path]] = ()
    """Host paths shown read-only: source, and place as the command sees it."""
    timeout: float | None = None
    grace: float = 10.0
    limits: Limits = Limits()
    detach_children: bool = False
    state_dir: Path | None = None

    def _json(self, report_fd: int) -> bytes:
        def text(value: str | os.PathLike[str]) -> str:
            return os.fsencode(value).decode("latin-1")

        limits = {"memory": self.limits.memory, "cpus": self.limits.cpus, "pids": self.limits.pids}
        settings = {
            "command": [text(part) for part in self.command],
            "workspace": text(self.workspace),
            "at": None if self.at is None else text(self.at),
            "cwd": text(self.cwd),
            "env": [(text(name), text(value)) for name, value in self.env.items()],
            "passes": [{"source": text(source), "target": text(target)} for source, target in self.passes],
            "timeout_s": self.timeout,
            "grace_s": self.grace,
            "limits": limits,
            "detach_children": self.detach_children,
            "report_fd": report_fd,
            "state_dir": None if self.state_dir is None else text(self.state_dir),
        }
        return json.dumps(settings).encode()


@dataclass(frozen=True, slots=True)
class Streams:
    """The command's standard streams, as `subprocess` has them."""

    stdin: Stream = None
    stdout: Stream = None
    stderr: Stream = None
    input: Any = None
    text: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """What the launcher reported."""

    returncode: int
    events: Mapping[str, Mapping[str, Any]]
    """The last event of each kind: `started`, `not_started`, `ended`."""
    notes: tuple[str, ...]
    stdout: Any
    stderr: Any
    interrupt: BaseException | None = None
    """What was raised in the caller's thread while it waited: to be raised again once the work is kept."""


class Stop:
    """Ends a command from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[Any] | None = None
        self._wanted = False

    def __call__(self) -> None:
        """Asks the command to end; after the grace period it is ended."""
        with self._lock:
            self._wanted = True
            if self._process is not None:
                self._process.terminate()

    def _watch(self, process: subprocess.Popen[Any]) -> None:
        with self._lock:
            self._process = process
            if self._wanted:
                process.terminate()


class LauncherLost(Io):
    """The launcher ended before the command did; what the command changed is in the workspace."""


class NoNamespace(Unsupported):
    """The workspace cannot be shown at another path here."""


def launch(
    spec: Spec,
    streams: Streams = Streams(),
    env: Mapping[str, str] | None = None,
    *,
    forward_signals: bool = False,
    stop: Stop | None = None,
) -> Ended:
    """Runs the command and returns when it, and all it started, has ended.

    With `forward_signals` (for a command line, in the main thread) what this process is sent goes to the
    command; without, an interrupt ends the command and is handed back as `Ended.interrupt`.

    Raises:
        NoNamespace: `at` or a pass needs a mount namespace that this process may not have; nothing was run.
        AtollError: Nothing was run, for the reason that it names.
    """
    if sys.platform != "linux":
        raise Unsupported(
            "Commands in a workspace can be run by atoll on Linux only; run them in its folder."
        )
    settings, report = os.memfd_create("atoll-launch"), os.memfd_create("atoll-report")
    try:
        _write_all(settings, spec._json(report))
        os.lseek(settings, 0, os.SEEK_SET)
        with _Forwarding(forward_signals) as forwarding:
            process = subprocess.Popen(
                _arguments(settings),
                stdin=subprocess.PIPE if streams.input is not None else streams.stdin,
                stdout=streams.stdout,
                stderr=streams.stderr,
                env=env,
                text=streams.text,
                pass_fds=(settings, report),
            )
            forwarding.to(process)
            if stop is not None:
                stop._watch(process)
            stdout, stderr, interrupt = _wait(process, streams.input)
        return _read(process, report, stdout, stderr, interrupt)
    finally:
        os.close(settings)
        os.close(report)


def _arguments(settings: int) -> list[str]:
    return [*helpers.command(), "launch", str(settings)]


def _write_all(fd: int, data: bytes) -> None:
    with open(fd, "wb", closefd=False) as file:
        file.write(data)


def _wait(process: subprocess.Popen[Any], text: Any) -> tuple[Any, Any, BaseException | None]:
    try:
        stdout, stderr = process.communicate(text)
        return stdout, stderr, None
    except BaseException as interrupt:
        # The launcher tells an interrupt of the whole process group (the command has it already) from this
        # one.
        process.send_signal(signal.SIGINT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
        return None, None, interrupt


def _read(
    process: subprocess.Popen[Any], report: int, stdout: Any, stderr: Any, interrupt: BaseException | None
) -> Ended:
    events: dict[str, Mapping[str, Any]] = {}
    notes: list[str] = []
    for event in _lines(report):
        if event["event"] == "note":
            notes.append(event["text"])
        else:
            events[event["event"]] = event
    if interrupt is not None and "ended" not in events:
        raise interrupt
    failed = events.get("failed")
    if failed is not None:
        if failed["code"] == "no_namespace":
            raise NoNamespace(failed["message"])
        raise from_code(failed["code"], failed["message"])
    if not {"ended", "not_started"} & events.keys():
        how = f"The launcher ended with {process.returncode}"
        if "started" in events:
            raise LauncherLost(f"{how} before the command did; what the command changed is in the workspace.")
        raise Io(f"{how} before it began; nothing was run.")
    return Ended(process.returncode, events, tuple(notes), stdout, stderr, interrupt)


def _lines(fd: int) -> Iterator[Mapping[str, Any]]:
    os.lseek(fd, 0, os.SEEK_SET)
    with open(fd, "rb", closefd=False) as file:
        for line in file:
            yield json.loads(line)


class _Forwarding:
    """Sends on to the launcher what this process is sent; does nothing when not wanted or not in the main
    thread."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted and threading.current_thread() is threading.main_thread()
        self._process: subprocess.Popen[Any] | None = None
        self._early: list[int] = []
        self._before: dict[int, Callable[[int, FrameType | None], Any] | int | None] = {}

    def __enter__(self) -> _Forwarding:
        if self._wanted:
            for number in _FORWARDED:
                # A signal that is ignored (nohup) stays so, for the command too.
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def to(self, process: subprocess.Popen[Any]) -> None:
        self._process = process
        for number in self._early:
            self._send(number)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._process is None:
            self._early.append(number)
        else:
            self._send(number)

    def _send(self, number: int) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
