"""`atoll version`."""

from __future__ import annotations

import click

from atoll.cli import common, output


@click.command("version", **common.COMMAND)
@common.json_option
def command(as_json: bool) -> None:
    """Print the version."""
    import platform

    from atoll import _native

    if as_json:
        output.print_json(
            {
                "version": _native.__version__,
                "python": platform.python_version(),
                "system": platform.system(),
                "kernel": platform.release(),
                "machine": platform.machine(),
            }
        )
    else:
        print(f"atoll {_native.__version__}")
