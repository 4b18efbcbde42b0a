"""`atoll doctor`."""

from __future__ import annotations

import subprocess
import sys

import click

from atoll.cli import common, output

__all__ = ["command"]

_MARKS = {"required": ("FAIL", "red"), "recommended": ("miss", "yellow"), "optional": ("-", "dim")}


@click.command("doctor", **common.COMMAND)
@click.option("--apply", "do_apply", is_flag=True, help="Run the fixes that are safe, and show each.")
@click.option("--store", metavar="DIR", help="Look at this store's place instead of the default one.")
@common.json_option
def command(do_apply: bool, store: str | None, as_json: bool) -> int:
    """Check what this machine offers, and show the command that mends what is missing.

    `FAIL`: atoll does not work without it (exit code 1). `miss`: the best driver or a promise needs it. `-`:
    optional.

    \b
    Examples:
      atoll doctor
      sudo atoll doctor --apply
      atoll doctor --json
    """
    from pathlib import Path

    from atoll.doctor import Machine, apply, examine

    machine = Machine(store=None if store is None else Path(store).expanduser().absolute())
    checks = examine(machine)
    applied = []
    if do_apply:
        for check, code in apply(checks, _run):
            applied.append({"name": check.name, "command": check.fix, "exit_code": code})
            print(f"{'ran' if code == 0 else 'failed'}: {check.fix}", file=sys.stderr)
        if not applied:
            print("Nothing that is missing can be mended safely by itself.", file=sys.stderr)
        checks = examine(machine)
    failing = [check for check in checks if not check.ok and check.level == "required"]
    if as_json:
        documents = [
            {
                "name": check.name,
                "level": check.level,
                "ok": check.ok,
                "detail": check.detail,
                "gives": check.gives,
                "fix": check.fix,
                "safe": check.safe,
            }
            for check in checks
        ]
        output.print_json({"ok": not failing, "checks": documents, "applied": applied})
        return 1 if failing else 0
    for check in checks:
        mark, style = ("ok", "green") if check.ok else _MARKS[check.level]
        print(f"{output.colour(mark.ljust(4), style)}  {check.name}: {check.detail}")
        if not check.ok:
            print(f"      for {check.gives}" + (f"; {check.fix}" if check.fix else ""))
    return 1 if failing else 0


def _run(line: str) -> int:
    return subprocess.run(["sh", "-c", line], stdout=sys.stderr, check=False).returncode
