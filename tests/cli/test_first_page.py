"""The README's first page, command by command, without the network."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

from tests.conftest import Cli


def test_the_first_day(cli: Cli, project: Path, home: Path) -> None:
    done = cli.raw("import")
    assert done.returncode == 0, done.stderr
    assert b"A store was made at" in done.stderr
    assert done.stdout.startswith(b"main ")
    assert "nothing changed" in cli("import") or "read" in cli("import")

    cli("fork", "main", "try-1")
    where = cli("mount", "try-1", "--driver", "copy")
    assert where.endswith("/try-1\n") and where.count("\n") == 1
    ws = Path(where.rstrip("\n"))
    (ws / "a.txt").write_text("two\n")
    (ws / "new.txt").write_text("new\n")
    status = cli("status", "try-1")
    assert "M a.txt" in status and "A new.txt" in status
    # Inside of a workspace it may be left out.
    assert "M a.txt" in cli("status", cwd=ws / "src")
    assert "try-1" in cli("commit", "try-1", "-m", "deps installed")
    assert "nothing changed" in cli("commit", cwd=ws)
    assert cli("umount", "try-1") == ""
    assert not ws.exists()

    assert "deps installed" in cli("log", "try-1")
    assert "M a.txt" in cli("diff", "main", "try-1")
    assert cli("diff", "main", "try-1", "--name-only", "-z").split("\0") == [
        "a.txt",
        "hard.txt",
        "new.txt",
        "",
    ]
    cli("diff", "main", "try-1", "--exit-code", code=1)
    cli("diff", "main", "main", "--exit-code", code=0)
    assert "+two" in cli("diff", "main", "try-1", "--patch")
    assert "insertions(+)" in cli("diff", "main", "try-1", "--stat")

    assert "A new.txt" in cli("apply", "try-1", "--dry-run")
    assert not (project / "new.txt").exists()
    cli("apply", "try-1")
    assert (project / "new.txt").read_text() == "new\n" and (project / "a.txt").read_text() == "two\n"
    cli("undo")
    assert not (project / "new.txt").exists() and (project / "a.txt").read_text() == "one\n"

    assert cli("export", "try-1", home / "out", "--verify").endswith("verified\n")
    archive = home / "out.tar"
    archive.write_bytes(cli.raw("export", "try-1", "--tar").stdout)
    with tarfile.open(archive) as tar:
        assert "new.txt" in tar.getnames()
    assert cli.raw("import", "--tar", "-", "--branch", "x", stdin=archive.read_bytes()).returncode == 0
    assert cli.json("show", "x")["content"] == cli.json("show", "try-1")["content"]

    assert cli("drop", "t*", "--except", "try-2") == "try-1\n"
    cli.fails(4, "log", "try-1")
    cli("undo")
    assert "deps installed" in cli("log", "try-1", "--oneline")
    for words in (
        ["branch"],
        ["tag"],
        ["op", "log"],
        ["workspaces"],
        ["servers"],
        ["stats"],
        ["gc"],
        ["version"],
    ):
        cli(*words)


def test_everything_explicit(cli: Cli, project: Path, home: Path) -> None:
    place = home / "elsewhere" / "store"
    assert cli("init", "--store", place).strip() == str(place)
    cli("import", project, "--branch", "b", "--store", place, cwd=home)
    assert cli("ls", "b", "--store", place, cwd=home).split() == sorted(os.listdir(project))
    assert cli.fails(3, "log", "b", cwd=home).startswith("atoll: ")


def test_reading_a_commit(cli: Cli) -> None:
    cli("import")
    assert cli("cat", "main:a.txt") == "one\n"
    assert cli("ls", "main:src").split() == ["b.py", "deep"]
    assert "-rwxr-xr-x" in cli("ls", "-l", "main")
    assert cli("find", "main", "--name", "*.bin", "--size", "+100k").split() == ["src/deep/c.bin"]
    assert cli("find", "main", "--type", "l").split() == ["link"]
    assert cli("grep", "pri.t", "main:src") == "src/b.py:1:print('b')\n"
    assert cli("grep", "-l", "-F", "print(", "main").split() == ["src/b.py"]
    cli("grep", "nowhere", "main", code=1)
    assert "mode    0755" in cli("stat", "main:run.sh")
    assert cli.json("stat", "main:link")["target"] == "a.txt"
    assert "first commit" in cli("show", "main")


def test_restore_by_name_and_from_inside(cli: Cli) -> None:
    cli("import")
    cli("fork", "main", "t")
    ws = Path(cli("mount", "t", "--driver", "copy").strip())
    (ws / "a.txt").write_text("two\n")
    cli("restore", "--from", "main", "-w", "t", "a.txt")
    assert (ws / "a.txt").read_text() == "one\n"
    (ws / "src" / "b.py").unlink()
    cli("restore", "--from", "main", cwd=ws)
    assert (ws / "src" / "b.py").exists()
    cli("undo")
    assert not (ws / "src" / "b.py").exists()
    cli("umount", ws)


def test_meta_and_names(cli: Cli) -> None:
    cli("import")
    cli("fork", "main", "t")
    ws = Path(cli("mount", "t", "--driver", "copy").strip())
    (ws / "x").touch()
    cli("commit", "t", "--meta", 'agent={"n": 1}', "--meta", "word=plain")
    meta = cli.json("show", "t")["meta"]
    assert meta["agent"] == {"n": 1} and meta["word"] == "plain"
    cli("umount", "--all")
    cli("tag", "v1", "t")
    assert "v1" in cli("tag")
    cli("tag", "--delete", "v1")
    cli("branch", "t", "--rename", "done")
    cli("branch", "-m", "done", "again")
    cli("branch", "-m", "again", "done")
    assert cli("branch", "-z").split("\0") == ["done", "main", ""]
    cli("branch", "--delete", "done")
