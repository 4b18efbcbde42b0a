"""`atoll branch`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from atoll.cli import common, output

if TYPE_CHECKING:
    from atoll.history import Ref


@click.command("branch", **common.COMMAND)
@click.argument("name", required=False, shell_complete=common.BRANCH)
@click.argument("reference", required=False, metavar="[COMMIT|NEW]", shell_complete=common.REF)
@click.option("--rename", "-m", "rename", is_flag=True, help="Give branch NAME the name that follows.")
@click.option("--delete", "-d", "delete", is_flag=True, help="Delete branch NAME, as `atoll drop` does.")
@common.z_option
@common.store_option
@common.json_option
def command(
    name: str | None,
    reference: str | None,
    rename: bool,
    delete: bool,
    null: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """List branches; or make NAME on a commit, rename or delete it.

    \b
    Examples:
      atoll branch
      atoll branch keep main~2        the same as `atoll fork main~2 keep`
      atoll branch --rename try-1 done
      atoll branch --delete done
    """
    from atoll.errors import Usage

    opened = common.open_store(store)
    if name is None:
        if rename or delete:
            raise Usage("Name the branch.")
        _list(opened.branches(), {each.branch: each.path for each in opened.workspaces()}, null, as_json)
        return
    if delete and (rename or reference is not None):
        raise Usage("--delete takes one branch and nothing else.")
    if delete:
        opened.drop(name, note=common.note)
        print_one({"deleted": name}, f"deleted {name}", as_json)
    elif rename:
        if reference is None:
            raise Usage(f"Name what '{name}' is to be called: `atoll branch --rename {name} NEW`.")
        branch = opened.rename_branch(name, reference)
        print_one({"branch": branch.name, "commit": branch.commit}, f"{name} is now {reference}", as_json)
    else:
        if reference is None:
            ref = opened.ref(name)
            print_one(output.ref_json(ref), f"{ref.name} {ref.commit[:12]}", as_json)
            return
        branch = opened.fork(reference, name)
        print_one({"branch": name, "commit": branch.commit}, f"{name} {branch.commit[:12]}", as_json)


def print_one(document: Mapping[str, object], line: str, as_json: bool) -> None:
    """One result."""
    if as_json:
        output.print_json(document)
    else:
        print(line)


def _list(refs: list[Ref], mounted: dict[str, Path], null: bool, as_json: bool) -> None:
    if as_json:
        output.print_json({"branches": [output.ref_json(ref) for ref in refs]})
    elif null:
        output.print_names([os.fsencode(ref.name) for ref in refs], True)
    else:
        rows = [(ref.name, ref.commit[:12], str(mounted.get(ref.name, "")), ref.folder or "") for ref in refs]
        output.table(("BRANCH", "COMMIT", "WORKSPACE", "IMPORTED FROM"), rows)
