"""The processes behind an overlay are all killed: the next mount mends it, and nothing is lost."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from pathlib import Path

import pytest

import atoll
from atoll import _native, errors
from tests.conftest import ATOLL, overlay_reason

pytestmark = pytest.mark.overlay


@pytest.fixture
def workspace(store: atoll.Store, home: Path) -> atoll.Workspace:
    if (reason := overlay_reason(home)) is not None:
        pytest.skip(f"overlay: {reason}")
    return store.fork("main", "try-1").mount(driver="overlay")


def _kill_all() -> None:
    """The server, its standby and their supervisor: nobody is left to take over."""
    for server in _native.servers():
        supervisor = server["supervisor_pid"]
        listed = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text()
        for pid in (supervisor, *(int(each) for each in listed.split())):
            os.kill(pid, signal.SIGKILL)


def test_mount_mends_it(store: atoll.Store, project: Path, workspace: atoll.Workspace) -> None:
    (workspace.path / "own").write_text("not committed\n")
    (workspace.path / "src" / "b.py").write_text("edited\n")
    assert not workspace.cut_off
    _kill_all()
    assert workspace.cut_off
    with pytest.raises(OSError) as caught:
        os.stat(workspace.path / "src" / "nobody-asked-for-this")
    assert caught.value.errno == errno.ENOTCONN
    said: list[str] = []
    again = store.mount("try-1", note=said.append)
    assert again.id == workspace.id and not again.cut_off
    assert any("were killed; it is mounted again" in line for line in said)
    assert (again.path / "own").read_text() == "not committed\n"
    assert (again.path / "src" / "b.py").read_text() == "edited\n"
    assert (again.path / "src" / "deep" / "c.bin").read_bytes() == (
        project / "src" / "deep" / "c.bin"
    ).read_bytes()
    assert {change.path for change in again.status().changes} == {"own", "src/b.py"}
    again.commit("after it")
    assert store.read("try-1", "own") == b"not committed\n"
    again.umount()


def test_one_without_changes_comes_back_too(store: atoll.Store, workspace: atoll.Workspace) -> None:
    _kill_all()
    again = store.mount("try-1")
    assert (again.path / "a.txt").read_text() == "one\n"
    again.umount()


def test_a_process_in_it_is_named(store: atoll.Store, workspace: atoll.Workspace) -> None:
    with subprocess.Popen(["sleep", "60"], cwd=workspace.path) as sleeper:
        _kill_all()
        with pytest.raises(errors.Busy, match=rf"sleep.*{sleeper.pid}|{sleeper.pid}.*sleep"):
            store.mount("try-1")
        sleeper.kill()
    again = store.mount("try-1")
    assert (again.path / "a.txt").read_text() == "one\n"
    again.umount()


def test_mount_all_mends_each(store: atoll.Store, workspace: atoll.Workspace) -> None:
    other = store.fork("main", "try-2").mount(driver="overlay")
    _kill_all()
    done = subprocess.run(
        [ATOLL, "mount", "--all", "--store", str(store.path)], capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) == {str(workspace.path), str(other.path)}
    for each in (workspace, other):
        assert not each.cut_off
        assert (each.path / "a.txt").read_text() == "one\n"
        each.umount()
