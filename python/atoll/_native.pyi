"""The Rust core. Translation only: the classes of `atoll.store` and `atoll.workspace` are the interface."""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Literal, TypedDict

__version__: str

_Path = str | PathLike[str]
#: Called with phase, files and bytes; what it raises stops the work.
_Progress = Callable[[str, int, int], object] | None
_Type = Literal["file", "dir", "symlink", "fifo", "socket", "char", "block"]
_RefKind = Literal["branch", "tag"]

class SummaryDict(TypedDict):
    files: int
    dirs: int
    others: int
    bytes: int
    xattrs: int

class CommitDict(TypedDict):
    id: str
    tree: str
    content: str
    parents: list[str]
    author: str
    time_ns: int
    utc_offset: int
    message: str
    meta: dict[str, str]
    summary: SummaryDict

class RefStateDict(TypedDict):
    commit: str
    base: str
    folder: bytes | None

class RefDict(RefStateDict):
    kind: _RefKind
    name: str

class RefChangeDict(TypedDict):
    kind: _RefKind
    name: str
    old: RefStateDict | None
    new: RefStateDict | None

class NewOperationDict(TypedDict):
    kind: str
    note: str
    workspace: str | None
    undoes: int | None
    changes: list[RefChangeDict]

class OperationDict(NewOperationDict):
    seq: int
    time_ns: int
    user: str

class PublishedDict(TypedDict):
    seq: int
    commits: list[str]
    stored_bytes: int

class RequestDict(TypedDict):
    branch: str
    head: str | None
    author: str
    time_ns: int
    utc_offset: int
    message: str
    meta: dict[str, str]
    folder: bytes | None
    kind: str
    note: str
    workspace: str | None
    allow_empty: bool

class ReportDict(TypedDict):
    files: int
    dirs: int
    read_files: int
    read_bytes: int
    unchanged: int
    skipped: list[tuple[bytes, str]]
    ignored: int
    secrets: list[bytes]
    rewritten: list[bytes]
    changed: bool

class CommittedDict(TypedDict):
    commit: str
    published: PublishedDict | None
    report: ReportDict

class CaptureNotes(TypedDict):
    passes: int
    frozen: bool
    mapped: int
    index_used: bool

class OverlayCommittedDict(CommittedDict):
    notes: CaptureNotes

class CaptureDict(TypedDict):
    folder: str
    index: str
    workspace: str
    base: str
    head: str
    mountpoint: str | None
    freeze: Callable[[bool], None] | None
    trust_index: bool

class ServerDict(TypedDict):
    pid: int
    supervisor_pid: int
    store: str
    store_id: str
    history: str
    transport: str
    rss_bytes: int
    requests: dict[str, int]
    uptime_s: float
    restarts: int
    pins: list[str]

class FileStatDict(TypedDict):
    path: bytes
    old_path: bytes | None
    added: int
    deleted: int
    binary: bool
    old_size: int
    new_size: int

class ExportDict(TypedDict):
    files: int
    dirs: int
    bytes: int
    lost: list[tuple[bytes, str]]

class TarDict(TypedDict):
    entries: int
    bytes: int
    skipped: list[bytes]

class EntryDict(TypedDict):
    path: bytes
    type: _Type
    ino: int
    birth: int
    mode: int
    uid: int
    gid: int
    size: int
    nlink: int
    rdev: int
    mtime_ns: int
    ctime_ns: int
    btime_ns: int

class ChangeDict(TypedDict):
    kind: Literal["added", "deleted", "modified", "metadata", "renamed", "type_changed"]
    path: bytes
    old_path: bytes | None
    old: EntryDict | None
    new: EntryDict | None
    content_changed: bool

class PlanDict(TypedDict):
    changes: list[ChangeDict]
    left_out: list[tuple[bytes, Literal["git", "ignored", "outside"]]]
    conflicts: list[tuple[bytes, str, bool]]
    overwrites: list[bytes]

class AppliedDict(PlanDict):
    lost: list[tuple[bytes, str]]
    kept_folders: list[bytes]
    kept_aside: str | None

class WorkspaceDict(TypedDict):
    id: str
    branch: str
    driver: str
    base: str
    head: str
    mountpoint: str | None
    settings: str
    created_ns: int

class Store:
    @staticmethod
    def create(dir: _Path, profile: str) -> Store: ...
    @staticmethod
    def open(dir: _Path) -> Store: ...
    @property
    def dir(self) -> str: ...
    @property
    def id(self) -> str: ...
    def resolve(self, reference: str) -> str: ...
    def commit(self, id: str) -> CommitDict: ...
    def get_ref(self, kind: str, name: str) -> RefDict | None: ...
    def refs(self) -> list[RefDict]: ...
    def operations(self, limit: int) -> list[OperationDict]: ...
    def workspaces(self) -> list[WorkspaceDict]: ...
    def put_workspace(self, workspace: WorkspaceDict) -> None: ...
    def remove_workspace(self, id: str) -> None: ...

