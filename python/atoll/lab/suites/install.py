"""`install`: real applications and a real Python environment, from warm caches."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

import msgspec

from atoll.lab import inputs
from atoll.lab.inputs import DATA
from atoll.lab.model import CheckFailed, Options, Row, Scenario, Suite, Tool, Unavailable
from atoll.lab.trees import Tree, tree_of
from atoll.lab.work import Work

__all__ = ["Install"]

NPM = (Tool("npm", "Debian's package npm"), Tool("node", "Debian's package nodejs"))
UV = Tool("uv", "`pip install uv`")


class Ready(msgspec.Struct, kw_only=True):
    """What `prepare` has found out about a piece of work; a file in scratch tells it to the samples."""

    cache: str = ""
    """Where the packages are."""
    tree: Tree | None = None
    """What `npm ci` makes."""
    site: Site | None = None
    """What pip or uv makes."""
    unavailable: str | None = None


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """What a `site-packages` holds."""

    files: int
    hashed: int
    """Files whose content the packages' own records tell."""


@dataclass(frozen=True)
class Kind:
    """One way to install something."""

    row: str
    data: str
    """Folder of `DATA`."""
    tools: tuple[Tool, ...]
    warm: Callable[[Kind, Path], Ready]
    install: Callable[[Work, Kind, Ready], None]
    bytes: int
    files: int
    """Space that it needs, rounded up."""


class Install(Suite):
    """Package managers at work: many small files at once, each written once."""

    name = "install"
    title = "npm ci of two real applications, pip and uv install of a real environment"
    about = (
        "`npm ci` of two applications (305 packages with 17,851 files; 1,316 packages with 37,587 files), "
        "and `pip install` and `uv pip install` of 18 packages (Django, NumPy, pandas, Matplotlib, SymPy) "
        "into an empty virtual environment on the target. The lab ships names and versions; the packages are "
        "brought into caches on the disk outside of the clock, and kept there for the next run. In the clock "
        "nothing asks a network, and no package runs a script. The start of npm, Node.js, pip and uv is in "
        "the clock, as it is for a user; pip also compiles each module to bytecode, which is work of the "
        "processor. uv copies files out of its cache, whatever the target is. Afterwards every file is "
        "compared with what was installed on the disk (npm) or with the records of the packages (pip, uv), "
        "and a program is run that loads them."
    )

    def prepare(self, options: Options, scratch: Path) -> None:
        own = scratch / "install"
        own.mkdir(exist_ok=True)
        reasons = []
        for kind in kinds(options):
            try:
                ready = kind.warm(kind, own)
                inputs.into_memory(Path(ready.cache))
            except Unavailable as error:
                ready = Ready(unavailable=str(error))
                reasons.append(str(error))
            _ready_file(scratch, kind).write_bytes(msgspec.json.encode(ready))
        if len(reasons) == len(kinds(options)):
            raise Unavailable(reasons[0])

    def scenarios(self, options: Options) -> Sequence[Scenario]:
        return [_scenario(kind) for kind in kinds(options)]


def kinds(options: Options) -> list[Kind]:
    """What is installed, and how."""
    if options.quick:
        npm = [Kind("npm ci, 3 packages", "npm-small", NPM, _warm_npm, _npm, 2 << 20, 200)]
        python, size, files = "python-small", 20 << 20, 1000
    else:
        npm = [
            Kind("npm ci, 17,800 files", "npm-17800", NPM, _warm_npm, _npm, 200 << 20, 25_000),
            Kind("npm ci, 37,600 files", "npm-37600", NPM, _warm_npm, _npm, 450 << 20, 50_000),
        ]
        python, size, files = "python", 600 << 20, 25_000
    return [
        *npm,
        Kind("pip install", python, (), _warm_pip, _pip, size, files),
        Kind("uv pip install", python, (UV,), _warm_uv, _uv, size, files),
    ]


def _scenario(kind: Kind) -> Scenario:
    return Scenario(
        kind.row,
        # The number of files comes from what was installed on the disk.
        (Row(kind.row, cache="new"),),
        lambda work: _run(work, kind),
        tools=kind.tools,
        bytes=kind.bytes,
        files=kind.files,
        # What the work reads was brought into memory before.
        warm_ups=0,
        limit=1800,
    )


def _run(work: Work, kind: Kind) -> None:
    ready = msgspec.json.decode(_ready_file(work.scratch, kind).read_bytes(), type=Ready)
    if ready.unavailable:
        raise Unavailable(ready.unavailable)
    kind.install(work, kind, ready)


def _ready_file(scratch: Path, kind: Kind) -> Path:
    return scratch / "install" / f"{kind.row}.json"


def _warm_npm(kind: Kind, own: Path) -> Ready:
    cache, tree = inputs.warm_npm(kind.data)
    return Ready(cache=os.fspath(cache), tree=tree)


def _npm(work: Work, kind: Kind, ready: Ready) -> None:
    assert ready.tree is not None
    shutil.copytree(DATA / kind.data, work.folder, dirs_exist_ok=True)
    with work.timed(kind.row, files=ready.tree.files):
        work.run(inputs.npm_ci(Path(ready.cache), offline=True))
    check_tree(work.folder / "node_modules", ready.tree)
    work.run(("node", "start.js"))


