"""`atoll runs`."""

from __future__ import annotations

import shlex

import click

from atoll.cli import common, output

__all__ = ["command"]


@click.command("runs", **common.COMMAND)
@click.argument("branches", nargs=-1, shell_complete=common.BRANCH)
@click.option("-n", "--limit", type=click.IntRange(min=1), metavar="N", help="The newest N only.")
@common.store_option
@common.json_option
def command(branches: tuple[str, ...], limit: int | None, store: str | None, as_json: bool) -> None:
    """List what was run on BRANCHES (default: on all), newest first.

    Each line: branch, what it began at, exit code, how long it took, changed files and the bytes of new and
    changed ones, age, command.

    \b
    Examples:
      atoll runs
      atoll runs a1 a2 --json
    """
    opened = common.open_store(store)
    for name in branches:
        opened.ref(name)
    listed = list(opened.runs(branches, limit))
    if as_json:
        documents = [
            {
                "branch": each.branch,
                "base": each.base,
                "forked_from": each.run.get("forked_from"),
                "commit": each.commit.id,
                "time": each.commit.time.isoformat(),
                "time_ns": each.commit.time_ns,
                "command": each.run.get("command"),
                "exit_code": each.run["exit_code"],
                "timed_out": each.run["timed_out"],
                "signal": each.run.get("signal"),
                "duration_s": each.run["duration_s"],
                "cpu_s": each.run["cpu_s"],
                "peak_memory_bytes": each.run["peak_memory_bytes"],
                "files_changed": each.files_changed,
                "bytes_changed": each.bytes_changed,
            }
            for each in listed
        ]
        output.print_json({"runs": documents})
        return
    rows = []
    for each in listed:
        words = each.run.get("command")
        code = each.run["exit_code"]
        exit_text = "timeout" if each.run["timed_out"] else str(code)
        rows.append(
            (
                each.branch,
                _shorten(each.run.get("forked_from", each.base[:12]), 20),
                exit_text,
                _seconds(each.run["duration_s"]),
                str(each.files_changed),
                output.size(each.bytes_changed),
                output.age(each.commit.time_ns),
                _shorten(shlex.join(words)) if words is not None else "(not recorded)",
            )
        )
    output.table(("BRANCH", "BASE", "EXIT", "TIME", "FILES", "BYTES", "WHEN", "COMMAND"), rows)


def _seconds(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02} min"


def _shorten(line: str, limit: int = 60) -> str:
    line = " ".join(line.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
