"""`atoll lab report`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from atoll.cli import common, output

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from atoll.lab.record import Record


@click.command("report", **common.COMMAND)
@click.argument("records", nargs=-1, required=True, type=click.Path(), metavar="RECORD...")
@click.option("--html", type=click.Path(), help="Write one HTML file that needs nothing else.")
@click.option("--markdown", type=click.Path(), help="Write Markdown.")
@click.option(
    "--to",
    "others",
    multiple=True,
    metavar="FORM=FILE",
    help="Write another form, as a package has registered it; may be repeated.",
)
@click.option("--reference", metavar="NAME", help="The target to compare with. [each suite's first]")
@common.json_option
def command(
    records: tuple[str, ...],
    html: str | None,
    markdown: str | None,
    others: tuple[str, ...],
    reference: str | None,
    as_json: bool,
) -> None:
    """Make reports of records; without a file to write, print the tables.

    Several records stand beside each other, suite by suite, and are never pooled: only within one run did
    the targets take turns. `atoll lab compare` compares two runs.

    \b
    Examples:
      atoll lab report runs/fs-bench-20261201-100000.json
      atoll lab report runs/*.json --html report.html --markdown report.md
      atoll lab report runs/*.json --reference tmpfs --to text=report.txt
    """
    from atoll.errors import Usage
    from atoll.lab.record import load

    wanted: dict[str, str | None] = {"html": html, "markdown": markdown}
    for each in others:
        form, equals, file = each.partition("=")
        if not equals or not file:
            raise Usage(f"'{each}' is not FORM=FILE; write it as html=report.html.")
        wanted[form] = file
    loaded = [load(Path(path)) for path in records]
    written = write(loaded, wanted, reference)
    if as_json:
        output.print_json({"records": list(records), "written": written})
    elif written:
        for form, path in written.items():
            common.note(f"The {form} report is {path}.")
    else:
        from atoll.lab import registry

        print(registry.report("text").render(loaded, reference), end="")


def write(
    records: Sequence[Record], wanted: Mapping[str, str | None], reference: str | None = None
) -> dict[str, str]:
    """Writes each form that has a file; returns the paths. All are made before any is written."""
    from atoll.lab import registry

    files = {form: Path(file) for form, file in wanted.items() if file is not None}
    made = {form: registry.report(form).render(records, reference) for form in files}
    for form, text in made.items():
        files[form].parent.mkdir(parents=True, exist_ok=True)
        files[form].write_text(text, encoding="utf-8")
    return {form: os.fspath(path) for form, path in files.items()}
