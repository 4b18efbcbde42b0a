"""`atoll ls`."""

from __future__ import annotations

from datetime import datetime

import click

from atoll.cli import common, output

_SIGNS = {"file": "-", "dir": "d", "symlink": "l", "fifo": "p", "socket": "s", "char": "c", "block": "b"}


@click.command("ls", **common.COMMAND)
@click.argument("target", required=False, metavar="[COMMIT[:PATH]]", shell_complete=common.REF)
@click.option("--long", "-l", "long", is_flag=True, help="Mode, owner, size and time too.")
@click.option("--recursive", "-R", is_flag=True, help="Everything below.")
@common.z_option
@common.store_option
@common.json_option
def command(
    target: str | None, long: bool, recursive: bool, null: bool, store: str | None, as_json: bool
) -> None:
    """List a folder of a commit. Nothing needs to be mounted.

    \b
    Examples:
      atoll ls main
      atoll ls -l main~2:src
      atoll ls -R -z main | xargs -0 ...
    """
    opened = common.open_store(store)
    reference, path = common.split_reference(target or "")
    entries = opened.ls(common.reference_or_here(opened, reference or None), path, recursive=recursive)
    if as_json:
        output.print_json({"entries": [output.entry_json(entry) for entry in entries]})
    elif long:
        for entry in entries:
            print(
                f"{_SIGNS[entry.type]}{_permissions(entry.mode)} {entry.nlink:>3} {entry.uid:>5}"
                f" {entry.gid:>5} {entry.size:>12}"
                f" {datetime.fromtimestamp(entry.mtime_ns / 1e9):%Y-%m-%d %H:%M}"
                f" {output.shown(entry.path_bytes if recursive else entry.path_bytes.rsplit(b'/', 1)[-1])}"
            )
    else:
        names = (entry.path_bytes if recursive else entry.path_bytes.rsplit(b"/", 1)[-1] for entry in entries)
        output.print_names(names, null)


def _permissions(mode: int) -> str:
    import stat

    # filemode wants a type too; a regular file's first character is cut off again.
    return stat.filemode(stat.S_IFREG | mode)[1:]
