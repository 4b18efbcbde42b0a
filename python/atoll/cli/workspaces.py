"""`atoll workspaces`."""

from __future__ import annotations

import os

import click

from atoll.cli import common, output
from atoll.cli.mount import document


@click.command("workspaces", **common.COMMAND)
@common.z_option
@common.store_option
@common.json_option
def command(null: bool, store: str | None, as_json: bool) -> None:
    """List workspaces: mounted ones, and unmounted ones with uncommitted changes.

    \b
    Examples:
      atoll workspaces
      atoll workspaces -z           their branches, for scripts
    """
    found = common.open_store(store).workspaces()
    if as_json:
        output.print_json({"workspaces": [document(workspace) for workspace in found]})
    elif null:
        output.print_names([os.fsencode(workspace.branch) for workspace in found], True)
    else:
        rows = [
            (
                workspace.branch,
                workspace.driver,
                "mounted" if workspace.mounted else "kept",
                workspace.head[:12],
                output.shown(os.fsencode(workspace._record["mountpoint"] or "")),
            )
            for workspace in found
        ]
        output.table(("BRANCH", "DRIVER", "STATE", "COMMIT", "PATH"), rows)
