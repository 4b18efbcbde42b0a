"""Real inputs that package registries bring: asked once, then kept in `$XDG_CACHE_HOME/atoll/lab`, so that a
later run needs no network. The folder may be deleted at any time."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from atoll.lab.host import find_program
from atoll.lab.model import Unavailable
from atoll.lab.trees import Tree, tree_of
from atoll.places import cache_home, short_digest

__all__ = ["DATA", "into_memory", "kept", "npm_ci", "run", "save_tree", "saved_tree", "warm_npm"]

#: Lists of packages, as names and versions, that the lab brings with it.
DATA = Path(__file__).with_name("data")


def kept(name: str, key: bytes, make: Callable[[Path], None]) -> Path:
    """The folder `name` of the cache; `make` fills it when it is not there for this `key` (what it was made
    from). Two runs may make it at the same time: the first one's is kept."""
    home = cache_home() / "lab"
    folder = home / f"{name}-{short_digest(key, 12)}"
    if folder.exists():
        return folder
    home.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=home))
    try:
        make(draft)
        with contextlib.suppress(OSError):
            draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def into_memory(folder: Path) -> None:
    """Reads every file below a folder, so that no sample is the first to do so."""
    for path, _, names in os.walk(folder):
        for name in names:
            file = Path(path, name)
            if file.is_file():
                file.read_bytes()


def run(command: Sequence[str | os.PathLike[str]], folder: Path, *, online: bool = False) -> str:
    """A program that makes inputs, to its end; returns its output. `online`: it asks a package registry.
    Raises `Unavailable` with the first of its words that name an error."""
    words = [os.fspath(word) for word in command]
    program = find_program(words[0])
    if program is None:
        raise Unavailable(f"{words[0]} is missing")
    done = subprocess.run(
        [program, *words[1:]],
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        wrong = [line for line in lines if "err" in line.lower()] or lines or ["no reason given"]
        hint = "; is a package registry in reach?" if online else ""
        raise Unavailable(f"`{' '.join(words[:3])}` failed ({wrong[0][:200]}){hint}")
    return done.stdout


def npm_ci(cache: Path, *, offline: bool) -> list[str]:
    """The command that installs exactly what a lock file names, from or into a cache."""
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--logs-max=0"]
    # npm waits minutes before it believes that there is no network.
    patience = ["--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=60000"]
    return ["npm", "ci", *quiet, f"--cache={cache}", *(["--offline"] if offline else patience)]


def warm_npm(name: str) -> tuple[Path, Tree]:
    """npm's cache with all packages of an application of `DATA`, and what `npm ci` makes of it in
    `node_modules`. Raises `Unavailable`."""
    app = DATA / name
    version = run(["npm", "--version"], app)

    def make(folder: Path) -> None:
        installed = folder / "app"
        shutil.copytree(app, installed)
        run(npm_ci(folder / "npm", offline=False), installed, online=True)
        save_tree(folder, tree_of(installed / "node_modules"))
        shutil.rmtree(installed)

    folder = kept(name, (app / "package-lock.json").read_bytes() + version.encode(), make)
    return folder / "npm", saved_tree(folder)


def save_tree(folder: Path, tree: Tree) -> None:
    """Keeps a tree's figures beside what it is made from."""
    (folder / "tree.json").write_bytes(msgspec.json.encode(tree))


def saved_tree(folder: Path) -> Tree:
    """Reads them."""
    return msgspec.json.decode((folder / "tree.json").read_bytes(), type=Tree)
