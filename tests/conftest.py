"""What tests of the SDK and the command line share: places of their own, a project, a store, both drivers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import atoll
from scripts.leftovers import clean_up

ATOLL = os.path.join(os.path.dirname(sys.executable), "atoll")

# Who started the tests may ignore these (nohup, a job of a script), and commands inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home, data and run-time folder that no other test sees; nothing may be mounted or running
    afterwards."""
    for name in ("data", "run"):
        (tmp_path / name).mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("ATOLL_SERVER_IDLE", "0.2")
    for name in ("ATOLL_STORE", "ATOLL_WORKSPACE", "ATOLL_BRANCH", "ATOLL_BASE", "ATOLL_AUTHOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path
    os.chdir("/")
    _umount_all(tmp_path)
    left = clean_up(str(tmp_path), 15)
    assert not left, left


def _umount_all(home: Path) -> None:
    for folder in (home / "data" / "atoll" / "stores").glob("*"):
        if (folder / "atoll.toml").exists() and any((folder / "workspaces").glob("*")):
            with atoll.open(store=folder) as store:
                for workspace in store.workspaces():
                    if workspace.mounted:
                        workspace.umount()


@pytest.fixture
def project(home: Path) -> Path:
    """A folder with a bit of everything that any user may make."""
    folder = home / "app"
    (folder / "src" / "deep").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "a.txt").write_text("one\n")
    (folder / "src" / "b.py").write_text("print('b')\n")
    (folder / "src" / "deep" / "c.bin").write_bytes(bytes(range(256)) * 1000)
    (folder / "run.sh").write_text("#!/bin/sh\necho run\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("a.txt")
    os.link(folder / "a.txt", folder / "hard.txt")
    return folder


@pytest.fixture
def store(project: Path) -> Iterator[atoll.Store]:
    """A store with the project on `main`."""
    from atoll import registry
    from atoll.places import default_store

    with atoll.create(default_store(project)) as made:
        registry.record("project", project, made.path)
        made.import_folder(project, branch="main")
        yield made


def overlay_reason(folder: Path) -> str | None:
    """Why no overlay can be mounted with its data in this folder."""
    from atoll.drivers.base import MountOptions
    from atoll.drivers.overlay import OverlayDriver

    return OverlayDriver().unavailable(folder, MountOptions())


@pytest.fixture(params=["copy", "fuse", pytest.param("overlay", marks=pytest.mark.overlay)])
def driver(request: pytest.FixtureRequest, home: Path) -> str:
    """Each driver by name; left out, with the reason, where it cannot be had."""
    from atoll import drivers
    from atoll.drivers.base import MountOptions

    name: str = request.param
    if name != "copy" and (reason := drivers.get(name).unavailable(home, MountOptions())) is not None:
        pytest.skip(f"{name}: {reason}")
    return name


@dataclass(frozen=True)
class Cli:
    """The installed command, run in a folder."""

    cwd: Path

    def raw(
        self, *words: str | os.PathLike[str], stdin: bytes | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Runs it to its end, whatever that is."""
        return subprocess.run(
            [ATOLL, *(os.fspath(word) for word in words)],
            cwd=cwd or self.cwd,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=60,
            check=False,
        )

    def __call__(
        self,
        *words: str | os.PathLike[str],
        code: int = 0,
        cwd: Path | None = None,
        stdin: bytes | None = None,
    ) -> str:
        """Its stdout; it must end with `code`."""
        done = self.raw(*words, cwd=cwd, stdin=stdin)
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout.decode("utf-8", "surrogateescape")

    def json(self, *words: str | os.PathLike[str], code: int = 0, cwd: Path | None = None) -> dict[str, Any]:
        """What it prints with --json; every document names its schema."""
        document: dict[str, Any] = json.loads(self(*words, "--json", code=code, cwd=cwd))
        assert document["schema"] == 1
        return document

    def fails(self, code: int, *words: str | os.PathLike[str], cwd: Path | None = None) -> str:
        """The one sentence on stderr of a command that must fail with `code`."""
        done = self.raw(*words, cwd=cwd)
        text = done.stderr.decode()
        assert done.returncode == code, (words, done.returncode, done.stdout, text)
        assert "Traceback" not in text, text
        sentence = text.strip().splitlines()[-1]
        assert sentence.startswith("atoll: ") and sentence.endswith((".", "?")), text
        return sentence


@pytest.fixture
def cli(project: Path) -> Cli:
    """The command line in the project's folder; nothing is imported yet."""
    return Cli(project)
