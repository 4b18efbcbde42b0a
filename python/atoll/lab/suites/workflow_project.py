"""The project that `workflow` copies: a git repository with modules and tests, `node_modules` and `.venv`."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from atoll.lab import inputs
from atoll.lab.git import GIT
from atoll.lab.model import Options
from atoll.lab.work import Work

__all__ = ["Project", "prepare_inputs"]

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
            shutil.copy(inputs.DATA / _application(self.options) / name, self.folder / name)
        work.run((*GIT, "init", "-q", "-b", "main"), cwd=self.folder)
        work.run((*GIT, "add", "-A"), cwd=self.folder)
        work.run((*GIT, "commit", "-q", "-m", "start"), cwd=self.folder)
        self.install(work, self.folder)

    def install(self, work: Work, folder: Path) -> None:
        """What git ignores: node_modules from a warm cache, and a virtual environment with the project in
        it."""
        work.run(inputs.npm_ci(work.scratch / "workflow-npm", offline=True), cwd=folder)
        # Without a pip of its own: the fastest way to install, to the advantage of who installs often.
        work.run((sys.executable, "-m", "venv", "--without-pip", os.fspath(folder / ".venv")), cwd=folder)
        pip = (sys.executable, "-m", "pip", "--python", os.fspath(folder / ".venv"), "install", "-q")
        wheels = ("--no-index", "--find-links", os.fspath(work.scratch / "workflow-wheels"))
        work.run((*pip, *wheels, "--disable-pip-version-check", "setuptools"), cwd=folder)
        editable = ("--no-build-isolation", "--no-deps", "--disable-pip-version-check", "-e", ".")
        work.run((*pip, *wheels, *editable), cwd=folder)

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
    cache, _ = inputs.warm_npm(_application(options))
    (scratch / "workflow-npm").symlink_to(cache)

    def make(folder: Path) -> None:
        download = ("download", "-q", "--disable-pip-version-check", "-d", folder, "setuptools")
        inputs.run((sys.executable, "-m", "pip", *download), folder, online=True)

    (scratch / "workflow-wheels").symlink_to(inputs.kept("setuptools", sys.version.encode(), make))


def _application(options: Options) -> str:
    return "npm-small" if options.quick else "npm-17800"
