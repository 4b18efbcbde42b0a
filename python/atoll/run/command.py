"""One command in a workspace that is mounted."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atoll.errors import NotFound, Usage
from atoll.run.active import in_use
from atoll.run.launcher import Ended, Limits, NoNamespace, Spec, Stop, Stream, Streams, launch
from atoll.run.result import RunResult

if TYPE_CHECKING:
    from atoll.drivers.base import Note
    from atoll.workspace import Workspace

__all__ = ["Options", "carry_out", "memory_bytes", "relative_to"]

PathLike = str | os.PathLike[str]
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True, slots=True)
class Options:
    """How a command is run."""

    at: PathLike = "same"
    """Where the command sees the workspace: `same`, the folder that was imported; `none`, where it is
    mounted; or a folder."""
    cwd: PathLike | None = None
    """Where it starts; relative to the workspace's folder, which is also the default."""
    stands_in: PathLike | None = None
    """Where the caller stands: without `cwd`, the command starts in the same place of the workspace, if it
    has it."""
    env: Mapping[str, str] | None = None
    """Its environment instead of this process's own; atoll's variables are added."""
    timeout: float | None = None
    """Seconds; then the command is asked to end (SIGTERM), and ended after `grace` seconds."""
    grace: float = 10.0
    memory: int | str | None = None
    """Bytes, or a text like `2G`: what the command and all it starts may use together."""
    cpus: float | None = None
    pids: int | None = None
    passes: Iterable[PathLike] = ()
    """Host files and folders shown read-only and never captured."""
    detach_children: bool = False
    """Lets processes go on that the command leaves behind."""
    stdin: Stream = None
    stdout: Stream = None
    stderr: Stream = None
    input: Any = None
    """Written to its standard input."""
    capture_output: bool = False
    text: bool = False
    forward_signals: bool = False
    """Pass on to the command what this process is sent (for command lines; main thread only)."""


def memory_bytes(value: int | str | None) -> int | None:
    """`2G`, `512m`, `1.5GiB` or a number, in bytes."""
    if value is None or isinstance(value, int):
        return value
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(?:i?b)?", value.strip().lower())
    if match is None:
        raise Usage(f"'{value}' is no amount of memory; write for example 512M or 2G.")
    return int(float(match[1]) * _UNITS[match[2]])


def relative_to(path: PathLike, *roots: PathLike | None) -> Path | None:
    """`path` relative to the first of `roots` that it lies in."""
    for root in roots:
        if root is not None and Path(path).is_relative_to(root):
            return Path(path).relative_to(root)
    return None


def carry_out(
    workspace: Workspace,
    command: Sequence[PathLike],
    options: Options,
    *,
    note: Note,
    stop: Stop | None = None,
) -> tuple[RunResult, BaseException | None]:
    """Runs it. The second value is an interrupt that came meanwhile: the command has ended, the caller raises
    it once the work is kept.

    Raises:
        Usage: An option makes no sense.
        Unsupported: A limit, `at` or `passes` cannot be had here.
        NotFound: The folder to start in, or a passed path, is not there.
    """
    if isinstance(command, (str, bytes)) or not command:
        raise Usage(
            "The command is a list: its name and its arguments; for a shell's line write ['sh', '-c', LINE]."
        )
    words = [os.fsdecode(word) for word in command]
    ref = workspace.store.ref(workspace.branch)
    origin = None if ref.folder is None else Path(ref.folder)
    notes: list[str] = []

    def tell(sentence: str) -> None:
        notes.append(sentence)
        note(sentence)

    shown = _shown_at(options.at, origin, workspace.path, tell)
    try:
        ended = _launch(workspace, words, options, shown, origin, ref.base, stop)
    except NoNamespace as refused:
        # A path that was asked for by name, or a pass, has no second best.
        if os.fspath(options.at) != "same" or tuple(options.passes):
            raise
        tell(f"{refused.message} The command sees the workspace at {workspace.path} instead of {shown}.")
        if origin is not None:
            from atoll.run.outside import sentence

            if line := sentence(workspace.path, origin):
                tell(line)
        shown = None
        ended = _launch(workspace, words, options, None, origin, ref.base, stop)
    for line in ended.notes:
        tell(line)
    return _result(words, ended, shown or workspace.path, tuple(notes)), ended.interrupt


