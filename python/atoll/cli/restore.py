"""`atoll restore`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click

from atoll.cli import common, output

if TYPE_CHECKING:
    from atoll.results import CommitResult


@click.command("restore", **common.COMMAND)
@click.option(
    "--from", "source", required=True, metavar="COMMIT", shell_complete=common.REF, help="What to bring back."
)
@click.option(
    "-w", "--workspace", metavar="WS", shell_complete=common.WORKSPACE, help="The workspace; default: here."
)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@common.store_option
@common.json_option
def command(
    source: str, workspace: str | None, paths: tuple[str, ...], store: str | None, as_json: bool
) -> None:
    """Bring a workspace, or only PATHs of it, to what a commit has: files, modes, links, deletions.

    The present state is committed first and the result after, so `atoll undo` takes a restore back. PATHs
    count from the workspace's top. A branch that is not mounted is mounted meanwhile.

    \b
    Examples:
      atoll restore --from try-1~2
      atoll restore --from main -w try-1 src/a.py docs
    """
    from atoll import restoring
    from atoll.errors import NotFound

    restore: Callable[..., CommitResult]
    try:
        found = common.workspace_of(store, workspace)
        branch, restore = found.branch, found.restore
    except NotFound:
        opened = common.open_store(store)
        if workspace is None or not any(ref.name == workspace for ref in opened.branches()):
            raise
        branch, restore = workspace, partial(restoring.restore_branch, opened, workspace)
    with common.progress("restore") as progress:
        result = restore(source, paths, progress=progress)
    if as_json:
        output.print_json({"branch": branch, "commit": result.commit, "changed": result.changed})
    elif result.changed:
        print(f"{branch} {result.commit[:12]}: restored from {source}")
    else:
        print(f"{branch} {result.commit[:12]}: already as in {source}")
