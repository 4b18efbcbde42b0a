"""The command line's own rules: help, completion, JSON, zero bytes, colours, closed pipes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from atoll.cli import COMMANDS
from atoll.cli.lab import LAB_COMMANDS
from tests.conftest import ATOLL, Cli


@pytest.mark.parametrize("command", [*COMMANDS, *(f"lab {name}" for name in LAB_COMMANDS)])
def test_each_command_explains_itself_with_an_example(command: str) -> None:
    from click.testing import CliRunner

    from atoll.cli.app import cli

    result = CliRunner().invoke(cli, [*command.split(), "--help"])
    assert result.exit_code == 0, result.output
    assert "Usage:" in result.output
    if command not in ("version", "op"):
        assert f"atoll {command}" in result.output.split("Examples:", 1)[-1]
    assert max(len(line) for line in result.output.splitlines()) <= 110


def test_help_lists_every_command() -> None:
    text = subprocess.run([ATOLL, "--help"], capture_output=True, text=True, check=True, timeout=30).stdout
    for command in COMMANDS:
        assert f"\n  {command} " in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    script = subprocess.run(
        [ATOLL, "completion", shell], capture_output=True, text=True, check=True, timeout=30
    ).stdout
    assert "_ATOLL_COMPLETE" in script


def test_bash_completes_commands_and_branches(cli: Cli) -> None:
    cli("import")
    cli("fork", "main", "mainly")

    def complete(*words: str) -> list[str]:
        env = {
            **os.environ,
            "_ATOLL_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(["atoll", *words]),
            "COMP_CWORD": str(len(words)),
        }
        out = subprocess.run(
            [ATOLL], cwd=cli.cwd, env=env, capture_output=True, text=True, check=True, timeout=30
        ).stdout
        return [line.split(",", 1)[1] for line in out.splitlines()]

    assert complete("impo") == ["import"]
    assert complete("log", "ma") == ["main", "mainly"]


def test_names_that_are_not_utf8(cli: Cli, project: Path) -> None:
    name = b"caf\xe9\n"
    with open(os.fsencode(project) + b"/" + name, "w"):
        pass
    cli("import")
    (entry,) = [entry for entry in cli.json("ls", "main")["entries"] if "path_b64" in entry]
    assert entry["path"].startswith("caf") and entry["path_b64"] == "Y2Fm6Qo="
    assert name in cli.raw("ls", "-z", "main").stdout.split(b"\0")


def test_output_has_no_colours_or_progress_without_a_terminal(cli: Cli) -> None:
    done = cli.raw("import")
    assert b"\x1b" not in done.stdout + done.stderr
    assert b"\x1b" not in cli.raw("log").stdout


def test_a_closed_pipe_is_quiet(cli: Cli) -> None:
    cli("import")
    done = subprocess.run(
        ["sh", "-c", f"{ATOLL} ls -R main --json | head -c 1"],
        cwd=cli.cwd,
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.stderr == b""


def test_each_document_names_its_schema(cli: Cli) -> None:
    cli("import")
    cli("fork", "main", "a")
    for words in (
        ["log"], ["show"], ["ls"], ["find"], ["stat", "main:a.txt"], ["grep", "one"], ["diff", "main", "a"],
        ["branch"], ["tag"], ["op", "log"], ["workspaces"], ["servers"], ["stats"], ["gc"], ["version"],
        ["import"], ["drop", "a"], ["undo"],
    ):  # fmt: skip
        document = cli.json(*words)
        assert next(iter(document)) == "schema"
        assert json.dumps(document).isascii()
