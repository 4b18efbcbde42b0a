"""`atoll run`: import what changed, fork, mount, run, commit, unmount; and the list of what was run."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from atoll.errors import AtollError, Busy, Exists, NotFound, Usage
from atoll.run.command import Options, PathLike, carry_out, memory_bytes
from atoll.run.launcher import LauncherLost
from atoll.run.result import RunResult
from atoll.secrets import mask_command

if TYPE_CHECKING:
    from atoll.drivers.base import Note, Progress
    from atoll.history import Commit
    from atoll.run.launcher import Stop
    from atoll.store import Store
    from atoll.workspace import Workspace

__all__ = [
    "Listed",
    "Run",
    "Settings",
    "base_here",
    "commit_result",
    "recorded_command",
    "run",
    "run_with",
    "runs",
]

#: What is recorded of a command line: a prompt may be a megabyte.
ARGUMENT_LIMIT = 4096
_NUMBERED = re.compile(r"run-([0-9]+)")


@dataclass(frozen=True, slots=True)
class Settings:
    """How a command becomes a branch; the command's own options are in `Options`."""

    base: str | None = None
    """The commit to fork; None: the project in `folder`, imported incrementally first."""
    folder: PathLike | None = None
    """The project; None: the current folder's."""
    name: str | None = None
    """The new branch; None: `run-N`, the next free one."""
    on: str | None = None
    """An existing branch to run on, instead of a fork."""
    driver: str = "auto"
    fsync: Literal["full", "commit"] = "full"
    scratch: str = "disk"
    commit: bool = True
    """Without, what the command changed stays uncommitted in the workspace."""
    discard_on_failure: bool = False
    """Throw the fork away when the exit code is not 0 (`undo` brings it back)."""
    record_command: bool = True
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A command that was run on a branch of its own."""

    result: RunResult
    branch: str
    base: str
    """The commit that it began at."""
    commit: str | None
    """What it left, committed; None when it was not."""
    kept: str | None
    """Where the workspace is when it is still there: mounted, or with uncommitted changes."""

    @property
    def returncode(self) -> int:
        """The command's exit code."""
        return self.result.returncode


def run(
    store: Store,
    command: Sequence[PathLike],
    settings: Settings,
    options: Options,
    *,
    note: Note,
    progress: Progress | None = None,
    stop: Stop | None = None,
    patience: contextlib.AbstractContextManager[object] | None = None,
) -> Run:
    """Does all of it. `patience` is entered once the command has ended: keeping its work is not to be
    interrupted lightly.

    Raises:
        AtollError: Before the command began: nothing is left. After it: its work is in the workspace, and the
        message
            says so.
        KeyboardInterrupt: After an interrupted command's work was committed.
    """
    _check(settings, options)
    branch, forked_from = _branch(store, settings, progress)
    forked = forked_from is not None
    try:
        workspace = store.mount(
            branch,
            driver=settings.driver,
            fsync=settings.fsync,
            scratch=settings.scratch,
            note=note,
            progress=progress,
        )
    except BaseException:
        _take_back(store, branch, forked, note)
        raise
    began_at = workspace.head
    try:
        result, interrupt = carry_out(workspace, command, options, note=note, stop=stop)
    except LauncherLost as error:
        raise _kept(error, workspace) from error
    except BaseException:
        # Nothing was run.
        with contextlib.suppress(AtollError):
            workspace.umount()
        _take_back(store, branch, forked, note)
        raise
    with patience or contextlib.nullcontext():
        done = _keep(store, workspace, result, settings, forked_from, note, progress)
    commit, kept = done
    if interrupt is not None:
        raise interrupt
    return Run(result, branch, began_at, commit, kept)


def run_with(
    store: Store,
    command: Sequence[PathLike],
    *,
    check: bool = True,
    note: Note | None = None,
    progress: Progress | None = None,
    _stop: Stop | None = None,
    **keywords: Any,
) -> Run:
    """`run` with the fields of `Settings` and `Options` as keywords: what `Store.run` does.

    Raises:
        CommandFailed: With `check`, when the exit code is not 0; its work is committed.
    """
    ours = {field.name for field in fields(Settings)}
    settings = Settings(**{name: value for name, value in keywords.items() if name in ours})
    options = Options(**{name: value for name, value in keywords.items() if name not in ours})
    done = run(store, command, settings, options, note=note or _silent, progress=progress, stop=_stop)
    if check:
        done.result.check()
    return done


