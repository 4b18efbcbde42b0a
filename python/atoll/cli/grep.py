"""`atoll grep`."""

from __future__ import annotations

import re
import sys

import click

from atoll.cli import common, output

#: Larger files are not searched; a person who looks for text means none of them.
LARGEST = 64 << 20


@click.command("grep", **common.COMMAND)
@click.argument("pattern")
@click.argument("target", required=False, metavar="[COMMIT[:PATH]]", shell_complete=common.REF)
@click.option("-i", "--ignore-case", is_flag=True, help="Case does not matter.")
@click.option("-F", "--fixed-strings", is_flag=True, help="PATTERN is text, no regular expression.")
@click.option(
    "-l", "--files-with-matches", "only_names", is_flag=True, help="Only the names of files that match."
)
@common.z_option
@common.store_option
@common.json_option
def command(
    pattern: str,
    target: str | None,
    ignore_case: bool,
    fixed_strings: bool,
    only_names: bool,
    null: bool,
    store: str | None,
    as_json: bool,
) -> int:
    """Search the files of a commit for a regular expression (Python's). Ends with 1 when nothing matches.

    \b
    Examples:
      atoll grep 'TODO|FIXME' main:src
      atoll grep -l -F 'import os' try-1
    """
    from atoll.errors import Usage

    try:
        wanted = re.compile(
            re.escape(pattern.encode()) if fixed_strings else pattern.encode(),
            re.IGNORECASE if ignore_case else 0,
        )
    except re.error as error:
        raise Usage(f"'{pattern}' is no regular expression: {error}; -F takes it as text.") from error
    opened = common.open_store(store)
    reference, path = common.split_reference(target or "")
    commit = opened.resolve(common.reference_or_here(opened, reference or None))
    found = []
    matched = False
    for entry in opened.ls(commit, path, recursive=True):
        if entry.type != "file" or not 0 < entry.size <= LARGEST:
            continue
        content = opened.read(commit, entry.path_bytes)
        binary = b"\0" in content[:8192]
        hits = [(at, line) for at, line in enumerate(content.split(b"\n"), 1) if wanted.search(line)]
        if not hits:
            continue
        matched = True
        if as_json:
            found += [
                {**output.path_json(entry.path_bytes), "line": at, "text": line.decode("utf-8", "replace")}
                for at, line in ([(hits[0][0], b"")] if binary else hits)
            ]
        elif only_names:
            output.print_names([entry.path_bytes], null)
        elif binary:
            print(f"{output.shown(entry.path_bytes)}: binary file matches")
        else:
            name = output.colour(output.shown(entry.path_bytes), "cyan").encode()
            sys.stdout.flush()
            for at, line in hits:
                sys.stdout.buffer.write(name + b":%d:" % at + line.rstrip(b"\r") + b"\n")
    if as_json:
        output.print_json({"commit": commit, "matches": found})
    return 0 if matched else 1
