"""`atoll tag`."""

from __future__ import annotations

import os

import click

from atoll.cli import common, output
from atoll.cli.branch import print_one


@click.command("tag", **common.COMMAND)
@click.argument("name", required=False)
@click.argument("reference", required=False, metavar="[COMMIT]", shell_complete=common.REF)
@click.option("--delete", "-d", "delete", is_flag=True, help="Delete tag NAME.")
@common.z_option
@common.store_option
@common.json_option
def command(
    name: str | None, reference: str | None, delete: bool, null: bool, store: str | None, as_json: bool
) -> None:
    """List tags; or make NAME, a fixed name for a commit, or delete it.

    \b
    Examples:
      atoll tag
      atoll tag v1 main
      atoll tag --delete v1
    """
    from atoll.errors import Usage

    opened = common.open_store(store)
    if name is None:
        if delete:
            raise Usage("Name the tag.")
        refs = [ref for ref in opened.refs() if ref.kind == "tag"]
        if as_json:
            output.print_json({"tags": [output.ref_json(ref) for ref in refs]})
        elif null:
            output.print_names([os.fsencode(ref.name) for ref in refs], True)
        else:
            output.table(("TAG", "COMMIT"), [(ref.name, ref.commit[:12]) for ref in refs])
    elif delete:
        opened.untag(name)
        print_one({"deleted": name}, f"deleted {name}", as_json)
    else:
        ref = opened.tag(name, common.reference_or_here(opened, reference))
        print_one(output.ref_json(ref), f"{name} {ref.commit[:12]}", as_json)
