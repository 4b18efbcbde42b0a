"""The project that `workflow` copies: a git repository with modules and tests, `node_modules` and `.venv`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from atoll.lab.model import Options, Unavailable
from atoll.lab.work import Work

__all__ = ["GIT", "Project", "prepare_inputs"]

GIT = (
    "git",
    "-c",
    "user.name=lab",
    "-c",
    "user.email=lab@localhost",
    "-c",
    "commit.gpgsign=false",
    "-c",
    "gc.auto=0",
)

_PYPROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "labapp"
version = "0.1"
"""

# Each copy edits modules of its own, so that results can be brought together; a test that gets another
# value has imported somebody else's source.
_TEST = """\
import importlib
import os
import unittest


class OwnSource(unittest.TestCase):
    def test_modules(self):
        copy, first, count = (int(os.environ[name]) for name in ("COPY", "FIRST", "COUNT"))
        for number in range(first, first + count):
            module = importlib.import_module(f"labapp.m{number:04d}")
            self.assertEqual(module.VALUE, copy)
"""


class Project:
    """One project, in a folder of its own on the target."""

    def __init__(self, folder: Path, options: Options) -> None:
        self.folder = folder
        self.options = options
        self.copies = options.count(20, 2)
        self.edits = 20

    def first(self, copy: int) -> int:
        """The first module that a copy (from 1) edits."""
        return (copy - 1) * self.edits

    def make(self, work: Work) -> None:
        """The sources and everything that is installed beside them."""
        source = self.folder / "src" / "labapp"
        source.mkdir(parents=True)
        (source / "__init__.py").write_text("")
        for number in range(self.copies * self.edits):
            (source / f"m{number:04d}.py").write_text("VALUE = 0\n")
        (self.folder / "tests").mkdir()
        (self.folder / "tests" / "test_own.py").write_text(_TEST)
        (self.folder / "pyproject.toml").write_text(_PYPROJECT)
        (self.folder / ".gitignore").write_text(
            "/node_modules/\n/.venv/\n/target/\n__pycache__/\n*.egg-info/\n"
        )
        for name in ("package.json", "package-lock.json"):
            shutil.copy(work.scratch / "workflow-node" / name, self.folder / name)
        work.run((*GIT, "init", "-q", "-b", "main"), cwd=self.folder)
        work.run((*GIT, "add", "-A"), cwd=self.folder)
        work.run((*GIT, "commit", "-q", "-m", "start"), cwd=self.folder)
        self.install(work, self.folder)

    def install(self, work: Work, folder: Path) -> None:
        """What git ignores: node_modules from a warm cache, and a virtual environment with the project in
        it."""
        work.run(("npm", "ci", "--offline", *_NPM, *_cache(work.scratch)), cwd=folder)
        python = os.fspath(folder / ".venv" / "bin" / "python")
        work.run((sys.executable, "-m", "venv", os.fspath(folder / ".venv")), cwd=folder)
        wheels = work.scratch / "workflow-wheels"
        pip = (python, "-m", "pip", "install", "-q", "--no-index", "--find-links", os.fspath(wheels))
        work.run((*pip, "--disable-pip-version-check", "setuptools", "wheel"), cwd=folder)
        work.run(
            (*pip, "--disable-pip-version-check", "--no-build-isolation", "--no-deps", "-e", "."), cwd=folder
        )

    def script(self, copy: int) -> str:
        """What an agent does in a copy: edits its modules, runs the tests."""
        first = self.first(copy)
        names = f"$(seq -f 'src/labapp/m%04g.py' {first} {first + self.edits - 1})"
        return (
            f"for f in {names}; do echo 'VALUE = {copy}' >$f; done; "
            f"COPY={copy} FIRST={first} COUNT={self.edits} "
            ".venv/bin/python -B -m unittest discover -q -s tests"
        )

    def holds(self, copy: int) -> bool:
        """Whether the project's own sources have a copy's edits."""
        source = self.folder / "src" / "labapp"
        numbers = range(self.first(copy), self.first(copy) + self.edits)
        return all((source / f"m{number:04d}.py").read_text() == f"VALUE = {copy}\n" for number in numbers)


def prepare_inputs(options: Options, scratch: Path) -> None:
    """The wheels and npm packages that an install takes, from the registries, before any clock. Raises
    `Unavailable`."""
    node = scratch / "workflow-node"
    node.mkdir()
    if options.quick:
        (node / "package.json").write_text('{"name": "app", "dependencies": {"is-number": "7.0.0"}}')
        _bring(("npm", "install", "--package-lock-only", *_NPM, *_cache(scratch)), node)
    else:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(Path(__file__).parents[1] / "data" / "app" / name, node / name)
    warm = scratch / "workflow-warm"
    shutil.copytree(node, warm)
    _bring(("npm", "ci", *_NPM, *_cache(scratch)), warm)
    shutil.rmtree(warm)
    wheels = ("download", "-q", "-d", os.fspath(scratch / "workflow-wheels"), "setuptools", "wheel")
    _bring((sys.executable, "-m", "pip", *wheels, "--disable-pip-version-check"), scratch)


_NPM = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")


def _cache(scratch: Path) -> tuple[str, str]:
    return "--cache", os.fspath(scratch / "workflow-npm")


def _bring(command: tuple[str, ...], cwd: Path) -> None:
    done = subprocess.run(list(command), cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Unavailable(f"`{' '.join(command[:3])}` failed ({last}); a package registry is needed")
