"""`atoll lab suites`."""

from __future__ import annotations

import textwrap

import click

from atoll.cli import common, output


@click.command("suites", **common.COMMAND)
@common.json_option
def command(as_json: bool) -> None:
    """List what can be measured: each suite with the work that it does.

    \b
    Examples:
      atoll lab suites
      atoll lab suites --json
    """
    from atoll.lab import registry

    found = [registry.suite(name) for name in registry.suites()]
    if as_json:
        output.print_json(
            {
                "suites": [
                    {"name": each.name, "title": each.title, "about": each.about, "version": each.version}
                    for each in found
                ]
            }
        )
        return
    for each in found:
        print(output.colour(f"{each.name:<15}", "bold") + each.title)
        for line in textwrap.wrap(each.about, 92):
            print(f"  {line}")
