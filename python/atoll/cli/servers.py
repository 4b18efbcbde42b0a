"""`atoll servers`."""

from __future__ import annotations

import click

from atoll.cli import common, output


@click.command("servers", **common.COMMAND)
@common.json_option
def command(as_json: bool) -> None:
    """List the processes that serve history mounts: one for each store that is in use, ended by itself when
    nothing uses it.

    \b
    Examples:
      atoll servers
      atoll servers --json      pid, supervisor_pid, transport, rss_bytes, requests by kind
    """
    from atoll import _native

    found = _native.servers()
    if as_json:
        output.print_json({"servers": found})
        return
    rows = [
        (
            str(each["pid"]),
            str(each["supervisor_pid"]),
            each["transport"],
            output.size(each["rss_bytes"]),
            f"{sum(each['requests'].values()):,}",
            each["store"],
        )
        for each in found
    ]
    output.table(("PID", "SUPERVISOR", "TRANSPORT", "MEMORY", "REQUESTS", "STORE"), rows)
