"""`atoll lab run`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from atoll.cli import common, output

if TYPE_CHECKING:
    from atoll.lab.model import Target


@click.command("run", **common.COMMAND)
@click.argument("suites", nargs=-1, required=True, metavar="SUITE...")
@click.option(
    "--target",
    "-t",
    "targets",
    multiple=True,
    metavar="[NAME=]TARGET",
    help="What to measure; may be repeated. Default: this disk, and atoll's best driver here.",
)
@click.option("--reps", type=click.IntRange(min=1), default=5, show_default=True, help="Samples of each row.")
@click.option("--seed", type=int, default=1, show_default=True, help="Orders the targets, makes the data.")
@click.option("--quick", is_flag=True, help="Small work, to see that it runs; the figures mean nothing.")
@click.option("--scale", type=click.FloatRange(min=0.001), default=1.0, help="Share of the full work. [1]")
@click.option("--trace", is_flag=True, help="calls: count durability calls too, in runs of their own.")
@click.option("--repo", metavar="DIR", help="history: the git repository whose snapshots are taken.")
@click.option("--snapshots", type=click.IntRange(min=1), default=157, show_default=True, help="history: N.")
@click.option("--rtt", metavar="TIME", help="One round trip (0.5ms), for the figures derived from it.")
@click.option("--place", type=click.Path(), default=".", help="Folder on a disk for the lab's own files. [.]")
@click.option("--out", type=click.Path(), help="The record. [runs/SUITES-TIME.json]")
@click.option("--html", type=click.Path(), help="Write an HTML report too.")
@click.option("--markdown", type=click.Path(), help="Write a Markdown report too.")
@common.json_option
def command(
    suites: tuple[str, ...],
    targets: tuple[str, ...],
    reps: int,
    seed: int,
    quick: bool,
    scale: float,
    trace: bool,
    repo: str | None,
    snapshots: int,
    rtt: str | None,
    place: str,
    out: str | None,
    html: str | None,
    markdown: str | None,
    as_json: bool,
) -> int:
    """Measure SUITES on targets; write a record with every sample, and print a table.

    Exit code 0: no row failed; 1: rows failed (the record and the table say which), or nothing could be
    measured; 130: ended by Ctrl-C (the record holds what was there, and says that it is partial).

    \b
    Examples:
      atoll lab run fs-bench
      atoll lab run fs-bench -t tmpfs -t disk=./ -t atoll:overlay --reps 5
      atoll lab run smallfile mdtest -t overlay -t atoll:overlay --quick
    """
    from datetime import UTC, datetime

    from atoll.cli.lab.report import write
    from atoll.errors import Unsupported
    from atoll.lab import registry, runner
    from atoll.lab.model import Options

    chosen = [registry.suite(name) for name in dict.fromkeys(suites)]
    reports = {"html": html, "markdown": markdown}
    for form in reports:
        if reports[form] and (sentence := registry.report(form).missing()):
            raise Unsupported(sentence)
    options = Options(
        reps=reps,
        seed=seed,
        quick=quick,
        scale=scale,
        trace=trace,
        repo=None if repo is None else os.path.abspath(repo),
        snapshots=snapshots,
        rtt=None if rtt is None else registry.seconds(rtt),
    )
    # A suite with contenders of its own needs none of ours.
    usual = _usual_targets() if any(suite.contenders(options) is None for suite in chosen) else []
    made: list[Target] = [registry.parse_target(text) for text in targets or usual]
    where = Path(place).expanduser().absolute()
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    path = Path(out) if out else Path("runs") / f"{'+'.join(suites)}-{stamp}.json"
    with _Drawn() as drawn:
        record = runner.run(
            chosen, made, options, place=where, out=path, command=["atoll", *sys.argv[1:]], progress=drawn
        )
    # After the record: whatever a report lacks, the figures are kept.
    written = write([record], reports)
    failed = any(row.failures for suite in record.suites for row in suite.rows)
    if as_json:
        output.print_json(_document(record, path))
    else:
        print(registry.report("text").render([record]), end="")
        common.note(f"The record is {path}.")
    for form, file in written.items():
        common.note(f"The {form} report is {file}.")
    if record.partial:
        return 130
    if not any(suite.outcomes or any(row.samples for row in suite.rows) for suite in record.suites):
        common.note("Nothing could be measured; the record says why.")
        return 1
    return 1 if failed else 0


def _document(record: Any, path: Path) -> dict[str, Any]:
    import msgspec

    return {"path": os.fspath(path), "record": msgspec.to_builtins(record)}


def _usual_targets() -> list[str]:
    """This disk, and atoll's best driver here."""
    from atoll.lab.registry import parse_target

    best = next(each for each in ("atoll:overlay", "atoll:copy") if parse_target(each).missing() is None)
    return ["disk=./", best]


class _Drawn:
    """What is done just now: a line that is drawn again on a terminal, else a line now and then."""

    def __init__(self) -> None:
        self._status: Any = None
        self._last = ""

    def __enter__(self) -> _Drawn:
        if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            from rich.console import Console
            from rich.status import Status

            self._status = Status("", console=Console(stderr=True))
            self._status.start()
        return self

    def __call__(self, line: str) -> None:
        if self._status is not None:
            self._status.update(line)
            return
        # Without a terminal, one line for each scenario.
        head = ",".join(line.split(",")[:1])
        if head != self._last:
            self._last = head
            common.note(head)

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()
