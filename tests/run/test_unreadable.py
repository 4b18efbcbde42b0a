"""What its owner may not read: an import names it and can leave it out, a capture stops and loses nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.run.conftest import Person


def refused(person: Person, *words: str | os.PathLike[str], cwd: Path) -> str:
    """The sentence of a command that may not read something."""
    text = person.atoll(*words, cwd=cwd, code=10).stderr.strip().splitlines()[-1]
    assert text.startswith("atoll: atoll could not ") and text.endswith("."), text
    assert "Permission denied" in text and "chmod u+rX" in text, text
    return text


@pytest.fixture
def ordinary(person: Person) -> Person:
    """Root reads everything."""
    if person.uid == 0:
        pytest.skip("root reads everything")
    return person


# What is made, what takes the right away, the path that is named, what an import leaves out.
KINDS = [
    ("echo x > secret", "chmod 0 secret", "secret", ["secret"]),
    ("mkdir secret && echo x > secret/inside", "chmod 0 secret", "secret", ["secret"]),
    ("mkdir secret && echo x > secret/inside", "chmod 444 secret", "secret", ["secret/inside"]),
    ("mkdir secret && echo x > secret/.atollignore", "chmod 444 secret", "secret", ["secret/.atollignore"]),
]
IDS = ["file", "folder", "folder that is listed alone", "folder with patterns"]


@pytest.mark.parametrize(("make", "close", "named", "left_out"), KINDS, ids=IDS)
def test_an_import_names_it_and_can_leave_it_out(
    ordinary: Person, project: Path, make: str, close: str, named: str, left_out: list[str]
) -> None:
    ordinary.do("sh", "-c", f"{make} && {close} && echo new > new", cwd=project)
    text = refused(ordinary, "import", cwd=project)
    assert f"{project}/{named}:" in text and "--skip-unreadable" in text
    assert "new" not in ordinary.atoll("ls", "main", cwd=project).stdout.split()
    skipped = ordinary.json("import", "--skip-unreadable", cwd=project)["skipped"]
    assert [(each["path"], each["reason"]) for each in skipped] == [(path, "unreadable") for path in left_out]
    assert "new" in ordinary.atoll("ls", "main", cwd=project).stdout.split()
    ordinary.do("chmod", "u+rwX", "secret", cwd=project)


def test_patterns_that_cannot_be_read_are_never_left_out(ordinary: Person, project: Path) -> None:
    ordinary.do("sh", "-c", "echo x > .atollignore && chmod 0 .atollignore", cwd=project)
    for words in (["import"], ["import", "--skip-unreadable"]):
        text = refused(ordinary, *words, cwd=project)
        assert ".atollignore" in text and "--skip-unreadable" not in text


@pytest.mark.parametrize(("make", "close", "named", "_left_out"), KINDS, ids=IDS)
def test_a_capture_stops_there_and_loses_nothing(
    ordinary: Person, project: Path, make: str, close: str, named: str, _left_out: list[str]
) -> None:
    ordinary.atoll("fork", "main", "a", cwd=project)
    ws = Path(ordinary.atoll("mount", "a", "--driver", "copy", cwd=project).stdout.strip())
    ordinary.do("sh", "-c", f"{make} && {close}", cwd=ws)
    for words in (["commit", "a"], ["status", "a"], ["drop", "a"], ["restore", "--from", "main", "-w", "a"]):
        text = refused(ordinary, *words, cwd=project)
        assert f"{ws}/{named}:" in text and "--skip-unreadable" not in text, words
    assert (ws / "secret").exists()
    ordinary.do("chmod", "u+rwX", "secret", cwd=ws)
    ordinary.atoll("commit", "a", cwd=project)
    changes = ordinary.json("diff", "main", "a", cwd=project)["changes"]
    assert changes[0]["path"] == "secret" and changes[0]["kind"] == "added"
    ordinary.atoll("umount", "a", cwd=project)
