"""`atoll log`."""

from __future__ import annotations

import click

from atoll.cli import common, output


@click.command("log", **common.COMMAND)
@click.argument("reference", required=False, metavar="[COMMIT]", shell_complete=common.REF)
@click.option("-n", "--limit", type=click.IntRange(min=1), help="At most this many.")
@click.option("--oneline", is_flag=True, help="One line for each.")
@common.store_option
@common.json_option
def command(
    reference: str | None, limit: int | None, oneline: bool, store: str | None, as_json: bool
) -> None:
    """List a commit and its ancestors, newest first.

    COMMIT is a branch, a tag, `main~3`, or a unique prefix of an id; inside of a workspace it may be left
    out, and is `main` elsewhere. With --json one document holds all.

    \b
    Examples:
      atoll log try-1
      atoll log main --oneline -n 10
    """
    opened = common.open_store(store)
    commits = list(opened.log(common.reference_or_here(opened, reference), limit))
    if as_json:
        output.print_json({"commits": [output.commit_json(commit) for commit in commits]})
        return
    for commit in commits:
        if oneline:
            print(f"{output.colour(commit.id[:12], 'yellow')} {commit.subject}")
            continue
        print(output.colour(f"commit {commit.id}", "yellow"))
        print(f"Author: {commit.author}")
        print(f"Date:   {commit.time:%Y-%m-%d %H:%M:%S %z}")
        run = commit.meta.get("run")
        if isinstance(run, dict) and "exit_code" in run:
            print(f"Exit:   {run['exit_code']}")
        print("".join(f"\n    {line}" for line in commit.message.splitlines()) + "\n")
