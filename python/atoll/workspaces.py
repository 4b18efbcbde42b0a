"""The life of workspaces in a store: mount, find, drop, undo."""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from atoll import _native, drivers, machine, places, refs, registry
from atoll.drivers.base import Capture, MountOptions, Place
from atoll.errors import AtollError, Busy, Exists, NotFound, Usage
from atoll.history import Ref
from atoll.recovering import recover
from atoll.workspace import LET_GO, Workspace

if TYPE_CHECKING:
    from atoll.drivers.base import Note, Progress
    from atoll.store import PathLike, Store

__all__ = ["drop", "every", "find", "match", "mount", "silent"]


def silent(sentence: str) -> None:
    """Takes a sentence that nobody wants."""


def every(store: Store) -> list[Workspace]:
    """All workspaces, by branch."""
    records = sorted(store.native.workspaces(), key=lambda record: record["branch"])
    return [Workspace(store, record) for record in records]


def _on_branch(store: Store, branch: str) -> Workspace | None:
    for record in store.native.workspaces():
        if record["branch"] == branch:
            return Workspace(store, record)
    return None


def find(store: Store, name: PathLike | None) -> Workspace:
    """By branch, by a path in it, or by where one stands."""
    if name is None:
        return _here(store)
    text = os.fspath(name)
    if found := _on_branch(store, text):
        return found
    if found := _containing(store, text):
        return found
    known = [record["branch"] for record in store.native.workspaces()]
    if store.native.get_ref("branch", text) is not None:
        raise NotFound(f"Branch '{text}' has no workspace; `atoll mount {text}` makes one.")
    listed = f"; there are {', '.join(sorted(known)[:8])}" if known else "; `atoll mount BRANCH` makes one"
    raise NotFound(f"There is no workspace '{text}', by branch or by path{listed}.")


def _here(store: Store) -> Workspace:
    if found := _containing(store, os.curdir):
        return found
    named = os.environ.get("ATOLL_WORKSPACE")
    for workspace in every(store):
        if named and named in (workspace.id, workspace.branch):
            return workspace
    raise NotFound(
        f"{os.getcwd()} is in no workspace of this store; name one by its branch (`atoll workspaces` lists"
        " them)."
    )


def _containing(store: Store, path: str) -> Workspace | None:
    try:
        real = Path(os.path.realpath(path))
    except OSError:
        return None
    above = {real, *real.parents}
    inside = [
        workspace
        for workspace in every(store)
        if workspace._record["mountpoint"] is not None and Path(workspace._record["mountpoint"]) in above
    ]
    # A mount point below another one's: the deepest is the one that the path is in.
    return max(inside, key=lambda workspace: len(workspace.path.parts), default=None)


# -- mount ---------------------------------------------------------------------------------------------------


def mount(
    store: Store,
    branch: str,
    directory: PathLike | None,
    *,
    driver: str,
    fsync: Literal["full", "commit"],
    scratch: str,
    note: Note | None,
    progress: Progress | None,
) -> Workspace:
    """See `Store.mount`."""
    options = MountOptions(fsync=fsync, scratch=scratch, chosen=driver != "auto")
    ref = store.ref(branch)
    say = note or silent
    existing = _on_branch(store, branch)
    if existing is not None:
        return _mount_again(existing, ref, directory, driver, options, say, progress)
    return _mount_new(store, ref, directory, driver, options, say, progress)


def _mount_new(
    store: Store,
    ref: Ref,
    directory: PathLike | None,
    driver: str,
    options: MountOptions,
    note: Note,
    progress: Progress | None,
) -> Workspace:
    chosen, reasons = drivers.choose(driver, store.path, options)
    for reason in reasons:
        note(reason)
    target = _target(store, ref.name, directory)
    _check_target(store, ref, target)
    settings: dict[str, object] = {"fsync": options.fsync, "scratch": options.scratch}
    settings["boot"] = machine.boot_id()
    settings["made_mountpoint"] = _make_target(target)
    # `present` says that it should be mounted (`mount --all`); half a copy has to be told from a whole one.
    settings |= {"mounting": os.getpid()} if chosen.name == "copy" else {"present": True}
    record: _native.WorkspaceDict = {
        "id": secrets.token_hex(8),
        "branch": ref.name,
        "driver": chosen.name,
        "base": ref.commit,
        "head": ref.commit,
        "mountpoint": str(target),
        "settings": json.dumps(settings),
        "created_ns": time.time_ns(),
    }
    workspace = Workspace(store, record)
    # Held from before there is a record, so that `gc` does not take it for what a dead process left.
    with workspace._held():
        try:
            # The store lets one workspace have a branch: of two that come at once, one is refused here.
            store.native.put_workspace(record)
        except BaseException as error:
            shutil.rmtree(workspace.folder, ignore_errors=True)
            if settings["made_mountpoint"]:
                with contextlib.suppress(OSError):
                    target.rmdir()
            holder = _on_branch(store, ref.name) if isinstance(error, AtollError) else None
            if holder is not None:
                raise _held(holder) from error
            raise
        place = workspace._place()
        place.settings.pop("mounting", None)
        try:
            chosen.mount(place, options, note=note, progress=progress)
            if place.settings != settings:
                workspace._save(place)
            registry.record("workspace", target, store.path)
        except BaseException:
            _abandon(workspace, place)
            raise
    return workspace


