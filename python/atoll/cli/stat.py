"""`atoll stat`."""

from __future__ import annotations

import base64

import click

from atoll.cli import common, output


@click.command("stat", **common.COMMAND)
@click.argument("target", metavar="COMMIT[:PATH]", shell_complete=common.REF)
@common.store_option
@common.json_option
def command(target: str, store: str | None, as_json: bool) -> None:
    """Show everything that a commit holds about a path: kind, mode, owner, times, link target, attributes.

    \b
    Examples:
      atoll stat main:setup.py
      atoll stat --json main:bin/run
    """
    from atoll import _native

    opened = common.open_store(store)
    reference, path = common.split_reference(target)
    commit = opened.resolve(common.reference_or_here(opened, reference or None))
    entry = opened.stat(commit, path)
    link = opened.read(commit, path) if entry.type == "symlink" else None
    attributes = _native.xattrs(opened.native, commit, entry.path_bytes)
    document = output.entry_json(entry)
    if link is not None:
        document |= output.path_json(link, "target")
    document["xattrs"] = [
        {**output.path_json(name, "name"), "value_b64": base64.b64encode(value).decode("ascii")}
        for name, value in attributes.items()
    ]
    if as_json:
        output.print_json({"commit": commit, **document})
        return
    for key in (
        "path",
        "type",
        "mode",
        "uid",
        "gid",
        "size",
        "nlink",
        "ino",
        "mtime",
        "ctime",
        "btime",
        "target",
    ):
        if key in document:
            print(f"{key:7} {document[key] if key != 'path' else output.shown(entry.path_bytes) or '/'}")
    for name, value in attributes.items():
        print(f"xattr   {output.shown(name)} ({len(value)} bytes)")
