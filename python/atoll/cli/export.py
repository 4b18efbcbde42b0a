"""`atoll export`."""

from __future__ import annotations

import os
import sys

import click

from atoll.cli import common, output


@click.command("export", **common.COMMAND)
@click.argument("target", metavar="COMMIT[:PATH]", shell_complete=common.REF)
@click.argument("directory", required=False, metavar="[DIR]", type=click.Path())
@click.option("--tar", is_flag=True, help="Write a tar archive (POSIX pax) to DIR, or to stdout.")
@click.option(
    "--force", is_flag=True, help="Write into a folder that is not empty; what is in the way is replaced."
)
@click.option("--durable", is_flag=True, help="Return when the folder would survive a power cut.")
@click.option("--verify", is_flag=True, help="Compare the written folder with the commit, byte for byte.")
@common.store_option
@common.json_option
def command(
    target: str,
    directory: str | None,
    tar: bool,
    force: bool,
    durable: bool,
    verify: bool,
    store: str | None,
    as_json: bool,
) -> int:
    """Write a commit, or a folder of it, to DIR, which must not exist or be empty; or as a tar archive.

    Modes, times, links, holes, extended attributes and (as root) owners and devices are written too; what
    could not be is said.

    \b
    Examples:
      atoll export a1 ./out
      atoll export main:docs ./docs --verify
      atoll export main~3 --tar > out.tar
    """
    from atoll.errors import Usage

    opened = common.open_store(store)
    reference, path = common.split_reference(target)
    commit = opened.resolve(common.reference_or_here(opened, reference or None))
    if tar:
        _tar(opened.native, commit, path, directory, as_json)
        return 0
    if directory is None:
        raise Usage("Name the folder to write to, or give --tar for an archive.")
    with common.progress("export") as progress:
        result = opened.export(
            commit, directory, path=path, into_existing=force, durable=durable, progress=progress
        )
    differing = _verify(opened.native, commit, path, directory) if verify else []
    if as_json:
        output.print_json(
            {
                "commit": commit,
                "files": result.files,
                "dirs": result.dirs,
                "bytes": result.bytes,
                "lost": [{**output.path_json(os.fsencode(each)), "what": what} for each, what in result.lost],
                "verified": verify and not differing,
                "differing": [{**output.path_json(each), "what": what} for each, what in differing],
            }
        )
        return 1 if differing else 0
    for each, what in result.lost[:20]:
        common.note(f"{output.shown(os.fsencode(each))}: its {what} could not be restored here.")
    if len(result.lost) > 20:
        common.note(f"{len(result.lost) - 20} more could not be restored whole; --json lists all.")
    for path_bytes, what in differing[:20]:
        common.note(f"{output.shown(path_bytes)} differs from the commit: {what}.")
    checked = ", verified" if verify and not differing else ""
    print(f"{result.files:,} files, {result.dirs:,} folders, {output.size(result.bytes)}{checked}")
    return 1 if differing else 0


def _verify(store: object, commit: str, path: str, directory: str) -> list[tuple[bytes, str]]:
    from atoll import _native
    from atoll.browsing import clean

    assert isinstance(store, _native.Store)
    root = os.geteuid() == 0
    return _native.compare_folder(
        store,
        commit,
        clean(path),
        os.path.abspath(os.path.expanduser(directory)),
        owner=root,
        mtime=True,
        limit=1000,
    )


def _tar(store: object, commit: str, path: str, directory: str | None, as_json: bool) -> None:
    from atoll import _native
    from atoll.browsing import clean
    from atoll.errors import Usage

    assert isinstance(store, _native.Store)
    if directory in (None, "-"):
        if sys.stdout.isatty():
            raise Usage("A terminal cannot show an archive; redirect stdout or name a file.")
        result = _native.export_tar(store, commit, clean(path), sys.stdout.fileno())
    else:
        assert directory is not None
        with open(os.path.expanduser(directory), "xb", buffering=0) as file:
            result = _native.export_tar(store, commit, clean(path), file.fileno())
    for each in result["skipped"][:20]:
        common.note(f"{output.shown(each)} is a socket, which an archive cannot hold; it was left out.")
    if as_json and directory not in (None, "-"):
        output.print_json({"commit": commit, "entries": result["entries"], "bytes": result["bytes"]})
