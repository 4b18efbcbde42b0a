"""`atoll cat`."""

from __future__ import annotations

import sys

import click

from atoll.cli import common

#: How much is in memory at once.
STEP = 8 << 20


@click.command("cat", **common.COMMAND)
@click.argument("targets", nargs=-1, required=True, metavar="COMMIT:PATH...")
@common.store_option
def command(targets: tuple[str, ...], store: str | None) -> None:
    """Print files of commits; of a symbolic link, its target.

    \b
    Examples:
      atoll cat main:README.md
      atoll cat try-1~1:src/a.py > a.py
    """
    from atoll.errors import Usage

    opened = common.open_store(store)
    for target in targets:
        reference, path = common.split_reference(target)
        if not path:
            raise Usage(f"'{target}' names no file; write COMMIT:PATH.")
        commit = opened.resolve(common.reference_or_here(opened, reference or None))
        entry = opened.stat(commit, path)
        at = 0
        while True:
            piece = opened.read(commit, path, at, STEP)
            sys.stdout.buffer.write(piece)
            at += len(piece)
            if entry.type != "file" or at >= entry.size or not piece:
                break
    sys.stdout.buffer.flush()
