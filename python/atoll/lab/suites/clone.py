"""`clone`: git clone of a repository with a real tree."""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import msgspec

from atoll.lab import inputs
from atoll.lab.git import GIT, GIT_TOOL
from atoll.lab.inputs import DATA
from atoll.lab.model import Options, Row, Scenario, Suite, Tool
from atoll.lab.suites.install import check_tree
from atoll.lab.trees import Tree, tree_of
from atoll.lab.work import Work

__all__ = ["Clone"]

NPM = Tool("npm", "Debian's package npm")

OVER_PROTOCOL = "git clone, over git's protocol"
LOCAL = "git clone, of a repository on the target"


class Ready(msgspec.Struct, kw_only=True):
    """What `prepare` tells the samples."""

    repository: str
    tree: Tree


class Clone(Suite):
    """A clone writes one large pack and then every file of the tree."""

    name = "clone"
    title = "git clone of a real tree of 17,854 files"
    about = (
        "The repository holds one commit: the installed tree of the smaller application of `install`, "
        "`node_modules` and all. Over git's protocol: from the disk by a file:// address; git packs, sends, "
        "indexes and checks out as it does from a server, but at the speed of this machine. Of a repository "
        "on the target: the bare repository was copied there before, and git links or copies its one pack; "
        "what is left is the check-out. The start of git is in the clock. Afterwards git fsck has to be "
        "content, git status clean, and every file the same as in the source. A repository with a long "
        "history has a larger pack and the same check-out."
    )

    def prepare(self, options: Options, scratch: Path) -> None:
        own = scratch / "clone"
        own.mkdir(exist_ok=True)
        repository = _small(own) if options.quick else _real()
        inputs.into_memory(repository)
        ready = Ready(repository=os.fspath(repository / "bare.git"), tree=inputs.saved_tree(repository))
        (own / "ready.json").write_bytes(msgspec.json.encode(ready))

    def scenarios(self, options: Options) -> Sequence[Scenario]:
        size, files = (20 << 20, 1000) if options.quick else (400 << 20, 25_000)
        tools = (GIT_TOOL,) if options.quick else (GIT_TOOL, NPM)
        return [
            Scenario(
                name,
                # The number of files is that of the tree that was made.
                (Row(name, cache="new"),),
                run,
                tools=tools,
                bytes=size,
                files=files,
                warm_ups=0,
            )
            for name, run in ((OVER_PROTOCOL, _over_protocol), (LOCAL, _local))
        ]


def _real() -> Path:
    """The repository of an installed application; kept, as the packages are. Raises `Unavailable`."""
    app = DATA / "npm-17800"
    packages, _ = inputs.warm_npm(app.name)

    def make(folder: Path) -> None:
        source = folder / "source"
        shutil.copytree(app, source)
        inputs.run(inputs.npm_ci(packages, offline=True), source)
        _repository(folder, source)

    return inputs.kept("clone", packages.parent.name.encode(), make)


def _small(own: Path) -> Path:
    """A repository of a package of Python's library."""
    folder = own / "small"
    folder.mkdir()
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(sysconfig.get_path("stdlib")) / "email", folder / "source" / "email", ignore=ignored)
    _repository(folder, folder / "source")
    return folder


def _repository(folder: Path, source: Path) -> None:
    """`bare.git` in a folder, with a tree as its only commit, and the tree's figures; the tree goes away."""
    inputs.save_tree(folder, tree_of(source))
    git = [*GIT, "-c", "core.autocrlf=false"]
    inputs.run([*git, "init", "-q", "-b", "main"], source)
    inputs.run([*git, "add", "-A", "-f"], source)
    inputs.run([*git, "commit", "-q", "-m", "everything"], source)
    # --no-local: one pack instead of a loose object for each file.
    inputs.run(["git", "clone", "-q", "--bare", "--no-local", source, folder / "bare.git"], folder)
    shutil.rmtree(source)


def _over_protocol(work: Work) -> None:
    ready = _ready(work)
    with work.timed(OVER_PROTOCOL, files=ready.tree.files):
        work.run(("git", "clone", "-q", f"file://{ready.repository}", "copy"))
    check(work, work.folder / "copy", ready.tree)


def _local(work: Work) -> None:
    ready = _ready(work)
    shutil.copytree(ready.repository, work.folder / "bare.git")
    with work.timed(LOCAL, files=ready.tree.files):
        work.run(("git", "clone", "-q", "bare.git", "copy"))
    check(work, work.folder / "copy", ready.tree)


def _ready(work: Work) -> Ready:
    return msgspec.json.decode((work.scratch / "clone" / "ready.json").read_bytes(), type=Ready)


def check(work: Work, copy: Path, tree: Tree) -> None:
    """A clone is whole: for git, and file by file. Raises `CheckFailed`."""
    work.run(("git", "fsck", "--full", "--no-progress"), copy)
    status = work.run(("git", "status", "--porcelain", "--ignored"), copy)
    work.check(not status, f"git status is not clean: {status[:100]}")
    check_tree(copy, tree, without=".git")
