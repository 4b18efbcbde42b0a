"""`atoll commit`."""

from __future__ import annotations

import click

from atoll.cli import common, output


@click.command("commit", **common.COMMAND)
@click.argument("workspace", required=False, shell_complete=common.WORKSPACE)
@click.option("--message", "-m", default="", help="Why.")
@click.option(
    "--to", metavar="NEW", help="Commit to a new branch, forked where the workspace is, and stay on it."
)
@click.option("--meta", multiple=True, metavar="KEY=JSON", help="Free metadata; may be repeated.")
@click.option("--allow-empty", is_flag=True, help="Commit also when nothing changed.")
@common.store_option
@common.json_option
def command(
    workspace: str | None,
    message: str,
    to: str | None,
    meta: tuple[str, ...],
    allow_empty: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Make what WORKSPACE holds now a commit on its branch; it may be in use meanwhile.

    WORKSPACE is a branch or any path in the workspace, and may be left out inside of one. Returns when the
    commit would survive a power cut.

    \b
    Examples:
      atoll commit try-1 -m "deps installed"
      atoll commit --meta agent='"a1"'
      atoll commit try-1 --to try-1b          when the branch moved meanwhile
    """
    found = common.workspace_of(store, workspace)
    with common.progress("commit") as progress:
        result = found.commit(message, to=to, meta=_meta(meta), allow_empty=allow_empty, progress=progress)
    if as_json:
        output.print_json(
            {
                "branch": found.branch,
                "commit": result.commit,
                "changed": result.changed,
                "operation": result.operation,
                "stored_bytes": result.stored_bytes,
                "read_files": result.read_files,
                "read_bytes": result.read_bytes,
            }
        )
    elif result.changed:
        print(f"{found.branch} {result.commit[:12]}: store grew by {output.size(result.stored_bytes)}")
    else:
        print(f"{found.branch} {result.commit[:12]}: nothing changed")


def _meta(items: tuple[str, ...]) -> dict[str, object]:
    import json

    from atoll.errors import Usage

    meta: dict[str, object] = {}
    for item in items:
        key, sign, text = item.partition("=")
        if not sign or not key:
            raise Usage(f"'{item}' is no metadata; write KEY=JSON.")
        try:
            meta[key] = json.loads(text)
        except ValueError:
            meta[key] = text
    return meta
