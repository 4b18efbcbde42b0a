"""The launcher by itself: namespaces, exit codes, signals, limits, what it leaves."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from atoll.errors import NotFound, Unsupported
from atoll.run.active import freezer, refuse_if_running, running
from atoll.run.launcher import Ended, Limits, NoNamespace, Spec, Stop, Streams, launch
from tests.run.conftest import alive


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    (folder / "sub").mkdir(parents=True)
    (folder / "file").write_text("workspace")
    original = tmp_path / "original"
    original.mkdir()
    (original / "file").write_text("original")
    return folder


@pytest.fixture
def original(workspace: Path) -> Path:
    return workspace.parent / "original"


def go(command: list[str], workspace: Path, at: Path | None = None, **fields: Any) -> Ended:
    spec = Spec(command, workspace, at, fields.pop("cwd", at or workspace), fields.pop("env", {}), **fields)
    try:
        return launch(spec, Streams(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    except NoNamespace as refused:
        pytest.skip(f"no mount namespace here: {refused.message}")


def limited(command: list[str], workspace: Path, limits: Limits, **fields: Any) -> Ended:
    try:
        return go(command, workspace, limits=limits, **fields)
    except Unsupported as refused:
        pytest.skip(refused.message)


def test_a_workspace_hides_the_folder_it_is_shown_at(workspace: Path, original: Path) -> None:
    script = "cat file; echo new > made; cat made; pwd"
    ended = go(["sh", "-c", script], workspace, original)
    assert ended.returncode == 0
    assert ended.stdout == f"workspacenew\n{original}\n"
    assert (workspace / "made").read_text() == "new\n"
    assert os.listdir(original) == ["file"]
    assert (original / "file").read_text() == "original"


def test_the_command_starts_where_it_was_told(workspace: Path, original: Path) -> None:
    ended = go(["sh", "-c", "pwd; /bin/pwd"], workspace, original, cwd=original / "sub", env={"PWD": "x"})
    assert ended.stdout.splitlines() == [f"{original}/sub"] * 2
    with pytest.raises(NotFound, match="none"):
        go(["true"], workspace, original, cwd=original / "none")


def test_no_folder_to_be_shown_at(workspace: Path) -> None:
    spec = Spec(["true"], workspace, workspace.parent / "none", workspace, {})
    with pytest.raises(NoNamespace, match="no folder of that name"):
        launch(spec)


@pytest.mark.parametrize(
    ("script", "code", "signal"),
    [("exit 0", 0, None), ("exit 7", 7, None), ("kill -9 $$", 137, 9), ("kill -TERM $$", 143, 15)],
)
def test_the_exit_code_is_the_commands(workspace: Path, script: str, code: int, signal: int | None) -> None:
    ended = go(["sh", "-c", script], workspace)
    assert (ended.returncode, ended.events["ended"]["signal"]) == (code, signal)


def test_a_command_that_is_not_there_or_cannot_be_started(workspace: Path) -> None:
    assert go(["no-such-command"], workspace).returncode == 127
    assert go(["./none"], workspace).returncode == 127
    assert go(["./file"], workspace).returncode == 126
    (workspace / "broken").write_text("#!/no/such/interpreter\n")
    (workspace / "broken").chmod(0o755)
    ended = go(["./broken"], workspace)
    assert ended.returncode == 126
    assert "interpreter" in ended.events["not_started"]["message"]


def test_a_script_without_an_interpreter_line(workspace: Path) -> None:
    (workspace / "script").write_text("echo $1\n")
    (workspace / "script").chmod(0o755)
    assert go(["./script", "by sh"], workspace).stdout == "by sh\n"


def test_arguments_are_bytes_and_may_be_long(workspace: Path) -> None:
    name = os.fsdecode(b"\xff\xfe")
    long = "x" * 100_000
    ended = go(["sh", "-c", 'printf "%s" "$1" > "$2"', "sh", long, name], workspace)
    assert ended.returncode == 0
    assert (workspace / name).read_text() == long


def test_no_file_of_the_launcher_reaches_the_command(workspace: Path, original: Path) -> None:
    ended = go(
        ["sh", "-c", "ls /proc/self/fd; cat /proc/self/status | grep -E '^Sig(Blk|Ign)'"], workspace, original
    )
    descriptors, *signals = ended.stdout.split("SigBlk:")[0].split(), ended.stdout.split("SigBlk:")[1]
    # 3 is the folder that `ls` itself reads.
    assert set(descriptors) <= {"0", "1", "2", "3"}
    blocked, ignored = signals[0].split("SigIgn:")
    assert int(blocked.strip(), 16) == 0
    # SIGPIPE (13) and SIGXFSZ (25), which Python ignores, are the command's again.
    assert int(ignored.strip(), 16) & (1 << 12 | 1 << 24) == 0


def test_a_timeout_asks_and_then_ends(workspace: Path) -> None:
    ended = go(["sleep", "100"], workspace, timeout=0.2)
    assert (ended.returncode, ended.events["ended"]["signal"]) == (124, 15)
    script = "trap '' TERM; while :; do sleep 0.05; done"
    ended = go(["sh", "-c", script], workspace, timeout=0.2, grace=0.2)
    assert (ended.returncode, ended.events["ended"]["signal"]) == (124, 9)
    ended = go(["sh", "-c", "trap 'exit 3' TERM; while :; do sleep 0.05; done"], workspace, timeout=0.2)
    assert ended.returncode == 124
    assert ended.events["ended"]["timed_out"]


DAEMON = (
    "(setsid sh -c 'trap \"\" TERM HUP; echo $$ > daemon; while :; do sleep 0.05; done' >/dev/null 2>&1 &) ; "
    + ("while ! [ -s daemon ]; do sleep 0.01; done")
)


def test_nothing_outlives_the_command(workspace: Path, original: Path) -> None:
    ended = go(["sh", "-c", DAEMON], workspace, original)
    assert ended.returncode == 0
    daemon = int((workspace / "daemon").read_text())
    assert daemon in [process["pid"] for process in ended.events["ended"]["left_behind"]]
    assert not alive(daemon)


def test_children_go_on_when_asked(workspace: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    ended = go(["sh", "-c", DAEMON], workspace, detach_children=True, state_dir=state)
    daemon = int((workspace / "daemon").read_text())
    try:
        assert ended.events["ended"]["detached"]
        assert alive(daemon)
        if ended.events["started"]["cgroup"] is not None:
            with pytest.raises(Exception, match="cannot be unmounted"):
                refuse_if_running(state, "x")
    finally:
        os.kill(daemon, 9)
        while alive(daemon):
            time.sleep(0.01)
        # The command's own loop of `sleep` may be a moment later.
        while running(state):
            time.sleep(0.01)
    assert os.listdir(state / "runs") == []


def test_a_pass_is_read_only_and_leaves_nothing(workspace: Path, original: Path) -> None:
    (original / "secret").write_text("key")
    (original / "data").mkdir()
    (original / "data" / "x").write_text("x")
    passes = [(original / "secret", original / "secret"), (original / "data", original / "deep" / "data")]
    script = "cat secret deep/data/x; echo y > secret || echo refused; touch deep/data/z || echo refused"
    ended = go(["sh", "-c", script], workspace, original, passes=passes)
    assert ended.stdout == "keyxrefused\nrefused\n"
    assert sorted(os.listdir(workspace)) == ["file", "sub"]
    assert (original / "secret").read_text() == "key"


def test_a_pass_that_is_not_there(workspace: Path, original: Path) -> None:
    with pytest.raises((NotFound, OSError, Exception), match="none"):
        go(["true"], workspace, original, passes=[(original / "none", original / "none")])
    assert sorted(os.listdir(workspace)) == ["file", "sub"]


def test_memory_is_limited(workspace: Path) -> None:
    ended = limited(["python3", "-c", "x = bytearray(200 << 20)"], workspace, Limits(memory=50 << 20))
    assert ended.returncode == 137
    assert ended.events["ended"]["oom_kills"] >= 1
    assert ended.events["ended"]["peak_memory_of"] == "all"


def test_processes_are_limited(workspace: Path) -> None:
    script = "i=0; while [ $i -lt 20 ]; do sleep 0.2 & i=$((i+1)); done; wait"
    assert limited(["sh", "-c", script], workspace, Limits(pids=5)).returncode != 0
    assert limited(["sh", "-c", script], workspace, Limits(pids=50)).returncode == 0


def test_what_was_used_is_measured(workspace: Path) -> None:
    script = "import time; x = bytearray(40 << 20)\nwhile time.process_time() < 0.3: pass"
    end = go(["sh", "-c", f"python3 -c '{script}'"], workspace).events["ended"]
    assert end["cpu_s"] >= 0.2
    assert end["duration_s"] >= 0.2
    assert end["peak_memory_bytes"] >= 40 << 20


def test_a_command_is_stopped_from_another_thread(workspace: Path) -> None:
    stop = Stop()
    spec = Spec(["sh", "-c", "echo > begun; exec sleep 100"], workspace, None, workspace, {})

    def press() -> None:
        while not (workspace / "begun").exists():
            time.sleep(0.01)
        stop()

    presser = threading.Thread(target=press)
    presser.start()
    ended = launch(spec, stop=stop)
    presser.join()
    assert ended.returncode == 143


def test_a_running_command_is_listed_and_can_be_frozen(workspace: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    script = "while ! [ -e end ]; do date +%N > tick; done"
    spec = Spec(["sh", "-c", script], workspace, None, workspace, {}, state_dir=state)
    runner = threading.Thread(target=launch, args=(spec,))
    runner.start()
    try:
        while not (workspace / "tick").exists() or not running(state) or not running(state)[0].program:
            time.sleep(0.01)
        (found,) = running(state)
        assert found.program == "sh"
        assert alive(found.pid)
        switch = freezer(state)
        if switch is None:
            assert found.cgroup is None
            pytest.skip("no cgroup can be made here")
        switch(True)
        first = (workspace / "tick").stat().st_mtime_ns
        assert found.freezer is not None
        state_file = Path(found.freezer[0])
        frozen = state_file.with_name("cgroup.events") if state_file.name == "cgroup.freeze" else state_file
        assert "frozen 1" in frozen.read_text() or "FROZEN" in frozen.read_text()
        assert (workspace / "tick").stat().st_mtime_ns == first
        switch(False)
        while (workspace / "tick").stat().st_mtime_ns == first:
            time.sleep(0.01)
    finally:
        (workspace / "end").touch()
        runner.join()
    assert running(state) == []
    refuse_if_running(state, "x")


def test_no_cgroup_is_left(workspace: Path) -> None:
    group = go(["true"], workspace).events["started"]["cgroup"]
    assert group is None or not Path(group).exists()
