"""Real tools in a workspace: a project of one's own, and a way to run a tool that must succeed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import atoll
from atoll import registry
from atoll.places import default_store
from atoll.workspace import Workspace
from tests.run.conftest import person as person  # a fixture

VENV_BIN = Path(sys.executable).parent


def tool(name: str) -> str:
    """The tool's path; a test that needs one that is missing is left out by name."""
    found = shutil.which(name) or shutil.which(name, path=os.fspath(VENV_BIN))
    if found is None:
        pytest.skip(f"{name} is not installed; scripts/setup.sh test installs it")
    return found


@dataclass
class Tools:
    """Runs tools with an environment in which they find no settings and caches but the test's own."""

    home: Path
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        keep = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("GIT_", "PYTHON", "CARGO_"))
        }
        self.env = {
            **keep,
            "GIT_CONFIG_GLOBAL": os.fspath(self.home / ".gitconfig"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "LC_ALL": "C.UTF-8",
            "NO_COLOR": "1",
        }

    def __call__(
        self,
        *words: str | os.PathLike[str],
        cwd: str | os.PathLike[str],
        code: int = 0,
        timeout: float = 110,
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
    ) -> str:
        """Stdout of a tool that must end with `code`."""
        done = self.raw(*words, cwd=cwd, timeout=timeout, env=env, stdin=stdin)
        assert done.returncode == code, (words, done.returncode, done.stdout[-4000:], done.stderr[-4000:])
        return done.stdout

    def raw(
        self,
        *words: str | os.PathLike[str],
        cwd: str | os.PathLike[str],
        timeout: float = 110,
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a tool to its end, whatever that is."""
        first = os.fspath(words[0])
        line = [first if "/" in first else tool(first), *(os.fspath(word) for word in words[1:])]
        return subprocess.run(
            line,
            cwd=cwd,
            env={**self.env, **(env or {})},
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=timeout,
            check=False,
        )


@pytest.fixture
def tools(home: Path) -> Tools:
    """Tools with the test's own home."""
    return Tools(home)


@contextmanager
def standing_still(*processes: subprocess.Popen[str]) -> Iterator[None]:
    """Stops processes of ours for a while; they stand when it begins."""
    for process in processes:
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)


@dataclass
class Bench:
    """A folder that becomes a store's `main`, and workspaces of it with one driver."""

    driver: str
    project: Path
    opened: list[atoll.Store] = field(default_factory=list)

    @property
    def store(self) -> atoll.Store:
        """The project's store, once it was imported."""
        return self.opened[0]

    def imported(self) -> None:
        """Makes the folder's present state the newest commit of `main`."""
        if not self.opened:
            made = atoll.create(default_store(self.project))
            registry.record("project", self.project, made.path)
            self.opened.append(made)
        self.store.import_folder(self.project, branch="main")

    def fork(self, name: str, base: str = "main") -> Workspace:
        """A new workspace, mounted."""
        return self.store.fork(base, name).mount(driver=self.driver)

    def remounted(self, ws: Workspace) -> Workspace:
        """The workspace committed, unmounted with nothing left, and mounted again: all of it is history
        now."""
        ws.commit("work")
        left = ws.umount()
        assert not left.kept, left
        return self.store.mount(ws.branch, driver=self.driver)

    @property
    def overlay(self) -> bool:
        """Whether inherited files keep their inode numbers and ctimes."""
        return self.driver == "overlay"


@pytest.fixture
def bench(driver: str, home: Path) -> Iterator[Bench]:
    """An empty project; `imported` makes its store."""
    folder = home / "app"
    folder.mkdir()
    made = Bench(driver, folder)
    yield made
    for store in made.opened:
        store.close()
