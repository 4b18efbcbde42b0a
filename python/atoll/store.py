"""The store, as programs use it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Literal

from atoll import _native, browsing, importing, refs, workspaces
from atoll._async import paired
from atoll.errors import Usage
from atoll.finding import create_store, find_store
from atoll.history import Change, Commit, Entry, Operation, Ref
from atoll.results import ApplyResult, ExportResult, ImportResult

if TYPE_CHECKING:
    from atoll.drivers.base import Note, Progress
    from atoll.run.whole import Listed, Run
    from atoll.workspace import Workspace

__all__ = ["Branch", "PathLike", "Store", "create", "open"]

PathLike = str | os.PathLike[str]


class Branch:
    """A branch of a store, as `fork` returns it."""

    def __init__(self, store: Store, name: str) -> None:
        self.store = store
        self.name = name

    def __repr__(self) -> str:
        return f"Branch({self.name!r})"

    def __str__(self) -> str:
        return self.name

    @property
    def commit(self) -> str:
        """The commit that it names now."""
        return self.store.ref(self.name).commit

    @property
    def base(self) -> str:
        """The commit that it was forked at."""
        return self.store.ref(self.name).base

    def mount(
        self,
        directory: PathLike | None = None,
        *,
        driver: str = "auto",
        fsync: Literal["full", "commit"] = "full",
        scratch: str = "disk",
        note: Note | None = None,
        progress: Progress | None = None,
    ) -> Workspace:
        """See `Store.mount`."""
        return self.store.mount(
            self.name, directory, driver=driver, fsync=fsync, scratch=scratch, note=note, progress=progress
        )

    mount_async = paired(mount)


class Store:
    """An open store. Several threads may use one; several processes may each open it.

    Methods that touch the disk have a twin with `_async`. References are what people expect: a branch, a tag,
    `main~3`, a unique prefix of a commit's id."""

    def __init__(self, native: _native.Store) -> None:
        self._native: _native.Store | None = native
        self._dir = native.dir

    @property
    def native(self) -> _native.Store:
        """The core's store.

        Raises:
            Usage: This object was closed."""
        if self._native is None:
            raise Usage(f"The store {self._dir} was closed here; open it again with `atoll.open`.")
        return self._native

    def __repr__(self) -> str:
        return f"Store({os.fspath(self.path)!r})"

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Store:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the use of this object and lets go of the store's files. Workspaces stay mounted; what was
        published is safe already."""
        self._native = None

    @property
    def path(self) -> Path:
        """The store's folder."""
        return Path(self._dir)

    @property
    def id(self) -> str:
        """The store's random id, 32 hexadecimal digits."""
        return self.native.id

    # -- in --------------------------------------------------------------------------------------------------

    def import_folder(
        self,
        folder: PathLike,
        *,
        branch: str = "main",
        message: str | None = None,
        exclude: Iterable[str] | None = None,
        skip_unreadable: bool = False,
        replace: bool = False,
        meta: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
    ) -> ImportResult:
        """Makes the folder's present state a commit on `branch`, which need not exist; reads only what
        changed since the folder's last import. Returns when the commit would survive a power cut.

        `exclude` takes patterns in `.gitignore` syntax; without, those of the folder's last import hold.
        `replace` lets a folder take the place of another one on the branch. Raises `Busy` while git works in
        the folder, `PermissionDenied` naming what cannot be read, `Conflict` when the branch holds another
        folder."""
        return importing.import_folder(
            self.native,
            folder,
            branch=branch,
            message=message,
            exclude=exclude,
            skip_unreadable=skip_unreadable,
            replace=replace,
            meta=meta,
            progress=progress,
        )

    import_folder_async = paired(import_folder)

    def import_tar(
        self,
        source: PathLike | IO[bytes],
        *,
        branch: str,
        message: str | None = None,
        progress: Progress | None = None,
    ) -> ImportResult:
        """Makes what a tar archive holds a commit on `branch`; `source` is a path or an open file with a
        descriptor."""
        return importing.import_tar(self.native, source, branch=branch, message=message, progress=progress)

    import_tar_async = paired(import_tar)

    # -- names -----------------------------------------------------------------------------------------------

    def resolve(self, reference: str) -> str:
        """The full id of the commit that a reference means."""
        return self.native.resolve(reference)

    def ref(self, name: str, kind: Literal["branch", "tag"] = "branch") -> Ref:
        """One branch or tag; raises `NotFound` with the nearest names."""
        return refs.get(self.native, name, kind)

    def refs(self) -> list[Ref]:
        """All branches and tags, sorted."""
        return [Ref._of(raw) for raw in self.native.refs()]

    def branches(self) -> list[Ref]:
        """All branches, sorted by name."""
        return [ref for ref in self.refs() if ref.kind == "branch"]

    def branch(self, name: str) -> Branch:
        """A branch that exists."""
        return Branch(self, self.ref(name).name)

    def fork(self, base: str, name: str) -> Branch:
        """A new branch on the commit that `base` means. O(1), whatever the tree's size."""
        refs.fork(self.native, base, name)
        return Branch(self, name)

    fork_async = paired(fork)

    def tag(self, name: str, reference: str) -> Ref:
        """A fixed name for a commit."""
        return refs.tag(self.native, name, reference)

    def untag(self, name: str) -> None:
        """Takes a tag away."""
        refs.untag(self.native, name)

    def rename_branch(self, old: str, new: str) -> Branch:
        """Gives a branch another name; a workspace on it follows."""
        refs.rename_branch(self.native, old, new)
        return Branch(self, new)

    def drop(self, *patterns: str, exclude: Iterable[str] = (), note: Note | None = None) -> list[str]:
        """Throws branches away, by name or by pattern (`a*`), and unmounts their workspaces. Uncommitted
        changes are committed first, so that `undo` has everything for 14 days. Returns the names."""
        return workspaces.drop(self, patterns, exclude=exclude, note=note)

    drop_async = paired(drop)

    def operations(self, limit: int = 50) -> list[Operation]:
        """What was done in this store, newest first."""
        return [Operation._of(raw) for raw in self.native.operations(limit)]

    def undo(self, operation: int | None = None) -> Operation:
        """Takes an operation back, without a number the newest one that is not taken back. Returns the
        operation that was taken back. Raises `Moved` when its branches moved since."""
        from atoll import undoing

        return undoing.undo(self, operation)

    undo_async = paired(undo)

    # -- history ---------------------------------------------------------------------------------------------

    def commit(self, reference: str) -> Commit:
        """The commit that a reference means."""
        return Commit._of(self.native.commit(self.resolve(reference)))

    def log(self, reference: str, limit: int | None = None) -> Iterator[Commit]:
        """The commit and its ancestors, newest first."""
        return browsing.log(self.native, self.resolve(reference), limit)

    def diff(self, old: str, new: str) -> list[Change]:
        """The changed paths from one commit to another, sorted by path."""
        raw = _native.changes(self.native, self.resolve(old), self.resolve(new))
        return [Change._of(change) for change in raw]

    diff_async = paired(diff)

    def patch(self, old: str, new: str, paths: Sequence[str] = ()) -> bytes:
        """The same as a patch that `git apply --binary` accepts."""
        return browsing.patch(self.native, self.resolve(old), self.resolve(new), paths)

    def stat(self, reference: str, path: str | bytes = "") -> Entry:
        """The entry at a path of a commit; raises `NotFound`."""
        return browsing.stat(self.native, self.resolve(reference), os.fsencode(path))

    def ls(self, reference: str, path: str | bytes = "", *, recursive: bool = False) -> list[Entry]:
        """The entries of a folder of a commit."""
        raw = _native.entries(self.native, self.resolve(reference), browsing.clean(path), recursive)
        return [Entry._of(entry) for entry in raw]

    def read(self, reference: str, path: str | bytes, offset: int = 0, length: int | None = None) -> bytes:
        """Bytes of a file of a commit."""
        longest = (1 << 63) - 1 if length is None else length
        return _native.read(self.native, self.resolve(reference), browsing.clean(path), offset, longest)

    # -- out -------------------------------------------------------------------------------------------------

    def export(
        self,
        reference: str,
        directory: PathLike,
        *,
        path: str | bytes = "",
        into_existing: bool = False,
        durable: bool = False,
        progress: Progress | None = None,
    ) -> ExportResult:
        """Writes a commit's folder to `directory`, which must not exist or be empty."""
        return browsing.export(
            self.native,
            self.resolve(reference),
            directory,
            path=path,
            into_existing=into_existing,
            durable=durable,
            progress=progress,
        )

    export_async = paired(export)

    def apply(
        self,
        reference: str,
        folder: PathLike | None = None,
        *,
        base: str | None = None,
        paths: Iterable[str] = (),
        all: bool = False,
        force: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> ApplyResult:
        """Brings what a branch changed since it was forked (or since `base`) into a real folder: by default
        the one that was imported. All or nothing as far as a folder allows.

        Raises `Conflict` listing the paths that changed in the folder too; `force` overwrites them, and their
        state is committed first. `.git` and git-ignored paths are left out unless `all`."""
        from atoll import applying

        return applying.apply(
            self,
            reference,
            folder,
            base=base,
            paths=paths,
            all=all,
            force=force,
            dry_run=dry_run,
            progress=progress,
        )

    apply_async = paired(apply)

    # -- workspaces ------------------------------------------------------------------------------------------

    def mount(
        self,
        branch: str,
        directory: PathLike | None = None,
        *,
        driver: str = "auto",
        fsync: Literal["full", "commit"] = "full",
        scratch: str = "disk",
        note: Note | None = None,
        progress: Progress | None = None,
    ) -> Workspace:
        """Makes a branch a writable folder: `directory`, which must be empty or not exist, or a managed
        place.

        A workspace that was unmounted or lost by a crash comes back with its uncommitted changes. `note` is
        called with sentences for people. Raises `Busy` naming the holder when the branch is mounted
        already."""
        return workspaces.mount(
            self, branch, directory, driver=driver, fsync=fsync, scratch=scratch, note=note, progress=progress
        )

    mount_async = paired(mount)

    def run(self, command: Sequence[PathLike], *, check: bool = True, **keywords: Any) -> Run:
        """Forks, mounts, runs a command, commits what it left (also of a failure) and unmounts. `keywords`
        are the fields of `atoll.run.whole.Settings` (`base`, `name`, `on`, `driver`, …) and
        `atoll.run.command.Options` (`timeout`, `at`, `env`, `capture_output`, …). Raises `CommandFailed` when
        the exit code is not 0, unless `check=False`."""
        from atoll.run.whole import run_with

        return run_with(self, command, check=check, **keywords)

    async def run_async(self, command: Sequence[PathLike], *, check: bool = True, **keywords: Any) -> Run:
        """`run` as a coroutine; cancelling it ends the command first."""
        from atoll.run import run_with_async

        return await run_with_async(self, command, check=check, **keywords)

    def runs(self, branches: Sequence[str] = (), limit: int | None = None) -> Iterator[Listed]:
        """What was run, newest first."""
        from atoll.run.whole import runs

        return runs(self, branches, limit)

    def workspaces(self) -> list[Workspace]:
        """All workspaces, mounted or with uncommitted changes."""
        return workspaces.every(self)

    def workspace(self, name: PathLike | None = None) -> Workspace:
        """An existing workspace by its branch or by any path in it; without a name the one that the current
        folder or ATOLL_WORKSPACE says."""
        return workspaces.find(self, name)

    # -- upkeep ----------------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Counts and sizes of what is stored."""
        return _native.stats(self.native)

    def gc(
        self, *, expire_days: float = 14.0, dry_run: bool = False, thorough: bool = False
    ) -> dict[str, Any]:
        """Frees what no branch, tag, workspace or operation younger than `expire_days` needs; `thorough` also
        rewrites packs that are only a little dead."""
        return _native.gc(self.native, expire_days * 86400.0, dry_run, thorough)

    gc_async = paired(gc)

    def check(self) -> dict[str, Any]:
        """Reads everything that is stored and compares it with its names; `problems` lists what is
        damaged."""
        return _native.check(self.native)

    check_async = paired(check)


def open(where: PathLike | None = None, *, store: PathLike | None = None) -> Store:
    """Opens the store of a folder (default: the current one): `store` or ATOLL_STORE when given, else that of
    the workspace or of the imported project that the folder lies in.

    Raises `NoStore` when there is none."""
    return Store(_native.Store.open(find_store(where, store)))


def create(directory: PathLike, *, profile: Literal["full", "normal", "off"] = "full") -> Store:
    """Makes a store in a folder that does not exist or is empty."""
    return Store(create_store(Path(os.path.abspath(os.path.expanduser(directory))), profile))
