"""`atoll fork`."""

from __future__ import annotations

import click

from atoll.cli import common, output


@click.command("fork", **common.COMMAND)
@click.argument("base", shell_complete=common.REF)
@click.argument("name")
@common.store_option
@common.json_option
def command(base: str, name: str, store: str | None, as_json: bool) -> None:
    """Make branch NAME on the commit that BASE means. It costs the same whatever the tree's size.

    \b
    Examples:
      atoll fork main try-1
      atoll fork main~3 before-upgrade
    """
    branch = common.open_store(store).fork(base, name)
    if as_json:
        output.print_json({"branch": name, "commit": branch.commit})
    else:
        print(f"{name} {branch.commit[:12]}")