def _silent(sentence: str) -> None:
    """Takes a sentence that nobody wants; `RunResult.notes` has those of the command itself."""


def _check(settings: Settings, options: Options) -> None:
    memory_bytes(options.memory)
    if settings.on is not None:
        if settings.name is not None or settings.base is not None:
            raise Usage("--on names a branch that exists; it goes with neither a base nor --name.")
        if settings.discard_on_failure:
            raise Usage(
                "--discard-on-failure throws a fork away; with --on there is none. Leave one of them out."
            )


def _branch(store: Store, settings: Settings, progress: Progress | None) -> tuple[str, str | None]:
    """The branch to run on, and what it was forked from; None when it was there before."""
    if settings.on is not None:
        return store.ref(settings.on).name, None
    base = settings.base
    if base is None:
        base = base_here(store, settings.folder, progress)
    if settings.name is not None:
        return store.fork(base, settings.name).name, base
    taken = [int(match[1]) for ref in store.branches() if (match := _NUMBERED.fullmatch(ref.name))]
    number = max(taken, default=0) + 1
    while True:
        # Another process may have taken the number meanwhile: the store decides.
        try:
            return store.fork(base, f"run-{number}").name, base
        except Exists:
            number += 1


def base_here(store: Store, folder: PathLike | None, progress: Progress | None = None) -> str:
    """The branch to fork when none is named: inside a workspace its own, with what it holds now committed
    first; else the project's, with what changed in its folder imported first.

    Raises:
        NotFound: The folder is no project of this store.
        Usage: The project is on several branches and none is `main`.
    """
    if folder is None and (inside := _workspace_here(store)) is not None:
        inside.commit(f"before a run from {inside.branch}", progress=progress)
        return inside.branch
    from atoll import registry

    start = Path(os.path.realpath(os.path.expanduser(folder if folder is not None else os.curdir)))
    found = registry.project_of(start)
    known = {ref.folder for ref in store.branches() if ref.folder is not None}
    candidates = (
        [found[0]] if found is not None else [path for path in (start, *start.parents) if str(path) in known]
    )
    if not candidates:
        raise NotFound(
            f"{start} belongs to no imported project; `atoll import` it first, or name what to run on: "
            "`atoll run BASE -- …`."
        )
    project = candidates[0]
    branch = _project_branch(store, project)
    store.import_folder(project, branch=branch, progress=progress)
    return branch


def _workspace_here(store: Store) -> Workspace | None:
    try:
        return store.workspace()
    except NotFound:
        return None


def _project_branch(store: Store, project: Path) -> str:
    """The branch that the project's imports go to: `main`, else the only one whose newest commit is an
    import."""
    branches = [ref for ref in store.branches() if ref.folder == str(project)]
    names = [ref.name for ref in branches]
    if "main" in names or not names:
        return "main"
    imported = [ref.name for ref in branches if "import" in store.commit(ref.commit).meta]
    if len(imported) == 1:
        return imported[0]
    raise Usage(
        f"{project} is on several branches ({', '.join(sorted(imported or names)[:5])}); name the one to run "
        "on: "
        "`atoll run BASE -- …`."
    )


def _take_back(store: Store, branch: str, forked: bool, note: Note) -> None:
    if forked:
        try:
            store.drop(branch)
        except AtollError as error:
            note(f"The branch '{branch}' is left: {error.message}")