def _shown_at(at: PathLike, origin: Path | None, path: Path, note: Note) -> Path | None:
    text = os.fspath(at)
    if text == "none":
        return None
    if text == "same":
        if origin is None:
            return None
        if not origin.is_dir():
            note(
                f"The imported folder {origin} is not on this machine; the command sees the workspace at "
                f"{path}."
            )
            return None
        return origin
    return Path(os.path.abspath(os.path.expanduser(text)))


def _launch(
    workspace: Workspace,
    words: list[str],
    options: Options,
    shown: Path | None,
    origin: Path | None,
    base: str,
    stop: Stop | None,
) -> Ended:
    root = shown or workspace.path
    cwd = _cwd(options, root, workspace.path, origin)
    added = {
        "ATOLL_STORE": os.fspath(workspace.store.path),
        "ATOLL_WORKSPACE": workspace.id,
        "ATOLL_BRANCH": workspace.branch,
        "ATOLL_BASE": base,
        "PWD": os.fspath(cwd),
    }
    spec = Spec(
        command=words,
        workspace=workspace.path,
        at=shown if shown != workspace.path else None,
        cwd=cwd,
        env=added,
        passes=[_pass(path, root, origin) for path in options.passes],
        timeout=options.timeout,
        grace=options.grace,
        limits=Limits(memory_bytes(options.memory), options.cpus, options.pids),
        detach_children=options.detach_children,
        state_dir=workspace.folder,
    )
    pipe = subprocess.PIPE if options.capture_output else None
    streams = Streams(
        options.stdin, options.stdout or pipe, options.stderr or pipe, options.input, options.text
    )  # fmt: skip
    with _held(workspace):
        return launch(spec, streams, options.env, forward_signals=options.forward_signals, stop=stop)


@contextlib.contextmanager
def _held(workspace: Workspace) -> Iterator[None]:
    """Keeps the workspace mounted while a command is in it."""
    with contextlib.ExitStack() as stack:
        with workspace._locked():
            if not workspace.mounted:
                raise NotFound(
                    f"Workspace '{workspace.branch}' is not mounted; `atoll mount {workspace.branch}` mounts "
                    "it."
                )
            stack.enter_context(in_use(workspace.folder))
        yield


def _cwd(options: Options, root: Path, mounted: Path, origin: Path | None) -> Path:
    if options.cwd is None:
        place = None if options.stands_in is None else relative_to(options.stands_in, mounted, origin, root)
        return root if place is None or not (mounted / place).is_dir() else root / place
    path = Path(options.cwd)
    if not path.is_absolute():
        return root / path
    # A path on the host means the same place in what the command sees.
    inside = relative_to(path, mounted, origin, root)
    return path if inside is None else root / inside


def _pass(path: PathLike, root: Path, origin: Path | None) -> tuple[Path, Path]:
    source = Path(os.path.abspath(os.path.expanduser(os.fspath(path))))
    inside = relative_to(source, origin)
    return source, source if inside is None else root / inside


def _result(words: list[str], ended: Ended, shown: Path, notes: tuple[str, ...]) -> RunResult:
    started = ended.events.get("started", {})
    end = ended.events.get("ended")
    if end is None:
        refused = ended.events["not_started"]
        return RunResult(
            args=tuple(words),
            returncode=refused["exit_code"],
            started=False,
            signal=None,
            timed_out=False,
            duration_s=0.0,
            cpu_s=None,
            peak_memory_bytes=None,
            peak_memory_of=None,
            shown_at=os.fspath(shown),
            namespace="none",
            cgroup=False,
            notes=(*notes, refused["message"]),
            stdout=ended.stdout,
            stderr=ended.stderr,
        )
    return RunResult(
        args=tuple(words),
        returncode=end["exit_code"],
        started=True,
        signal=end["signal"],
        timed_out=end["timed_out"],
        duration_s=end["duration_s"],
        cpu_s=end["cpu_s"],
        peak_memory_bytes=end["peak_memory_bytes"],
        peak_memory_of=end["peak_memory_of"],
        shown_at=os.fspath(shown),
        namespace=started.get("namespace", "none"),
        cgroup=started.get("cgroup") is not None,
        left_behind=tuple((process["pid"], process["name"]) for process in end["left_behind"]),
        detached=end["detached"],
        notes=notes,
        stdout=ended.stdout,
        stderr=ended.stderr,
    )
