"""`atoll drop`."""

from __future__ import annotations

import click

from atoll.cli import common, output


@click.command("drop", **common.COMMAND)
@click.argument("patterns", nargs=-1, required=True, metavar="BRANCH...", shell_complete=common.BRANCH)
@click.option(
    "--except", "kept", multiple=True, metavar="BRANCH", help="Keep this one (or pattern); may be repeated."
)
@click.option("--dry-run", "-n", is_flag=True, help="Only list what would be dropped.")
@common.store_option
@common.json_option
def command(
    patterns: tuple[str, ...], kept: tuple[str, ...], dry_run: bool, store: str | None, as_json: bool
) -> None:
    """Throw branches away, by name or by pattern, and unmount their workspaces.

    Uncommitted changes are committed first, so `atoll undo` brings everything back; what nothing else needs
    is freed by `atoll gc` after 14 days.

    \b
    Examples:
      atoll drop try-1
      atoll drop 'a*' --except a1; atoll undo
    """
    from atoll.workspaces import match

    opened = common.open_store(store)
    if dry_run:
        names = match(opened, patterns, kept)
    else:
        names = opened.drop(*patterns, exclude=kept, note=common.note)
    if as_json:
        output.print_json({"dropped": names, "dry_run": dry_run})
    else:
        for name in names:
            print(name)
