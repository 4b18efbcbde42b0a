"""`atoll run`: real commands, as root and as an ordinary user."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.run.conftest import ATOLL, Person, alive

TOKEN = "ghp_" + "a1B2" * 9


def runs(person: Person, project: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = person.json("runs", cwd=project)["runs"]
    return found


def branches(person: Person, project: Path) -> list[str]:
    return [ref["name"] for ref in person.json("branch", cwd=project)["branches"]]


def changed(person: Person, project: Path, branch: str) -> list[tuple[str, str]]:
    changes = person.json("diff", "main", branch, cwd=project)["changes"]
    return [(change["kind"], change["path"]) for change in changes]


def cat(person: Person, project: Path, where: str) -> str:
    return person.atoll("cat", where, cwd=project).stdout


def test_a_failure_is_committed_and_the_original_untouched(person: Person, project: Path) -> None:
    script = "pwd; cat a.txt; echo changed > a.txt; rm pkg/b.txt; echo new > n; echo to stderr >&2; exit 3"
    done = person.atoll("run", "--name", "a1", "--", "sh", "-c", script, cwd=project, code=3)
    assert done.stdout == f"{project}\none\n"
    assert "to stderr\n" in done.stderr
    assert changed(person, project, "a1") == [("modified", "a.txt"), ("added", "n"), ("deleted", "pkg/b.txt")]
    assert (project / "a.txt").read_text() == "one\n"
    assert sorted(os.listdir(project)) == ["a.txt", "pkg"]
    (run,) = runs(person, project)
    assert (run["branch"], run["exit_code"], run["files_changed"]) == ("a1", 3, 3)
    assert run["command"] == ["sh", "-c", script]
    assert run["duration_s"] > 0 and run["peak_memory_bytes"] > 0 and run["timed_out"] is False
    assert person.json("workspaces", cwd=project)["workspaces"] == []


def test_what_changed_in_the_project_is_imported_first(person: Person, project: Path) -> None:
    person.do("sh", "-c", "echo newer > a.txt", cwd=project)
    assert person.atoll("run", "--", "cat", "a.txt", cwd=project).stdout == "newer\n"
    old = person.json("log", "main", cwd=project)["commits"][1]["id"]
    assert person.atoll("run", old[:12], "--", "cat", "a.txt", cwd=project).stdout == "one\n"


def test_a_run_is_listed_with_what_it_was_forked_from(person: Person, project: Path) -> None:
    person.atoll("fork", "main", "also-there", cwd=project)
    person.atoll("run", "--name", "a1", "--", "true", cwd=project)
    person.atoll("run", "main", "--name", "a2", "--", "true", cwd=project)
    person.atoll("run", "--on", "also-there", "--", "true", cwd=project)
    assert [run["forked_from"] for run in runs(person, project)] == [None, "main", "main"]
    lines = person.atoll("runs", "a1", "a2", cwd=project).stdout.splitlines()[1:]
    assert [line.split()[1] for line in lines] == ["main", "main"]


def test_the_command_starts_where_one_stands(person: Person, project: Path) -> None:
    deep = project / "pkg" / "deep"
    done = person.atoll("run", "main", "--", "sh", "-c", "pwd; cat c.txt ../b.txt", cwd=deep)
    assert done.stdout == f"{deep}\nthree\ntwo\n"
    done = person.atoll("run", "main", "--at", "none", "--", "sh", "-c", "pwd; cat c.txt", cwd=deep)
    assert done.stdout.splitlines()[1] == "three"
    assert not done.stdout.startswith(str(project))
    store = os.path.dirname(next((person.home / "data").glob("**/atoll.toml")))
    done = person.atoll("run", "main", "--store", store, "--", "pwd", cwd=person.home)
    assert done.stdout == f"{project}\n"


def test_another_path(person: Person, project: Path) -> None:
    place = person.home / "elsewhere"
    missing = person.atoll("run", "main", "--at", place, "--", "pwd", cwd=project, code=125)
    assert "no folder of that name" in missing.stderr
    assert branches(person, project) == ["main"]
    person.do("mkdir", place, cwd=project)
    done = person.atoll("run", "main", "--at", place, "--", "sh", "-c", "pwd; cat pkg/b.txt", cwd=project)
    assert done.stdout == f"{place}\ntwo\n"


def test_the_environment_names_the_workspace(person: Person, project: Path) -> None:
    script = 'echo "$ATOLL_BRANCH $ATOLL_BASE $PWD"; test -d "$ATOLL_STORE/workspaces/$ATOLL_WORKSPACE"'
    done = person.atoll("run", "--name", "a1", "--", "sh", "-c", script, cwd=project)
    main = person.json("show", "main", cwd=project)["id"]
    assert done.stdout == f"a1 {main} {project}\n"


def test_a_commit_from_inside_goes_to_the_runs_branch(person: Person, project: Path) -> None:
    words = ["sh", "-c", 'echo 1 > x; "$@"; echo 2 > y', "sh", *ATOLL, "commit", "-m", "half way"]
    person.atoll("run", "--name", "a1", "--", *words, cwd=project)
    log = person.json("log", "a1", cwd=project)["commits"]
    assert [commit["message"].splitlines()[0] for commit in log][1] == "half way"
    assert "run" in log[0]["meta"] and "run" not in log[1]["meta"]
    assert [path for _, path in changed(person, project, "a1")] == ["x", "y"]


def test_a_run_from_inside_forks_the_workspace(person: Person, project: Path) -> None:
    words = [
        "sh",
        "-c",
        'echo 1 > x; "$@"',
        "sh",
        *ATOLL,
        "run",
        "--name",
        "inner",
        "--",
        "sh",
        "-c",
        "cat x; echo 2 > x",
    ]
    done = person.atoll("run", "--name", "outer", "--", *words, cwd=project)
    assert done.stdout == "1\n"
    assert cat(person, project, "outer:x") == "1\n"
    assert cat(person, project, "inner:x") == "2\n"
    assert not (project / "x").exists()


def test_names_are_counted_also_by_many_at_once(person: Person, project: Path) -> None:
    started = [
        person.start("run", "main", "--", "sh", "-c", f"echo {i} > mine", cwd=project, stderr=subprocess.PIPE)
        for i in range(6)
    ]
    outcomes = [(process.communicate(timeout=60)[1], process.returncode) for process in started]
    assert [code for _, code in outcomes] == [0] * 6, outcomes
    assert branches(person, project) == ["main", *(f"run-{i}" for i in range(1, 7))]
    assert sorted(cat(person, project, f"run-{i}:mine") for i in range(1, 7)) == [f"{i}\n" for i in range(6)]


def test_exit_codes(person: Person, project: Path) -> None:
    def code(*words: str) -> int:
        return person.atoll("run", "main", "--", *words, cwd=project, code=None).returncode

    assert code("sh", "-c", "kill -9 $$") == 137
    assert code("sh", "-c", "exit 255") == 255
    assert code("no-such-command") == 127
    assert code("./a.txt") == 126
    assert person.atoll("run", "none", "--", "true", cwd=project, code=125).stderr.startswith(
        "atoll: There is no"
    )
    assert "after `--`" in person.atoll("run", "main", cwd=project, code=125).stderr
    assert "--timeout" in person.atoll("run", "--timeout", "x", "--", "true", cwd=project, code=125).stderr
    # What could not be started leaves no branch.
    assert branches(person, project) == ["main", "run-1", "run-2"]


def test_a_failure_of_atoll_is_json_too(person: Person, project: Path) -> None:
    done = person.atoll("run", "none", "--json", "--", "true", cwd=project, code=125)
    error = json.loads(done.stderr)["error"]
    assert (error["code"], error["exit_code"]) == ("not_found", 125)


def test_a_timeout_is_committed(person: Person, project: Path) -> None:
    script = "echo half > x; sleep 100"
    done = person.atoll(
        "run", "--timeout", "0.5", "--name", "a1", "--json", "--", "sh", "-c", script, cwd=project, code=124
    )
    assert json.loads(done.stderr)["timed_out"] is True
    assert cat(person, project, "a1:x") == "half\n"
    assert runs(person, project)[0]["timed_out"] is True


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


COUNT = (
    'trap "echo int >> count" INT; echo > "$1/begun"; while [ ! -e "$1/end" ]; do sleep 0.02; done; exit 5'
)


@pytest.mark.parametrize("whole_group", [True, False])
def test_an_interrupt_reaches_the_command_once_and_is_committed(
    person: Person, project: Path, whole_group: bool
) -> None:
    process = person.start("run", "--name", "a1", "--", "sh", "-c", COUNT, "sh", person.home, cwd=project)
    wait_for(person.home / "begun")
    (os.killpg if whole_group else os.kill)(process.pid, signal.SIGINT)
    # The second signal is told from the first by what the shell wrote: it comes after that.
    time.sleep(0.3)
    (person.home / "end").touch()
    assert process.wait(30) == 5
    assert cat(person, project, "a1:count") == "int\n"


def test_ctrl_c_at_a_terminal(person: Person, project: Path) -> None:
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *person.arguments(*ATOLL, "run", "--name", "a1", "--", "sh", "-c",
         'test -t 0 && test -t 1 && echo tty > tty; echo > "$0/begun"; sleep 100', person.home)],
        cwd=project, env=person.env, stdin=terminal, stdout=terminal, stderr=terminal,
    )  # fmt: skip
    os.close(terminal)
    wait_for(person.home / "begun")
    os.write(controller, b"\x03")
    assert process.wait(30) == 130
    os.close(controller)
    assert cat(person, project, "a1:tty") == "tty\n"
    assert runs(person, project)[0]["exit_code"] == 130


def test_sigterm_ends_the_command_and_is_committed(person: Person, project: Path) -> None:
    script = 'echo half > x; echo > "$0/begun"; exec sleep 100'
    process = person.start("run", "--name", "a1", "--", "sh", "-c", script, person.home, cwd=project)
    wait_for(person.home / "begun")
    process.terminate()
    assert process.wait(30) == 143
    assert cat(person, project, "a1:x") == "half\n"


def test_a_killed_atoll_takes_the_command_with_it_and_loses_nothing(person: Person, project: Path) -> None:
    script = 'echo half > x; echo $$ > "$0/pid.new"; mv "$0/pid.new" "$0/pid"; exec sleep 100'
    process = person.start("run", "--name", "a1", "--", "sh", "-c", script, person.home, cwd=project)
    wait_for(person.home / "pid")
    process.kill()
    process.wait(30)
    command = int((person.home / "pid").read_text())
    while alive(command):
        time.sleep(0.01)
    # The launcher may need a moment more to go.
    while "cannot be unmounted" in person.atoll("umount", "a1", cwd=project, code=None).stderr:
        time.sleep(0.05)
    person.atoll("commit", "a1", "-m", "what was left", cwd=project)
    assert cat(person, project, "a1:x") == "half\n"
    person.atoll("umount", "a1", cwd=project, code=None)


DAEMON = """
(setsid sh -c 'trap "" TERM HUP; echo $$ > "$0/daemon"; while :; do sleep 0.05; done' "$0" >/dev/null 2>&1 &)
while [ ! -s "$0/daemon" ]; do sleep 0.01; done
echo out > x
"""


def test_nothing_outlives_a_run(person: Person, project: Path) -> None:
    person.atoll("run", "--name", "a1", "--", "sh", "-c", DAEMON, person.home, cwd=project)
    assert not alive(int((person.home / "daemon").read_text()))
    assert cat(person, project, "a1:x") == "out\n"


def test_children_go_on_when_asked(person: Person, project: Path) -> None:
    done = person.atoll(
        "run", "--detach-children", "--name", "a1", "--", "sh", "-c", DAEMON, person.home, cwd=project
    )
    daemon = int((person.home / "daemon").read_text())
    try:
        assert "stays mounted" in done.stderr
        assert alive(daemon)
        assert cat(person, project, "a1:x") == "out\n"
        if person.name == "root":
            refused = person.atoll("umount", "a1", cwd=project, code=7)
            assert "pid" in refused.stderr
    finally:
        os.kill(daemon, signal.SIGKILL)
    while person.atoll("umount", "a1", cwd=project, code=None).returncode != 0:
        time.sleep(0.05)


def test_tokens_are_masked(person: Person, project: Path) -> None:
    person.atoll("run", "--name", "a1", "--", "true", TOKEN, "--password", "hunter2", cwd=project)
    text = json.dumps(person.json("show", "a1", cwd=project))
    assert TOKEN not in text and "hunter2" not in text
    assert runs(person, project)[0]["command"] == ["true", "ghp_***", "--password", "***"]
    person.atoll("run", "--name", "a2", "--no-record-command", "--", "true", "plain", cwd=project)
    assert "plain" not in json.dumps(person.json("show", "a2", cwd=project))
    assert runs(person, project)[0]["command"] is None


def test_a_failure_can_be_thrown_away(person: Person, project: Path) -> None:
    words = ["run", "--discard-on-failure", "--name"]
    done = person.atoll(*words, "a1", "--", "sh", "-c", "echo x > x; exit 4", cwd=project, code=4)
    assert "thrown away" in done.stderr
    assert branches(person, project) == ["main"]
    person.atoll("undo", cwd=project)
    assert cat(person, project, "a1:x") == "x\n"
    person.atoll(*words, "a2", "--", "sh", "-c", "echo x > x", cwd=project)
    assert changed(person, project, "a2") == [("added", "x")]


def test_without_a_commit_the_changes_are_kept(person: Person, project: Path) -> None:
    done = person.atoll("run", "--no-commit", "--name", "a1", "--", "sh", "-c", "echo x > x", cwd=project)
    assert "not committed" in done.stderr
    assert changed(person, project, "a1") == []
    person.atoll("commit", "a1", "-m", "later", cwd=project)
    assert changed(person, project, "a1") == [("added", "x")]
    person.atoll("umount", "a1", cwd=project, code=None)


def test_on_an_existing_branch(person: Person, project: Path) -> None:
    person.atoll("fork", "main", "a1", cwd=project)
    for number in "12":
        person.atoll("run", "--on", "a1", "--", "sh", "-c", f"echo {number} >> x", cwd=project)
    assert cat(person, project, "a1:x") == "1\n2\n"
    assert [run["branch"] for run in runs(person, project)] == ["a1", "a1"]
    assert "--on" in person.atoll("run", "main", "--on", "a1", "--", "true", cwd=project, code=125).stderr


def test_a_pass_is_shown_and_not_captured(person: Person, project: Path) -> None:
    person.do("sh", "-c", "echo secret > .env; echo .env > .atollignore", cwd=project)
    assert person.atoll("run", "--", "ls", "-A", cwd=project).stdout.split() == [
        ".atollignore",
        "a.txt",
        "pkg",
    ]
    script = "cat .env; echo more >> .env || echo refused; echo x > x"
    done = person.atoll("run", "--name", "a1", "--pass", ".env", "--", "sh", "-c", script, cwd=project)
    assert done.stdout == "secret\nrefused\n"
    assert changed(person, project, "a1") == [("added", "x")]
    missing = person.atoll("run", "--pass", "none", "--", "true", cwd=project, code=125)
    assert "none" in missing.stderr


def test_a_limit_is_kept_or_refused(person: Person, project: Path) -> None:
    program = "x = bytearray(300 << 20)"
    words = ["run", "--memory", "100M", "--name", "a1", "--", "/usr/bin/env", "python3", "-c", program]
    done = person.atoll(*words, cwd=project, code=None)
    if done.returncode == 125:
        assert "--memory cannot be kept here" in done.stderr
        assert branches(person, project) == ["main"]
    else:
        assert done.returncode == 137
    assert (
        "amount of memory"
        in person.atoll("run", "--memory", "lots", "--", "true", cwd=project, code=125).stderr
    )


def test_a_folder_of_no_store(person: Person) -> None:
    done = person.atoll("run", "--", "true", cwd=person.home, code=125)
    assert "atoll import" in done.stderr


def test_both_drivers(person: Person, project: Path) -> None:
    for driver in ("copy", "overlay"):
        words = ["run", "--driver", driver, "--name", driver, "--", "sh", "-c", "echo 1 > x; pwd"]
        done = person.atoll(*words, cwd=project, code=None)
        if driver == "overlay" and done.returncode == 125:
            pytest.skip(done.stderr)
        assert (done.returncode, done.stdout) == (0, f"{project}\n")
        assert changed(person, project, driver) == [("added", "x")]


def test_an_import_from_inside_is_refused(person: Person, project: Path) -> None:
    done = person.atoll("run", "--name", "a1", "--", *ATOLL, "import", cwd=project, code=None)
    if "instead of" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 2
    assert "is a workspace here" in done.stderr
    assert len(person.json("log", "main", cwd=project)["commits"]) == 1
