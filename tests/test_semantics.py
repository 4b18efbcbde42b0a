"""Runs the examples of docs/SEMANTICS.md with the installed command.

A section (`## ...`) is one test with a folder, stores and a shell of its own; its ```console blocks run in
order. In a block, `$ ` starts a command (`> ` goes on with it) and what follows is its output, stdout and
stderr together: `...` alone on a line stands for any lines, `[..]` for any text in a line, `[exit N]` at
the end for an exit code other than 0. A section whose first word is `*overlay*` or `*fuse*` needs that
driver.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from atoll import drivers
from atoll.drivers.base import MountOptions
from scripts.leftovers import clean_up

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "SEMANTICS.md"
END = "--end-of-command--"


@dataclass
class Step:
    """A command with what it must print and return."""

    line: int
    command: str
    output: list[str] = field(default_factory=list)
    exit_code: int = 0


@dataclass
class Section:
    """A heading with the steps below it."""

    title: str
    driver: str | None = None
    """What its examples need."""
    steps: list[Step] = field(default_factory=list)


def parse(text: str) -> list[Section]:
    """The sections of the document that hold examples."""
    sections: list[Section] = []
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("## "):
            sections.append(Section(line[3:]))
        elif sections and (found := re.match(r"\*(overlay|fuse)\*", line)):
            sections[-1].driver = found[1]
        elif line.startswith("```"):
            inside = line == "```console"
        elif inside and line.startswith("$ "):
            sections[-1].steps.append(Step(number, line[2:]))
        elif inside and line.startswith("> "):
            sections[-1].steps[-1].command += "\n" + line[2:]
        elif inside and (match := re.fullmatch(r"\[exit (\d+)\]", line)):
            sections[-1].steps[-1].exit_code = int(match[1])
        elif inside:
            sections[-1].steps[-1].output.append(line)
    return [section for section in sections if section.steps]


def pattern(lines: list[str]) -> re.Pattern[str]:
    """What the whole output must match."""
    parts = [
        r"(?:[^\n]*\n)*?" if line == "..." else re.escape(line).replace(r"\[\.\.\]", r"[^\n]*") + r"\n"
        for line in lines
    ]
    return re.compile("".join(parts))


class Shell:
    """A bash that keeps its folder and variables from one command to the next."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=folder,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="surrogateescape",
        )

    def run(self, command: str) -> tuple[str, int]:
        """Output and exit code of a command."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{command}\nprintf '\\n%s %d\\n' {END} $?\n")
        self.process.stdin.flush()
        lines: list[str] = []
        for line in self.process.stdout:
            if line.startswith(END):
                text = "".join(lines)[:-1]  # without the newline before the mark
                return text if not text or text.endswith("\n") else text + "\n", int(line.split()[1])
            lines.append(line)
        raise AssertionError(f"the shell ended in {command!r}: {''.join(lines)}")

    def close(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    place = tmp_path.resolve()
    env = {name: value for name, value in os.environ.items() if not name.startswith(("ATOLL_", "GIT_"))}
    env |= {
        "ATOLL_SERVER_IDLE": "1",
        "HOME": str(place / "home"),
        "LC_ALL": "C.UTF-8",
        "NO_COLOR": "1",
        "PATH": f"{Path(sys.executable).parent}:{env['PATH']}",
        "PS1": "",
        "XDG_DATA_HOME": str(place / "data"),
        "XDG_RUNTIME_DIR": str(place / "run"),
    }
    for folder in ("home", "data", "run", "app"):
        (place / folder).mkdir(mode=0o700)
    shell = Shell(place / "app", env)
    try:
        yield shell
    finally:
        shell.close()
        left = clean_up(str(place), 15.0)
    assert not left, f"the example left behind: {left}"


SECTIONS = parse(DOCUMENT.read_text()) if DOCUMENT.exists() else []


@pytest.mark.parametrize("section", SECTIONS, ids=[section.title for section in SECTIONS])
def test_example(section: Section, shell: Shell, tmp_path: Path) -> None:
    if section.driver is not None:
        reason = drivers.get(section.driver).unavailable(tmp_path, MountOptions())
        if reason is not None:
            pytest.skip(f"{section.driver}: {reason}")
    for step in section.steps:
        output, exit_code = shell.run(step.command)
        where = f"docs/SEMANTICS.md:{step.line}: $ {step.command}"
        assert exit_code == step.exit_code, f"{where}\nended with {exit_code}:\n{output}"
        expected = pattern(step.output)
        assert expected.fullmatch(output), f"{where}\nprinted:\n{output}\ninstead of:\n" + "\n".join(
            step.output
        )


def test_there_are_examples() -> None:
    assert len(SECTIONS) >= 10
