"""`atoll exec`: a command in a workspace that is there."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.run.conftest import ATOLL, Person


@pytest.fixture
def mounted(person: Person, project: Path) -> Any:
    """A mounted workspace on branch `try-1`, as the path of its folder."""
    person.atoll("fork", "main", "try-1", cwd=project)
    yield Path(person.atoll("mount", "try-1", cwd=project).stdout.strip())
    person.atoll("drop", "try-1", cwd=project)


def status(person: Person, project: Path) -> list[str]:
    changes = person.json("status", "try-1", cwd=project)["changes"]
    return [change["path"] for change in changes]


def test_nothing_is_committed_unless_asked(person: Person, project: Path, mounted: Path) -> None:
    done = person.atoll("exec", "try-1", "--", "sh", "-c", "pwd; echo 1 > x; exit 3", cwd=project, code=3)
    assert done.stdout == f"{project}\n"
    assert (mounted / "x").read_text() == "1\n"
    assert status(person, project) == ["x"]
    person.atoll("exec", "try-1", "-m", "made y", "--", "sh", "-c", "echo 2 > y; exit 4", cwd=project, code=4)
    assert status(person, project) == []
    commit = person.json("show", "try-1", cwd=project)
    assert (commit["message"], commit["meta"]["run"]["exit_code"]) == ("made y", 4)
    assert not (project / "x").exists()


def test_named_by_a_path_or_by_where_one_stands(person: Person, project: Path, mounted: Path) -> None:
    deep = mounted / "pkg" / "deep"
    assert person.atoll("exec", deep, "--", "sh", "-c", "pwd", cwd=person.home).stdout == f"{project}\n"
    done = person.atoll("exec", "--", "sh", "-c", "pwd; cat c.txt", cwd=deep)
    assert done.stdout == f"{project}/pkg/deep\nthree\n"
    done = person.atoll("exec", "--at", "none", "--", "pwd", cwd=deep)
    assert done.stdout == f"{deep}\n"


def test_a_branch_that_is_not_mounted_is_mounted_for_it(person: Person, project: Path) -> None:
    person.atoll("fork", "main", "try-1", cwd=project)
    done = person.atoll("exec", "try-1", "--", "sh", "-c", "echo 1 > x", cwd=project)
    assert "not committed" in done.stderr
    (workspace,) = person.json("workspaces", cwd=project)["workspaces"]
    assert workspace["mounted"] is False
    assert person.atoll("exec", "try-1", "--", "cat", "x", cwd=project).stdout == "1\n"
    person.atoll("exec", "try-1", "--commit", "--", "true", cwd=project)
    assert person.json("workspaces", cwd=project)["workspaces"] == []
    assert person.atoll("cat", "try-1:x", cwd=project).stdout == "1\n"


def test_an_unknown_workspace(person: Person, project: Path) -> None:
    assert "none" in person.atoll("exec", "none", "--", "true", cwd=project, code=125).stderr


def test_many_commands_share_one_workspace(person: Person, project: Path, mounted: Path) -> None:
    wait = "while ! [ -e go ]; do sleep 0.01; done; echo $0 > out-$0"
    started = [person.start("exec", "try-1", "--", "sh", "-c", wait, str(i), cwd=project) for i in range(4)]
    (mounted / "go").touch()
    assert [process.wait(60) for process in started] == [0] * 4
    assert status(person, project) == ["go", *(f"out-{i}" for i in range(4))]


def test_a_workspace_is_not_unmounted_under_a_command(person: Person, project: Path, mounted: Path) -> None:
    script = 'echo > "$0/begun"; exec sleep 100'
    process = person.start("exec", "try-1", "--", "sh", "-c", script, person.home, cwd=project)
    while not (person.home / "begun").exists():
        time.sleep(0.01)
    refused = person.atoll("umount", "try-1", cwd=project, code=7)
    assert "sleep (pid" in refused.stderr or "sh (pid" in refused.stderr
    # A commit goes through while the command runs.
    (mounted / "live").write_text("1")
    person.atoll("commit", "try-1", "-m", "live", cwd=project)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    person.atoll("umount", "try-1", cwd=project)
    person.atoll("mount", "try-1", cwd=project)


def test_the_sdk_runs_in_a_workspace(person: Person, project: Path, mounted: Path) -> None:
    program = """
import asyncio, pathlib
import atoll
from atoll.run import CommandFailed

with atoll.open() as store:
    ws = store.workspace("try-1")
    script = ["sh", "-c", "pwd; cat; exit 3"]
    result = ws.run(script, check=False, timeout=30, input="in", capture_output=True, text=True)
    print(result.returncode, result.stdout.split(), result.shown_at)
    try:
        ws.run(["false"])
    except CommandFailed as error:
        print(error.result.returncode, error.code)

    async def several():
        jobs = [ws.run_async(["sh", "-c", f"echo {i}"], capture_output=True, text=True) for i in range(5)]
        print([result.stdout for result in await asyncio.gather(*jobs)])
        script = "echo $$ > pid.new; mv pid.new pid; exec sleep 100"
        slow = asyncio.create_task(ws.run_async(["sh", "-c", script]))
        while not (ws.path / "pid").exists():
            await asyncio.sleep(0.01)
        slow.cancel()
        try:
            await slow
        except asyncio.CancelledError:
            print("cancelled", pathlib.Path("/proc", (ws.path / "pid").read_text().strip()).exists())

    asyncio.run(several())
    done = store.run(["sh", "-c", "echo 1 > x"], base="main", name="from-sdk")
    print(done.branch, store.read("from-sdk", "x"), [run.branch for run in store.runs()])
"""
    python = str(Path(ATOLL[0]).with_name("python"))
    done = person.do(python, "-c", program, cwd=project)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"3 ['{project}', 'in'] {project}",
        "1 command_failed",
        str([f"{i}\n" for i in range(5)]),
        "cancelled False",
        "from-sdk b'1\\n' ['from-sdk']",
    ]


def test_a_workspace_bound_in_another_namespace_is_not_unmounted(
    person: Person, project: Path, mounted: Path
) -> None:
    """As a container does it that has the workspace as a volume: the kernel would let the unmount pass."""
    if person.name != "root":
        pytest.skip("an overlay needs root")
    place = person.home / "volume"
    place.mkdir()
    script = 'mount --bind "$1" "$2" && echo > "$3/begun"; exec sleep 100'
    other = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", script, "sh", mounted, place, person.home], cwd="/", env=person.env
    )
    try:
        while not (person.home / "begun").exists():
            assert other.poll() is None
            time.sleep(0.01)
        refused = person.atoll("umount", "try-1", cwd=project, code=7)
        assert "sleep (pr" in refused.stderr and "mount namespace" in refused.stderr
    finally:
        other.kill()
        other.wait()
    person.atoll("umount", "try-1", cwd=project)
    person.atoll("mount", "try-1", cwd=project)
