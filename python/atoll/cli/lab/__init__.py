"""`atoll lab`: one file for each of its commands."""

from __future__ import annotations

import importlib

import click

from atoll.cli import common

__all__ = ["command"]

#: Each command of the lab with its line in `atoll lab --help`.
LAB_COMMANDS: dict[str, str] = {
    "suites": "List what can be measured.",
    "targets": "List what it can be measured on, and what is missing for the rest.",
    "run": "Measure: suites on targets, interleaved; writes a record.",
    "report": "Make HTML, Markdown or text of records.",
    "compare": "Compare two records; exit code 1 when something became slower.",
    "calc": "Work out the wait for each file from two published times.",
}


class _LabGroup(click.Group):
    """Imports a command's module when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(LAB_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in LAB_COMMANDS:
            return None
        found: click.Command = importlib.import_module(f"atoll.cli.lab.{cmd_name}").command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(LAB_COMMANDS.items()))


@click.group("lab", cls=_LabGroup, **common.COMMAND)
def command() -> None:
    """Measure any file system honestly: the same work on each, in one run, with every sample kept.

    Targets take turns in shuffled order; the clock stops when the work returned and again when it is
    durable; a failure is shown as a failure. docs/LAB.md has the rules and what each suite does.

    \b
    Examples:
      atoll lab targets
      atoll lab run fs-bench
      atoll lab run fs-bench --target tmpfs --target disk=./ --target atoll:overlay
    """
