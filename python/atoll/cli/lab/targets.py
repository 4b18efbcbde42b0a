"""`atoll lab targets`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from atoll.cli import common, output

if TYPE_CHECKING:
    from atoll.lab.model import Target


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

    kinds = registry.target_kinds()
    found = {
        kind: [each(kind, kind, argument) for argument in each.arguments or ("",)]
        for kind, each in kinds.items()
    }
    if as_json:
        output.print_json({"targets": [_document(each) for alike in found.values() for each in alike]})
        return
    for alike in found.values():
        for each in alike:
            missing = each.missing()
            mark = output.colour("ok  ", "green") if missing is None else output.colour("miss", "yellow")
            print(f"{mark}  {_syntax(each):<28}{each.title}")
            if missing is not None:
                print(f"{'':34}{missing}")
        for key, meaning in (alike[0].keys or {}).items():
            print(f"{'':8}{',' + key + '=':<26}{meaning}")


def _syntax(target: Target) -> str:
    return target.syntax or (f"{target.kind}:{target.argument}" if target.argument else target.kind)


def _document(target: Target) -> dict[str, object]:
    return {
        "kind": target.kind,
        "title": target.title,
        "syntax": _syntax(target),
        "settings": dict(target.keys or {}),
        "missing": target.missing(),
        "versions": target.versions(),
    }
