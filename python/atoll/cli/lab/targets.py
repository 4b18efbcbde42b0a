"""`atoll lab targets`."""

from __future__ import annotations

import click

from atoll.cli import common, output


@click.command("targets", **common.COMMAND)
@common.json_option
def command(as_json: bool) -> None:
    """List what can be measured here, and what is missing for the rest.

    A target is written as KIND, KIND:ARGUMENT or KIND:ARGUMENT,KEY=VALUE, with NAME= before it for a name
    of its own in the report; a folder is written with a slash.

    \b
    Examples:
      atoll lab targets
      atoll lab run fs-bench --target disk=./ --target btrfs=loop:btrfs
    """
    from atoll.lab import registry

    found = [(kind, each(kind, kind)) for kind, each in registry.target_kinds().items()]
    if as_json:
        output.print_json(
            {
                "targets": [
                    {
                        "kind": kind,
                        "title": each.title,
                        "syntax": each.syntax or kind,
                        "missing": each.missing(),
                        "versions": each.versions(),
                    }
                    for kind, each in found
                ]
            }
        )
        return
    for kind, each in found:
        missing = each.missing()
        mark = output.colour("ok  ", "green") if missing is None else output.colour("miss", "yellow")
        print(f"{mark}  {each.syntax or kind:<44}{each.title}")
        if missing is not None:
            print(f"      {missing}")