def check_tree(folder: Path, wanted: Tree, without: str = "") -> None:
    """A folder holds exactly these files, but for what is called `without`. Raises `CheckFailed`."""
    found = tree_of(folder, without)
    if found != wanted:
        raise CheckFailed(
            f"{folder.name} has {found.files} files with {found.bytes} bytes and the digest {found.digest} "
            f"instead of {wanted.files}, {wanted.bytes} and {wanted.digest}"
        )


def _warm_pip(kind: Kind, own: Path) -> Ready:
    """The wheels, and what pip makes of them, are kept; so they are for this Python and this pip."""
    requirements = DATA / kind.data / "requirements.txt"
    version = inputs.run([sys.executable, "-m", "pip", "--version"], own)

    def make(folder: Path) -> None:
        options = ["-q", "--disable-pip-version-check", "--only-binary=:all:", "--retries=1"]
        wheels = folder / "wheels"
        what = ["-r", str(requirements), "-d", str(wheels)]
        inputs.run([sys.executable, "-m", "pip", "download", *options, *what], folder, online=True)
        site = _environment(folder / "venv")
        inputs.run(_pip_install(folder / "venv", wheels, requirements), folder)
        (folder / "site.json").write_bytes(msgspec.json.encode(look_at(site)))
        shutil.rmtree(folder / "venv")

    folder = inputs.kept(kind.data, requirements.read_bytes() + version.encode(), make)
    site = msgspec.json.decode((folder / "site.json").read_bytes(), type=Site)
    return Ready(cache=os.fspath(folder / "wheels"), site=site)


def _pip(work: Work, kind: Kind, ready: Ready) -> None:
    venv = work.folder / "venv"
    command = _pip_install(venv, Path(ready.cache), DATA / kind.data / "requirements.txt")
    _python(work, kind, ready, venv, command)


def _pip_install(venv: Path, wheels: Path, requirements: Path) -> list[str]:
    options = ["-q", "--disable-pip-version-check", "--no-cache-dir", "--no-index", f"--find-links={wheels}"]
    python = os.fspath(venv / "bin" / "python")
    return [sys.executable, "-m", "pip", "--python", python, "install", *options, "-r", str(requirements)]


def _warm_uv(kind: Kind, own: Path) -> Ready:
    """uv's cache knows packages by the place of their wheels, so it is made anew for each run."""
    wheels = Path(_warm_pip(kind, own).cache)
    cache = own / "uv"
    with tempfile.TemporaryDirectory(dir=own) as folder:
        venv = Path(folder) / "venv"
        site = _environment(venv)
        inputs.run(_uv_install(venv, cache, wheels, DATA / kind.data / "requirements.txt"), own)
        inputs.into_memory(cache)
        return Ready(cache=os.fspath(wheels), site=look_at(site))


def _uv(work: Work, kind: Kind, ready: Ready) -> None:
    venv, cache = work.folder / "venv", work.scratch / "install" / "uv"
    command = _uv_install(venv, cache, Path(ready.cache), DATA / kind.data / "requirements.txt")
    _python(work, kind, ready, venv, command)


def _uv_install(venv: Path, cache: Path, wheels: Path, requirements: Path) -> list[str]:
    # Hard links, its usual way, would be possible on some targets only.
    options = ["-q", "--offline", "--no-index", f"--find-links={wheels}", "--link-mode=copy", "--no-config"]
    python = os.fspath(venv / "bin" / "python")
    where = [f"--python={python}", f"--cache-dir={cache}"]
    return ["uv", "pip", "install", *options, *where, "-r", str(requirements)]


def _python(work: Work, kind: Kind, ready: Ready, venv: Path, command: Sequence[str]) -> None:
    assert ready.site is not None
    site = _environment(venv)
    with work.timed(kind.row, files=ready.site.files):
        work.run(command)
    check_site(site, ready.site)
    names = {"python": "django, matplotlib, numpy, pandas, sympy", "python-small": "six"}[kind.data]
    work.run((os.fspath(venv / "bin" / "python"), "-B", "-c", f"import {names}"))


def _environment(venv: Path) -> Path:
    """An empty virtual environment; returns its `site-packages`."""
    inputs.run([sys.executable, "-m", "venv", "--without-pip", venv], venv.parent)
    return next(venv.glob("lib/python*/site-packages"))


def look_at(site: Path) -> Site:
    """Counts what is installed. Raises `CheckFailed` for a file that is not what its package says."""
    files = sum(len(names) for _, _, names in os.walk(site))
    hashed = 0
    for package in distributions(path=[os.fspath(site)]):
        for file in package.files or ():
            # NumPy's wheel records a module's bytecode, which pip makes anew.
            if file.hash is None or file.suffix == ".pyc":
                continue
            place = Path(os.fspath(file.locate()))
            data = place.read_bytes() if place.is_file() else b""
            digest = base64.urlsafe_b64encode(hashlib.new(file.hash.mode, data).digest()).rstrip(b"=")
            if digest.decode() != file.hash.value:
                raise CheckFailed(f"{file} of {package.name} is not what its package holds")
            hashed += 1
    return Site(files=files, hashed=hashed)


def check_site(site: Path, wanted: Site) -> None:
    """As many files are there as on the disk, each with its content. Raises `CheckFailed`."""
    found = look_at(site)
    if found != wanted:
        raise CheckFailed(
            f"site-packages has {found.files} files, {found.hashed} of them recorded, instead of "
            f"{wanted.files} and {wanted.hashed}"
        )
