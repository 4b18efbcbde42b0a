"""`atoll init`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from atoll.cli import common, output


@click.command("init", **common.COMMAND)
@common.store_option
@click.option(
    "--profile",
    type=click.Choice(["full", "normal", "off"]),
    default="full",
    show_default=True,
    help=(
        "When a commit returns: full, when it would survive a power cut; normal, when the system has it; off,"
        " at once."
    ),
)
@common.json_option
def command(store: str | None, profile: str, as_json: bool) -> None:
    """Make a store: in --store DIR or ATOLL_STORE, else the current folder's own, outside of the folder.

    `atoll import` does this by itself the first time.

    \b
    Examples:
      atoll init                        a store for this folder
      atoll init --store /srv/history   a store in this place
    """
    from atoll import registry
    from atoll.finding import create_store
    from atoll.places import default_store

    here = Path(os.path.realpath(os.curdir))
    named = store or os.environ.get("ATOLL_STORE")
    place = Path(os.path.abspath(os.path.expanduser(named))) if named else default_store(here)
    made = create_store(place, profile)
    if not named:
        registry.record("project", here, place)
    if as_json:
        output.print_json({"store": os.fspath(place), "id": made.id, "profile": profile})
    else:
        print(place)
