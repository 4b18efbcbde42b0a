"""`atoll find`."""

from __future__ import annotations

import fnmatch
import os
import re

import click

from atoll.cli import common, output

_TYPES = {"f": "file", "d": "dir", "l": "symlink", "p": "fifo", "s": "socket", "c": "char", "b": "block"}
_UNITS = {"": 1, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@click.command("find", **common.COMMAND)
@click.argument("target", required=False, metavar="[COMMIT[:PATH]]", shell_complete=common.REF)
@click.option("--name", metavar="PATTERN", help="The last part of the path matches (shell pattern).")
@click.option(
    "--path", "whole", metavar="PATTERN", help="The whole path matches (shell pattern; * crosses slashes)."
)
@click.option(
    "--type",
    "kind",
    type=click.Choice(list(_TYPES)),
    help="f file, d folder, l link, p pipe, s socket, c, b device.",
)
@click.option(
    "--size", "size", metavar="[+-]N[k|M|G]", help="Larger (+), smaller (-) or exactly this many bytes."
)
@common.z_option
@common.store_option
@common.json_option
def command(
    target: str | None,
    name: str | None,
    whole: str | None,
    kind: str | None,
    size: str | None,
    null: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Find paths in a commit; all of the conditions must hold.

    \b
    Examples:
      atoll find main --name '*.py' --type f
      atoll find try-1:node_modules --size +1M
    """
    opened = common.open_store(store)
    reference, path = common.split_reference(target or "")
    smallest, largest = _range(size)
    entries = [
        entry
        for entry in opened.ls(common.reference_or_here(opened, reference or None), path, recursive=True)
        if (name is None or fnmatch.fnmatchcase(entry.name, name))
        and (whole is None or fnmatch.fnmatchcase(os.fsdecode(entry.path_bytes), whole))
        and (kind is None or entry.type == _TYPES[kind])
        and smallest <= entry.size <= largest
    ]
    if as_json:
        output.print_json({"entries": [output.entry_json(entry) for entry in entries]})
    else:
        output.print_names((entry.path_bytes for entry in entries), null)


def _range(size: str | None) -> tuple[int, int]:
    from atoll.errors import Usage

    if size is None:
        return 0, 1 << 63
    found = re.fullmatch(r"([+-]?)(\d+)([kMG]?)", size)
    if found is None:
        raise Usage(f"'{size}' is no size; write for example +1M, -10k or 4096.")
    count = int(found[2]) * _UNITS[found[3]]
    return {"+": (count + 1, 1 << 63), "-": (0, count - 1), "": (count, count)}[found[1]]