def _abandon(workspace: Workspace, place: Place) -> None:
    """Takes back a first mount that failed; there is nothing of the user's in it yet."""
    driver = drivers.get(workspace.driver)
    with contextlib.suppress(AtollError, OSError):
        if driver.is_mounted(place):
            driver.unmount(place, note=silent)
        driver.discard(place)
    if workspace.driver == "copy":
        # What was written before the failure is the store's own content.
        for child in place.mountpoint.iterdir() if place.mountpoint.is_dir() else ():
            (
                shutil.rmtree(child, ignore_errors=True)
                if child.is_dir() and not child.is_symlink()
                else child.unlink()
            )
    workspace._forget(place)


def _mount_again(
    workspace: Workspace,
    ref: Ref,
    directory: PathLike | None,
    driver: str,
    options: MountOptions,
    note: Note,
    progress: Progress | None,
) -> Workspace:
    with workspace._locked():
        with contextlib.suppress(FileNotFoundError):
            (workspace.folder / LET_GO).unlink()
        place = workspace._place()
        its_driver = drivers.get(workspace.driver)
        if its_driver.is_mounted(place) and its_driver.is_cut_off(place):
            note(
                f"The processes that served '{workspace.branch}' were killed; it is mounted again. Nothing"
                " that was written to it is lost."
            )
            its_driver.unmount(place, note=note)
            place = workspace._place()
        if its_driver.is_mounted(place):
            if machine.same_boot(place.settings):
                raise _held(workspace)
            # The last mount came this far and could not look for what the disk lost.
            recover(workspace, note=note, progress=progress)
            return workspace
        if driver not in ("auto", workspace.driver):
            raise Usage(
                f"Workspace '{workspace.branch}' has uncommitted changes of the {workspace.driver} driver;"
                f" mount it with --driver {workspace.driver}, commit and unmount it, then choose another."
            )
        workspace._heal()
        its_driver.recover(workspace._place(), note=note)
        _set_partial_aside(workspace, note)
        place = workspace._place()
        fresh = not its_driver.has_content(place)
        if fresh:
            # Nothing is kept: it starts where the branch is now. Durable before anything is mounted over it.
            workspace._save(base=ref.commit, head=ref.commit)
        elif workspace.head != ref.commit:
            note(
                f"Branch '{workspace.branch}' moved since this workspace was unmounted; it comes back as it"
                " was, and a commit will need `--to NEW`."
            )
        target = (
            workspace.path if directory is None else _target(workspace.store, workspace.branch, directory)
        )
        if target != workspace.path:
            _check_target(workspace.store, ref, target)
            if workspace.driver == "copy" and its_driver.has_content(place):
                raise Usage(
                    f"The uncommitted changes of '{workspace.branch}' are in {workspace.path}; mount it there"
                    " (without DIR), commit and unmount it first."
                )
            registry.forget("workspace", workspace.path)
            workspace._save(mountpoint=str(target))
        place = workspace._place()
        made = _make_target(target)
        place.settings["made_mountpoint"] = made or bool(place.settings.get("made_mountpoint"))
        place.settings.pop("mounting", None)
        if fresh:
            place.settings["boot"] = machine.boot_id()
        settings = MountOptions(
            place.settings.get("fsync", options.fsync), place.settings.get("scratch", options.scratch), True
        )
        its_driver.mount(place, settings, note=note, progress=progress)
        workspace._save(place)
        registry.record("workspace", target, workspace.store.path)
        if not machine.same_boot(place.settings):
            recover(workspace, note=note, progress=progress)
        return workspace


def _set_partial_aside(workspace: Workspace, note: Note) -> None:
    """A first mount that was cut off left half a copy; somebody may have worked in it, so it is not
    deleted."""
    if workspace.driver != "copy" or "mounting" not in workspace.settings:
        return
    folder = workspace.path
    if folder.is_dir() and any(folder.iterdir()):
        aside = folder.with_name(f"{folder.name}.partial-{workspace.id[:8]}")
        os.rename(folder, aside)
        note(f"The mount of '{workspace.branch}' was cut off; what it had written is in {aside}.")


