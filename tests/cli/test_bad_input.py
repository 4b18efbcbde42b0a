"""Bad input: one sentence that names cause and next step, its exit code, nothing lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

from tests.conftest import ATOLL, Cli


def test_no_store_here(cli: Cli) -> None:
    assert "`atoll import`" in cli.fails(3, "log")
    assert cli.fails(3, "log", "--store", "/nowhere/at/all")


def test_unknown_names_and_the_nearest(cli: Cli) -> None:
    cli("import")
    assert "main" in cli.fails(4, "log", "mian")
    assert "'main'" in cli.fails(4, "mount", "mian")
    assert cli.fails(4, "cat", "main:nope")
    assert "atoll mount" in cli.fails(4, "commit", "main")
    assert "did you mean" in cli.fails(2, "imprt")


def test_names_that_exist_or_cannot(cli: Cli) -> None:
    cli("import")
    cli("fork", "main", "a")
    assert "'a'" in cli.fails(5, "fork", "main", "a")
    for name in ("a b", "x..y", ".x", "a~1", "x:y"):
        cli.fails(2, "fork", "main", name)


def test_mount_points(cli: Cli, project: Path, home: Path) -> None:
    cli("import")
    cli("fork", "main", "t")
    (home / "full").mkdir()
    (home / "full" / "mine").touch()
    assert "not empty" in cli.fails(5, "mount", "t", home / "full")
    assert "not a folder" in cli.fails(2, "mount", "t", project / "a.txt")
    assert "imported" in cli.fails(2, "mount", "t", project / "below")
    where = cli("mount", "t", home / "made" / "here", "--driver", "copy").strip()
    assert where in cli.fails(7, "mount", "t")
    cli("fork", "main", "u")
    assert "already" in cli.fails(7, "mount", "u", where)
    assert (home / "full" / "mine").exists()
    cli("umount", "t")


def test_a_git_that_is_running(cli: Cli, project: Path) -> None:
    (project / ".git").mkdir()
    (project / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (project / ".git" / "index.lock").touch()
    assert "index.lock" in cli.fails(7, "import")
    assert cli.fails(3, "log", "main")


def test_secrets_are_named_once(cli: Cli, project: Path) -> None:
    (project / ".env").write_text("TOKEN=x\n")
    assert b".env" in cli.raw("import").stderr
    (project / "new").touch()
    assert b".env" not in cli.raw("import").stderr


def test_conflicts_of_apply(cli: Cli, project: Path) -> None:
    cli("import")
    cli("fork", "main", "t")
    ws = Path(cli("mount", "t", "--driver", "copy").strip())
    (ws / "a.txt").write_text("theirs\n")
    (ws / "other").write_text("other\n")
    cli("commit", "t")
    cli("umount", "t")
    (project / "a.txt").write_text("mine, precious\n")
    assert "a.txt" in cli.fails(12, "apply", "t")
    assert not (project / "other").exists()
    done = cli.raw("apply", "t", "--json")
    assert (
        json.loads(done.stderr)["error"]["conflicts"] == ["a.txt", "hard.txt"]
        or "a.txt" in json.loads(done.stderr)["error"]["conflicts"]
    )
    cli("apply", "t", "--force")
    assert (project / "a.txt").read_text() == "theirs\n"
    cli("undo")
    assert (project / "a.txt").read_text() == "mine, precious\n"


def test_errors_are_json_under_json(cli: Cli) -> None:
    cli("import")
    for code, words in ((4, ["log", "nope"]), (2, ["log", "--nonsense"]), (5, ["fork", "main", "main"])):
        done = cli.raw(*words, "--json")
        document = json.loads(done.stderr)
        assert done.returncode == code == document["error"]["exit_code"] and done.stdout == b""
        assert document["schema"] == 1 and document["error"]["message"].endswith((".", "?"))


def test_a_flipped_byte_is_an_error_for_that_file_alone(cli: Cli, project: Path, home: Path) -> None:
    (project / "big").write_bytes(os.urandom(3 << 20))
    cli("import")
    store = Path(cli.json("stats")["store"])
    pack = max((store / "packs").rglob("*"), key=lambda path: path.stat().st_size if path.is_file() else 0)
    content = bytearray(pack.read_bytes())
    content[len(content) // 2] ^= 0xFF
    pack.chmod(0o644)
    pack.write_bytes(content)
    assert cli.fails(8, "export", "main", home / "out")
    assert cli("cat", "main:a.txt") == "one\n"
    assert cli("ls", "main")


def test_an_interrupted_import_leaves_the_state_before_or_after(cli: Cli, project: Path) -> None:
    cli("import")
    before = cli.json("log")["commits"]
    many = project / "many"
    many.mkdir()
    for number in range(4000):
        (many / f"f{number}").write_bytes(os.urandom(4096))
    process = subprocess.Popen([ATOLL, "import"], cwd=project, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    time.sleep(0.4)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    # The signal can come before Python listens to it, in the middle, and after the commit: the state is the
    # one before or the one after, never a third.
    assert process.returncode in (0, 130, -signal.SIGINT), err
    assert (b"Interrupted" in err) == (process.returncode == 130)
    after = cli.json("log")["commits"]
    assert after[-len(before) :] == before and len(after) - len(before) in (0, 1)
    if process.returncode == 0:
        assert len(after) == len(before) + 1 and out
    cli("import")
    assert cli.json("log")["commits"][0]["summary"]["files"] >= 4000