def ancestors(store: Store, commit: str, limit: int | None) -> list[CommitDict]: ...
def is_ancestor(store: Store, ancestor: str, of: str) -> bool: ...
def move_refs(store: Store, operation: NewOperationDict) -> PublishedDict: ...
def undo(store: Store, seq: int | None) -> OperationDict: ...
def stats(store: Store) -> dict[str, Any]: ...
def gc(store: Store, expire_seconds: float, dry_run: bool, thorough: bool) -> dict[str, Any]: ...
def check(store: Store) -> dict[str, Any]: ...
def stat(store: Store, commit: str, path: bytes) -> EntryDict | None: ...
def entries(store: Store, commit: str, path: bytes, recursive: bool) -> list[EntryDict]: ...
def read(store: Store, commit: str, path: bytes, offset: int, length: int) -> bytes: ...
def xattrs(store: Store, commit: str, path: bytes) -> dict[bytes, bytes]: ...
def changes(store: Store, old: str | None, new: str) -> list[ChangeDict]: ...
def patch(store: Store, old: str | None, new: str, paths: Sequence[bytes]) -> tuple[bytes, list[bytes]]: ...
def diff_stat(store: Store, old: str | None, new: str, paths: Sequence[bytes]) -> list[FileStatDict]: ...
def servers() -> list[ServerDict]: ...
def history_path(store: Store, helper: list[str], commit: str) -> str: ...
def stop_server(store: Store) -> bool: ...
def live_mount(
    store: Store,
    helper: list[str],
    workspace: _Path,
    folder: _Path,
    target: _Path,
    commit: str,
    durable: bool,
) -> None: ...
def live_mounted(target: _Path) -> bool: ...
def live_umount(workspace: _Path, target: _Path, dead: bool) -> None: ...
def live_commit(
    store: Store,
    request: RequestDict,
    workspace: _Path,
    folder: _Path,
    target: _Path | None,
    head: str,
    *,
    progress: _Progress = None,
) -> CommittedDict: ...
def live_changes(
    store: Store,
    workspace: _Path,
    folder: _Path,
    target: _Path | None,
    head: str,
    *,
    progress: _Progress = None,
) -> list[ChangeDict]: ...
def live_server(workspace: _Path) -> int | None: ...
def live_left(store: Store, workspace: _Path, folder: _Path, head: str) -> int: ...
def overlay_probe(dir: _Path) -> str | None: ...
def overlay_mount(
    store: Store,
    helper: list[str],
    base: str,
    workspace: str,
    folder: _Path,
    fsync: str,
    target: _Path,
) -> None: ...
def overlay_mounted(target: _Path) -> bool: ...
def overlay_umount(store: Store, workspace: str, folder: _Path, target: _Path) -> None: ...
def overlay_was_volatile(folder: _Path) -> bool: ...
def overlay_set_aside(folder: _Path) -> str: ...
def overlay_recover(folder: _Path, base: str) -> bool: ...
def overlay_reset(store: Store, folder: _Path, record: WorkspaceDict) -> None: ...
def scratch_mount(dir: _Path, size: int | None) -> None: ...
def scratch_umount(dir: _Path) -> None: ...
def scratch_mounted(dir: _Path) -> bool: ...
def overlay_commit(
    store: Store, request: RequestDict, capture: CaptureDict, *, progress: _Progress = None
) -> OverlayCommittedDict: ...
def overlay_changes(
    store: Store, capture: CaptureDict, *, progress: _Progress = None
) -> list[ChangeDict]: ...
def overlay_left(store: Store, capture: CaptureDict, *, progress: _Progress = None) -> int: ...
def import_folder(
    store: Store,
    request: RequestDict,
    folder: _Path,
    *,
    base: str | None = None,
    excludes: list[str],
    skip_unreadable: bool,
    progress: _Progress = None,
) -> CommittedDict: ...
def last_import(store: Store, head: str, folder: bytes) -> str | None: ...
def import_tar(
    store: Store, request: RequestDict, fd: int, *, base: str | None = None, progress: _Progress = None
) -> CommittedDict: ...
def commit_tree(store: Store, request: RequestDict, tree_of: str) -> CommittedDict: ...
def export_folder(
    store: Store,
    commit: str,
    path: bytes,
    dir: _Path,
    *,
    durable: bool,
    into_existing: bool,
    progress: _Progress = None,
) -> ExportDict: ...
def export_tar(store: Store, commit: str, path: bytes, fd: int, *, progress: _Progress = None) -> TarDict: ...
def compare_folder(
    store: Store,
    commit: str,
    path: bytes,
    dir: _Path,
    *,
    owner: bool,
    mtime: bool,
    limit: int,
    progress: _Progress = None,
) -> list[tuple[bytes, str]]: ...
def copy_materialise(
    store: Store, commit: str, dir: _Path, index: _Path, *, progress: _Progress = None
) -> ExportDict: ...
def copy_commit(
    store: Store,
    request: RequestDict,
    dir: _Path,
    index: _Path,
    head: str,
    *,
    trust_index: bool = True,
    progress: _Progress = None,
) -> CommittedDict: ...
def copy_changes(
    store: Store,
    dir: _Path,
    index: _Path,
    head: str,
    *,
    trust_index: bool = True,
    progress: _Progress = None,
) -> list[ChangeDict]: ...
def copy_sync(dir: _Path) -> None: ...
def plan_apply(
    store: Store,
    base: str,
    result: str,
    target: _Path,
    *,
    journal: _Path,
    paths: list[bytes],
    all: bool,
    force: bool,
    progress: _Progress = None,
) -> PlanDict: ...
def apply_changes(
    store: Store,
    base: str,
    result: str,
    target: _Path,
    *,
    journal: _Path,
    paths: list[bytes],
    all: bool,
    force: bool,
    times: bool = False,
    progress: _Progress = None,
) -> AppliedDict: ...
def resume_apply(journal: _Path) -> bool: ...

# -- helper processes ----------------------------------------------------------------------------------------

def main(args: list[str]) -> int:
    """Runs a helper process (`supervisor`, `server`, `launch`) and returns its exit code."""
