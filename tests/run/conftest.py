"""Commands run for real, as root and as an ordinary user, each with stores and folders of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

NOBODY = 65534
ATOLL = [os.path.join(os.path.dirname(sys.executable), "atoll")]
SOURCE = Path(__file__).resolve().parents[2] / "python"


@dataclass
class Person:
    """Somebody who uses atoll: a user, a home, an environment."""

    name: str
    uid: int
    home: Path
    env: dict[str, str]

    def arguments(self, *words: str | os.PathLike[str]) -> list[str]:
        """The command line that acts as this user."""
        line = [os.fspath(word) for word in words]
        if self.uid != os.geteuid():
            prefix = ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups", "--"]
            return [*prefix, *line]
        return line

    def do(
        self, *words: str | os.PathLike[str], cwd: Path, timeout: float = 60, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program to its end."""
        return subprocess.run(
            self.arguments(*words),
            cwd=cwd,
            env=self.env,
            timeout=timeout,
            text=True,
            capture_output=True,
            check=False,
            **options,
        )

    def atoll(
        self, *words: str | os.PathLike[str], cwd: Path, code: int | None = 0, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Runs `atoll` and checks its exit code."""
        done = self.do(*ATOLL, *words, cwd=cwd, **options)
        assert code is None or done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done

    def start(self, *words: str | os.PathLike[str], cwd: Path, **options: Any) -> subprocess.Popen[str]:
        """Starts `atoll` in a process group of its own."""
        return subprocess.Popen(
            self.arguments(*ATOLL, *words), cwd=cwd, env=self.env, text=True, process_group=0, **options
        )

    def json(self, *words: str | os.PathLike[str], cwd: Path) -> dict[str, Any]:
        """What `atoll … --json` prints."""
        document: dict[str, Any] = json.loads(self.atoll(*words, "--json", cwd=cwd).stdout)
        return document

    def own(self, path: Path) -> None:
        """Makes a folder and all in it this user's."""
        for folder, _, names in os.walk(path):
            for each in (folder, *(os.path.join(folder, name) for name in names)):
                os.chown(each, self.uid, self.uid, follow_symlinks=False)


def _reachable(uid: int) -> bool:
    words = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--", *ATOLL, "version"]
    return subprocess.run(words, cwd="/", capture_output=True, check=False).returncode == 0


@pytest.fixture(params=["root", "ordinary"])
def person(request: pytest.FixtureRequest) -> Iterator[Person]:
    """Root where the tests run as root, and an ordinary user."""
    wanted = request.param
    as_root = os.geteuid() == 0
    if wanted == "root" and not as_root:
        pytest.skip("needs root")
    if wanted == "ordinary" and as_root:
        if shutil.which("setpriv") is None:
            pytest.skip("needs setpriv to act as an ordinary user")
        if not _reachable(NOBODY):
            pytest.skip("an ordinary user cannot reach this copy of atoll")
    uid = NOBODY if wanted == "ordinary" and as_root else os.geteuid()
    # Not pytest's own temporary folder: only its owner may enter that.
    home = Path(tempfile.mkdtemp(prefix="atoll-run-"))
    home.chmod(0o755)
    env = {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": str(home),
        "XDG_DATA_HOME": str(home / "data"),
        "XDG_RUNTIME_DIR": str(home / "run"),
        "TMPDIR": str(home / "tmp"),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(SOURCE),
        "PYTHONDONTWRITEBYTECODE": "1",
        "ATOLL_SERVER_IDLE": "1",
    }
    for name in ("data", "run", "tmp"):
        (home / name).mkdir(mode=0o700)
    who = Person(wanted, uid, home, env)
    if uid != os.geteuid():
        who.own(home)
    yield who
    _clean(home)


def _clean(home: Path) -> None:
    """A test leaves no mount and no process: what is still there is a failure, and is taken down."""
    mounts = [line.split(" ")[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    left = [point for point in mounts if point.startswith(f"{home}/data/")]
    for point in reversed(left):
        subprocess.run(["umount", point], check=False)
    processes = _processes_in(home)
    for pid in processes:
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(home, ignore_errors=True)
    assert not left, f"mounts are left: {left}"
    assert not processes, f"processes are left: {processes}"


def _processes_in(home: Path) -> dict[int, str]:
    """The processes that stand in the folder, those of the history server left out: it ends by itself."""
    found = {}
    for name in os.listdir("/proc"):
        try:
            place = os.readlink(f"/proc/{name}/cwd") if name.isdigit() else ""
            line = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if place.startswith(str(home)) and "supervisor" not in line and "server" not in line:
            found[int(name)] = line
    return found


def alive(pid: int) -> bool:
    """Whether a process is there; one that has ended and waits for its parent is not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0]
    except OSError:
        return False
    return state not in "ZX"


@pytest.fixture
def project(person: Person) -> Path:
    """An imported project of a few files."""
    folder = person.home / "src" / "app"
    (folder / "pkg" / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text("one\n")
    (folder / "pkg" / "b.txt").write_text("two\n")
    (folder / "pkg" / "deep" / "c.txt").write_text("three\n")
    if person.uid != os.geteuid():
        person.own(person.home / "src")
    person.atoll("import", cwd=folder)
    return folder
