"""A workspace: a writable view of a branch."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from atoll import drivers, registry
from atoll._async import paired
from atoll.drivers.base import Capture, Driver, Place
from atoll.errors import Moved, NotFound
from atoll.history import Change
from atoll.importing import request
from atoll.machine import same_boot
from atoll.results import CommitResult, Status, UmountResult, _commit_result

if TYPE_CHECKING:
    from atoll import _native
    from atoll.drivers.base import Freeze, Note, Progress
    from atoll.run import RunResult
    from atoll.store import Store

__all__ = ["Workspace"]


#: In a workspace's folder: nothing in it is needed any more.
LET_GO = "let-go"


def _is_at(file: int, path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file), os.stat(path))
    return False


class Workspace:
    """A branch as a folder. `os.fspath(ws)` is where it is mounted; leaving the `with` block unmounts it and
    keeps what is not committed."""

    def __init__(self, store: Store, record: _native.WorkspaceDict) -> None:
        self.store = store
        self._record = record

    def __repr__(self) -> str:
        return f"Workspace({self.branch!r}, driver={self.driver!r}, path={self._record['mountpoint']!r})"

    def __enter__(self) -> Workspace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._exists() and self.mounted:
                self.umount()
        except Exception as failure:
            if error is None:
                raise
            # The body's exception says what went wrong first; what failed here is told with it.
            error.add_note(f"Unmounting '{self.branch}' failed too: {failure}")

    async def __aenter__(self) -> Workspace:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from atoll._async import in_thread

        await in_thread(self.__exit__, kind, error, trace)

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    # -- what it is ------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """16 hexadecimal digits."""
        return self._record["id"]

    @property
    def branch(self) -> str:
        """The branch that it commits to."""
        return self._record["branch"]

    @property
    def driver(self) -> str:
        """`overlay`, `fuse` or `copy`."""
        return self._record["driver"]

    @property
    def base(self) -> str:
        """The commit that it was mounted at."""
        return self._record["base"]

    @property
    def head(self) -> str:
        """The last commit that it captured or began at."""
        return self._record["head"]

    @property
    def folder(self) -> Path:
        """What the store keeps of it: `STORE/workspaces/ID`."""
        return self.store.path / "workspaces" / self.id

    @property
    def path(self) -> Path:
        """Where it is mounted, or was last."""
        where = self._record["mountpoint"]
        if where is None:
            raise NotFound(
                f"Workspace '{self.branch}' has no folder; `atoll mount {self.branch}` gives it one."
            )
        return Path(where)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The driver's settings as they are stored."""
        loaded: dict[str, Any] = json.loads(self._record["settings"] or "{}")
        return loaded

    @property
    def mounted(self) -> bool:
        """Whether it is usable at `path` now."""
        return self._driver.is_mounted(self._place())

    @property
    def cut_off(self) -> bool:
        """Whether it is mounted, but the processes that served it were killed; mounting it again mends
        that."""
        place = self._place()
        return self._driver.is_mounted(place) and self._driver.is_cut_off(place)

    @property
    def _driver(self) -> Driver:
        return drivers.get(self.driver)

    def _place(self) -> Place:
        return Place(self.store.native, self._record, self.folder, dict(self.settings))

    # -- its record ------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds the workspace against other threads and processes, with its record as it is now."""
        with self._held():
            try:
                self.refresh()
            except NotFound:
                # Only what this call made: whatever else is there is for `gc`.
                with contextlib.suppress(OSError):
                    os.unlink(self.folder / "lock")
                    self.folder.rmdir()
                raise
            yield

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """The lock alone; a workspace that is being made has no record yet."""
        import fcntl

        while True:
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                file = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                # Whoever had it before may have removed the folder: then this lock is nobody's any more.
                if _is_at(file, self.folder / "lock"):
                    yield
                    return
            finally:
                os.close(file)

    def refresh(self) -> None:
        """Reads its record again; raises `NotFound` when it was dropped or unmounted with nothing left."""
        for record in self.store.native.workspaces():
            if record["id"] == self.id:
                self._record = record
                return
        raise NotFound(
            f"Workspace '{self.branch}' is not mounted any more; `atoll mount {self.branch}` mounts it again."
        )

    def _exists(self) -> bool:
        """Whether it is there still: it may have been unmounted or dropped from elsewhere, and another one
        may have its place."""
        try:
            self.refresh()
        except NotFound:
            return False
        return True

    def _save(self, place: Place | None = None, **fields: Any) -> None:
        record: Any = {**self._record, **fields}
        if place is not None:
            record["settings"] = json.dumps(place.settings)
        self.store.native.put_workspace(record)
        self._record = record

    def _heal(self) -> None:
        """After a crash between publishing a commit and noting it here, the branch's commit is this
        workspace's."""
        tip = self.store.ref(self.branch).commit
        if tip == self.head:
            return
        for operation in self.store.native.operations(100):
            for change in operation["changes"]:
                new, old = change["new"], change["old"]
                if (change["kind"], change["name"]) != ("branch", self.branch) or new is None or old is None:
                    continue
                if new["commit"] == tip and operation["workspace"] == self.id and old["commit"] == self.head:
                    self._save(head=tip)
                return

    # -- verbs -----------------------------------------------------------------------------------------------

    def commit(
        self,
        message: str = "",
        *,
        to: str | None = None,
        meta: Mapping[str, Any] | None = None,
        author: str | None = None,
        allow_empty: bool = False,
        freeze: Freeze | None = None,
        progress: Progress | None = None,
    ) -> CommitResult:
        """Captures what the workspace holds now and makes it its branch's new commit; durable on return. It
        may be in use meanwhile. `to` commits to a new branch, forked where this one was, and the workspace
        follows it.

        Raises `Moved` when the branch is not where the workspace left it; nothing is lost then."""
        with self._locked():
            if not same_boot(self.settings):
                raise NotFound(
                    f"'{self.branch}' was not mounted since this machine was started; `atoll mount"
                    f" {self.branch}` looks first whether all of it was on the disk."
                )
            if to is not None:
                self._switch(to)
            return self._commit(
                message, meta=meta, author=author, allow_empty=allow_empty, freeze=freeze, progress=progress
            )

    commit_async = paired(commit)

    def _switch(self, branch: str) -> None:
        from atoll import refs
        from atoll.history import Ref

        old = self.store.ref(self.branch)
        ref = Ref("branch", branch, self.head, old.base, old.folder)
        change: _native.RefChangeDict = {"kind": "branch", "name": branch, "old": None, "new": ref._state()}
        note = f"fork {self.head[:12]} as {branch} for the workspace of {self.branch}"
        refs.move(self.store.native, "fork", note, [change], self.id)
        self._save(branch=branch)

    def _commit(
        self,
        message: str,
        *,
        kind: str = "commit",
        meta: Mapping[str, Any] | None = None,
        author: str | None = None,
        allow_empty: bool = False,
        freeze: Freeze | None = None,
        progress: Progress | None = None,
        trust_index: bool = True,
    ) -> CommitResult:
        self._heal()
        wanted = request(
            branch=self.branch,
            head=self.head,
            message=message or f"commit {self.branch}",
            kind=kind,
            note=f"{kind} {self.branch}",
            meta=meta,
            workspace=self.id,
            allow_empty=allow_empty,
            by=author,
        )
        self._check_moved()
        if freeze is None:
            from atoll.run.active import freezer

            freeze = freezer(self.folder)
        try:
            done = self._driver.commit(self._place(), wanted, Capture(progress, freeze, trust_index))
        except Moved as error:
            raise self._moved() from error
        if done["commit"] != self.head:
            self._save(head=done["commit"])
        return _commit_result(done)

    def _check_moved(self) -> None:
        if self.store.ref(self.branch).commit != self.head:
            raise self._moved()

    def _moved(self) -> Moved:
        return Moved(
            f"Branch '{self.branch}' moved away from {self.head[:12]} since this workspace was mounted; "
            f"`atoll commit {self.branch} --to NEW` keeps its changes on a branch of their own.",
            details={"branch": self.branch, "head": self.head},
        )

    def status(self, *, progress: Progress | None = None) -> Status:
        """What a commit would hold now, and whether the branch is elsewhere."""
        with self._locked():
            self._heal()
            changes = self._changes(progress)
            return Status(changes, self.store.ref(self.branch).commit != self.head)

    status_async = paired(status)

    def _changes(self, progress: Progress | None = None, trust_index: bool = True) -> tuple[Change, ...]:
        raw = self._driver.changes(self._place(), Capture(progress, trust_index=trust_index))
        return tuple(Change._of(change) for change in raw)

    def umount(self, *, note: Note | None = None) -> UmountResult:
        """Takes the folder away. Uncommitted changes are kept for the next mount; without any, nothing is
        left.

        Raises `Busy` naming process and pid while something uses it."""
        from atoll.run.active import refuse_if_running
        from atoll.workspaces import silent

        with self._locked():
            refuse_if_running(self.folder, self.branch)
            self._heal()
            place = self._place()
            changes = self._driver.unmount(place, note=note or silent)
            if changes:
                self._save(place)
                kept = self.path if self._driver.name == "copy" else self.folder
                return UmountResult(True, changes, str(kept))
            self._forget(place)
            return UmountResult(False, 0, None)

    umount_async = paired(umount)

    def _forget(self, place: Place) -> None:
        """Removes what is left of an unmounted workspace without content."""
        import shutil

        registry.forget("workspace", place.mountpoint)
        if place.settings.get("made_mountpoint"):
            # Only an empty folder goes: what others put there stays.
            with contextlib.suppress(OSError):
                place.mountpoint.rmdir()
        self.store.native.remove_workspace(self.id)
        # What was set aside after a crash is the user's to look into; it was named then.
        # Not looked for in the upper: that holds the user's names, any number of them.
        if not any(self.folder.glob("upper.aside-*")) and not any(self.folder.glob("scratch/upper.aside-*")):
            shutil.rmtree(self.folder, ignore_errors=True)

    def restore(
        self, source: str, paths: Iterable[str] = (), *, progress: Progress | None = None
    ) -> CommitResult:
        """Brings the workspace, or only `paths` in it, to the state that commit `source` has, and commits
        that. The present state is committed first, so a restore can be taken back. One that is not mounted is
        mounted meanwhile."""
        from atoll import restoring

        if not self.mounted:
            return restoring.restore_branch(self.store, self.branch, source, paths, progress=progress)
        with self._locked():
            return restoring.restore(self, source, list(paths), progress)

    restore_async = paired(restore)

    def run(self, command: Sequence[str | os.PathLike[str]], **options: Any) -> RunResult:
        """Runs a command in the workspace, shown at the path that was imported. See `atoll.run`."""
        from atoll import run

        return run.run(self, command, **options)

    async def run_async(self, command: Sequence[str | os.PathLike[str]], **options: Any) -> RunResult:
        """`run` as a coroutine."""
        from atoll import run

        return await run.run_async(self, command, **options)
