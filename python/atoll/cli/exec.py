"""`atoll exec`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from atoll.cli.common import COMMAND, WORKSPACE, json_option, open_store, store_option, workspace_of
from atoll.cli.run import (
    CommandLine,
    as_failure,
    command_options,
    listener,
    options_of,
    patience,
    report,
    standing_in,
)
from atoll.errors import NotFound

if TYPE_CHECKING:
    from atoll.store import Store

__all__ = ["command"]


@click.command("exec", cls=CommandLine, **COMMAND)
@click.argument("workspace", required=False, shell_complete=WORKSPACE)
@click.option(
    "--commit", "do_commit", is_flag=True, help="Commit afterwards, with the outcome, also of a failure."
)
@click.option("-m", "--message", help="The commit's message (implies --commit).")
@click.option("--no-record-command", is_flag=True, help="Record no command line with the commit.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing on stderr but errors.")
@command_options
@store_option
@json_option
@click.pass_context
def command(
    ctx: click.Context, /, workspace: str | None, store: str | None, as_json: bool, quiet: bool, **values: Any
) -> int:
    """Run COMMAND in an existing workspace, named by its branch or a path in it.

    The command sees it at the imported folder's path, as with `run`. Nothing is committed unless asked for. A
    branch that is not mounted is mounted for the command and unmounted afterwards; what it changed is kept
    for the next mount. Exit codes as with `run`. With --json the outcome is one line on stderr.

    \b
    Examples:
      atoll exec try-1 -- pytest -q
      atoll exec try-1 -m "deps installed" -- npm ci
      cd "$(atoll path -w try-1)" && atoll exec -- ./configure
    """
    program = ctx.meta["atoll.program"]
    notes, say = listener(quiet, as_json)
    with as_failure():
        from atoll.run.command import Options
        from atoll.run.existing import run_in

        options = Options(**options_of(values), stands_in=standing_in(), forward_signals=True)
        opened, branch = _find(store, workspace)
        result, commit = run_in(
            opened,
            branch,
            program,
            options,
            commit=values["do_commit"] or values["message"] is not None,
            message=values["message"],
            record_command=not values["no_record_command"],
            note=say,
            patience=patience(),
        )
    report(result, {"branch": branch, "commit": commit, "notes": notes}, as_json)
    return result.returncode


def _find(store: str | None, name: str | None) -> tuple[Store, str]:
    """The store and the branch that an argument means; the branch need not be mounted."""
    try:
        found = workspace_of(store, name)
    except NotFound:
        opened = open_store(store)
        if name is None or opened.native.get_ref("branch", name) is None:
            raise
        return opened, name
    return found.store, found.branch
