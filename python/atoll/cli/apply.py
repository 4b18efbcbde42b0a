"""`atoll apply`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from atoll.cli import common, output
from atoll.cli.status import print_changes

if TYPE_CHECKING:
    from atoll.results import ApplyResult


@click.command("apply", **common.COMMAND)
@click.argument("reference", metavar="BRANCH|COMMIT", shell_complete=common.REF)
@click.option(
    "--to", "target", metavar="DIR", type=click.Path(), help="The folder. Default: the one that was imported."
)
@click.option(
    "--base", metavar="COMMIT", shell_complete=common.REF, help="Apply what changed since this commit."
)
@click.option("--paths", multiple=True, metavar="PATH", help="Only this file or folder; may be repeated.")
@click.option("--all", "everything", is_flag=True, help="Also `.git` and git-ignored paths.")
@click.option(
    "--force",
    is_flag=True,
    help="Overwrite paths that changed in the folder; their state is committed first.",
)
@click.option("--dry-run", "-n", is_flag=True, help="Only list what would change.")
@common.store_option
@common.json_option
def command(
    reference: str,
    target: str | None,
    base: str | None,
    paths: tuple[str, ...],
    everything: bool,
    force: bool,
    dry_run: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Bring what a branch changed since it was forked into a real folder: new files, changes, deletions,
    modes, links.

    Paths that changed in the folder since are refused and listed, and nothing is written. An apply that was
    cut off is finished or taken back by running it again.

    \b
    Examples:
      atoll apply a1 --dry-run
      atoll apply a1
      atoll apply a1 --paths src --to ~/other/checkout
    """
    opened = common.open_store(store)
    with common.progress("apply") as progress:
        result = opened.apply(
            reference,
            target,
            base=base,
            paths=paths,
            all=everything,
            force=force,
            dry_run=dry_run,
            progress=progress,
        )
    if as_json:
        output.print_json(_document(result))
        return
    print_changes(result.changes)
    for path in result.conflicts if dry_run else ():
        common.note(
            f"{output.shown(os.fsencode(path))} changed in {result.folder} too; --force overwrites it."
        )
    hidden = [each for each in result.left_out if each.reason != "outside"]
    if hidden:
        common.note(
            f"{len(hidden)} changed paths in .git or git-ignored were left out; --all applies them too."
        )
    for path, what in result.lost[:20]:
        common.note(f"{output.shown(os.fsencode(path))}: its {what} could not be set here.")
    for path in result.kept_folders:
        common.note(f"{output.shown(os.fsencode(path))} holds files of its own and stays.")
    if result.kept_aside:
        common.note(f"What was in the way at the last moment is in {result.kept_aside}.")
    if result.saved and result.conflicts:
        common.note(f"What was overwritten is in commit {result.saved[:12]}; `atoll undo` brings it back.")


def _document(result: ApplyResult) -> dict[str, object]:
    return {
        **output.path_json(os.fsencode(result.folder), "folder"),
        "dry_run": result.dry_run,
        "changes": [output.change_json(change) for change in result.changes],
        "left_out": [
            {**output.path_json(os.fsencode(each.path)), "reason": each.reason} for each in result.left_out
        ],
        "conflicts": [output.path_json(os.fsencode(path)) for path in result.conflicts],
        "lost": [{**output.path_json(os.fsencode(path)), "what": what} for path, what in result.lost],
        "kept_folders": [output.path_json(os.fsencode(path)) for path in result.kept_folders],
        "kept_aside": result.kept_aside,
        "saved": result.saved,
        "commit": result.commit,
    }
