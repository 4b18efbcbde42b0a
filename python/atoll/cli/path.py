"""`atoll path`."""

from __future__ import annotations

import os

import click

from atoll.cli import common, output


@click.command("path", **common.COMMAND)
@click.argument("target", required=False, metavar="[COMMIT[:PATH]]", shell_complete=common.REF)
@click.option(
    "--workspace",
    "-w",
    metavar="WS",
    shell_complete=common.WORKSPACE,
    help="The folder of a workspace instead.",
)
@common.store_option
@common.json_option
def command(target: str | None, workspace: str | None, store: str | None, as_json: bool) -> None:
    """Print where a commit can be read as a plain folder, mounting the store's history if need be.

    The folder is read-only and shows the commit for ever, also when its branch moves on. With -w, the
    writable folder of a workspace.

    \b
    Examples:
      ls "$(atoll path main)"
      diff -r "$(atoll path main:src)" "$(atoll path a1:src)"
      cd "$(atoll path -w try-1)"
    """
    from atoll import _native, helpers
    from atoll.browsing import clean

    if workspace is not None:
        where = os.fsencode(common.workspace_of(store, workspace).path)
    else:
        opened = common.open_store(store)
        reference, path = common.split_reference(target or "")
        commit = opened.resolve(common.reference_or_here(opened, reference or None))
        opened.stat(commit, path)
        where = os.fsencode(_native.history_path(opened.native, helpers.command(), commit))
        inside = clean(path)
        where = os.path.join(where, inside) if inside else where
    if as_json:
        output.print_json(output.path_json(where))
    else:
        output.print_names([where], False)