def _held(workspace: Workspace) -> Busy:
    return Busy(
        f"Branch '{workspace.branch}' is already mounted at {workspace._record['mountpoint']} (workspace"
        f" {workspace.id}, {workspace.driver} driver); use that folder, unmount it with `atoll umount"
        f" {workspace.branch}`, or fork the branch.",
        details={"mountpoint": workspace._record["mountpoint"], "workspace": workspace.id},
    )


def _target(store: Store, branch: str, directory: PathLike | None) -> Path:
    if directory is not None:
        return Path(os.path.realpath(os.path.expanduser(directory)))
    target = Path(os.path.realpath(places.managed_mountpoint(store.id, branch)))
    others = [record["mountpoint"] for record in store.native.workspaces() if record["mountpoint"]]

    def within(inner: str, outer: str) -> bool:
        return inner == outer or inner.startswith(outer + "/")

    # `a` and `a/b` cannot both be mounted by their names: one would lie in the other.
    crowded = any(within(str(target), other) or within(other, str(target)) for other in others)
    if crowded or (target.is_dir() and any(target.iterdir())) or (target.exists() and not target.is_dir()):
        target = target.with_name(f"{target.name}@{secrets.token_hex(4)}")
        if any(within(str(target), other) for other in others):
            target = places.mounts_root(store.id) / f"{branch.replace('/', '%')}@{secrets.token_hex(4)}"
    return target


def _check_target(store: Store, ref: Ref, target: Path) -> None:
    if target.exists() and not target.is_dir():
        raise Usage(f"{target} is not a folder; mount into an empty folder or a new one.")
    if registry.find("workspace", target) is not None or os.path.ismount(target):
        raise Busy(f"Something is mounted at {target} already; unmount it or choose another folder.")
    if target.is_dir() and any(target.iterdir()):
        raise Exists(f"{target} is not empty; mount into an empty folder or a new one.")
    above = {target, *target.parents}
    if ref.folder is not None and Path(ref.folder) in above:
        raise Usage(
            f"{target} lies inside of {ref.folder}, which was imported; mount outside of it, or leave the"
            " folder out for a managed place."
        )
    if Path(os.path.realpath(store.path)) in above:
        raise Usage(f"{target} lies inside of the store; mount outside of it.")


def _make_target(target: Path) -> bool:
    if target.is_dir():
        return False
    try:
        target.mkdir(parents=True)
    except NotADirectoryError as error:
        raise Usage(
            f"{target} cannot be made: a file stands where a folder is needed; choose another place."
        ) from error
    return True


# -- drop -------------------------------------------------------------------------------------------


def match(store: Store, patterns: Iterable[str], exclude: Iterable[str]) -> list[str]:
    """The branches that names and patterns mean."""
    known = [ref.name for ref in store.branches()]
    left_out = list(exclude)
    found: dict[str, None] = {}
    for pattern in patterns:
        if any(sign in pattern for sign in "*?["):
            hits = fnmatch.filter(known, pattern)
            if not hits:
                raise NotFound(f"No branch matches '{pattern}'; `atoll branch` lists what there is.")
            found.update(dict.fromkeys(hits))
        else:
            found[store.ref(pattern).name] = None
    return [name for name in found if not any(fnmatch.fnmatchcase(name, pattern) for pattern in left_out)]


def drop(store: Store, patterns: Iterable[str], *, exclude: Iterable[str], note: Note | None) -> list[str]:
    """See `Store.drop`."""
    say = note or silent
    names = match(store, patterns, exclude)
    for name in names:
        workspace = _on_branch(store, name)
        if workspace is not None:
            _close(workspace, say)
    changes: list[_native.RefChangeDict] = [
        {"kind": "branch", "name": name, "old": store.ref(name)._state(), "new": None} for name in names
    ]
    if changes:
        refs.move(store.native, "drop", f"drop {', '.join(names)}", changes)
    return names


def _close(workspace: Workspace, note: Note) -> None:
    """Commits and unmounts a workspace whose branch is thrown away."""
    with workspace._locked():
        driver = drivers.get(workspace.driver)
        place = workspace._place()
        if driver.has_content(place):
            workspace._heal()
            tip = workspace.store.ref(workspace.branch).commit
            if tip != workspace.head and driver.changes(place, Capture()):
                raise workspace._moved()
            done = None if tip != workspace.head else workspace._commit(f"before drop of {workspace.branch}")
            if done is not None and done.changed:
                note(
                    f"Uncommitted changes of '{workspace.branch}' were committed first; `atoll undo` brings"
                    " them back."
                )
    kept = workspace.umount()
    if kept.kept:
        raise Busy(
            f"'{workspace.branch}' changed while it was dropped; end what works in it and drop it again.",
            details={"branch": workspace.branch},
        )