def _keep(
    store: Store,
    workspace: Workspace,
    result: RunResult,
    settings: Settings,
    forked_from: str | None,
    note: Note,
    progress: Progress | None,
) -> tuple[str | None, str | None]:
    """Commits and unmounts. Returns the commit and where the workspace still is."""
    branch, forked = workspace.branch, forked_from is not None
    if not result.started and forked:
        workspace.umount()
        _take_back(store, branch, forked, note)
        return None, None
    if settings.discard_on_failure and not result.ok and not result.left_behind_alive:
        store.drop(branch, note=note)
        note(f"The command failed, so '{branch}' was thrown away; `atoll undo` brings it back.")
        return None, None
    commit: str | None = None
    if settings.commit and result.started:
        commit = commit_result(
            workspace, result, settings.message, settings.record_command, progress, forked_from
        )
    if result.left_behind_alive:
        names = ", ".join(f"{name} (pid {pid})" for pid, name in result.left_behind[:5])
        note(
            f"'{branch}' stays mounted at {workspace.path}, since {names} go on; `atoll umount {branch}` "
            "later."
        )
        return commit, os.fspath(workspace.path)
    try:
        left = workspace.umount(note=note)
    except Busy as error:
        note(f"'{branch}' stays mounted: {error.message}")
        return commit, os.fspath(workspace.path)
    if left.kept:
        note(
            f"{left.changes} changed paths of '{branch}' are not committed; `atoll mount {branch}` shows "
            "them, "
            f"`atoll commit {branch}` keeps them."
        )
    return commit, left.place if left.kept else None


def commit_result(
    workspace: Workspace,
    result: RunResult,
    message: str | None,
    record: bool,
    progress: Progress | None,
    forked_from: str | None = None,
) -> str:
    """Commits what a command left, with its outcome in the metadata, and returns the commit. `forked_from` is
    the reference that its branch was forked from for it.

    Raises:
        AtollError: It could not be committed; the message says where it is kept.
    """
    recorded = recorded_command(result.args) if record else None
    how = "timeout" if result.timed_out else f"exit {result.returncode}"
    message = message or f"run {_line(recorded) if recorded else 'a command'}: {how}"
    run = result.meta(recorded)
    if forked_from is not None:
        run["forked_from"] = forked_from
    try:
        done = workspace.commit(message, meta={"run": run}, allow_empty=True, progress=progress)
    except AtollError as error:
        what = f"The command ended with {result.returncode}, and its work could not be committed: "
        raise _kept(error, workspace, what) from error
    return done.commit


def _kept(error: AtollError, workspace: Workspace, before: str = "") -> AtollError:
    """The same error, saying where the command's work is."""
    error.message = (
        f"{before}{error.message} `atoll status {workspace.branch}` shows it, `atoll commit "
        f"{workspace.branch}` keeps it."
    )
    error.args = (error.message,)
    return error


def recorded_command(words: Sequence[str]) -> list[str]:
    """What a commit records of a command line: masked, long arguments cut."""
    return [
        word if len(word) <= ARGUMENT_LIMIT else f"{word[:ARGUMENT_LIMIT]}…" for word in mask_command(words)
    ]


def _line(words: Sequence[str], limit: int = 60) -> str:
    import shlex

    line = " ".join(shlex.join(words).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of `atoll runs`."""

    branch: str
    base: str
    """The commit that it began at."""
    commit: Commit
    """What it left."""
    run: dict[str, Any]
    """Command, exit code, times, memory: see `RunResult.meta`."""
    files_changed: int
    bytes_changed: int
    """The sizes of new and changed files, together."""


def runs(store: Store, branches: Sequence[str] = (), limit: int | None = None) -> Iterator[Listed]:
    """The commands that were run, newest first, on these branches or on all. A commit counts for the branch
    that was forked for it, not for forks of that."""
    found: list[tuple[str, Commit]] = []
    for ref in store.branches():
        if branches and ref.name not in branches:
            continue
        for commit in store.log(ref.commit):
            if commit.id == ref.base:
                break
            if "run" in commit.meta:
                found.append((ref.name, commit))
    found.sort(key=lambda pair: pair[1].time_ns, reverse=True)
    for name, commit in found[:limit]:
        base = commit.parents[0] if commit.parents else commit.id
        changes = store.diff(base, commit.id) if commit.parents else []
        size = sum(change.new.size for change in changes if change.new is not None and change.content_changed)
        yield Listed(name, base, commit, dict(commit.meta["run"]), len(changes), size)
