"""`atoll lab calc`."""

from __future__ import annotations

import click

from atoll.cli import common, output


@click.command("calc", **common.COMMAND)
@click.option("--files", type=click.IntRange(min=1), required=True, help="Files that the job makes or reads.")
@click.option("--other", metavar="TIME", required=True, help="The job's time on the other system.")
@click.option("--local", metavar="TIME", help="The job's time on a local disk.")
@click.option("--rtt", metavar="TIME", help="One round trip to the other system.")
@common.json_option
def command(files: int, other: str, local: str | None, rtt: str | None, as_json: bool) -> None:
    """Work out what each file of a job waits for, from two times that somebody published.

    A time is written as 0.5ms, 200us, 12.4s or 2min; without a unit it is seconds.

    \b
    Examples:
      atoll lab calc --files 18602 --local 10.7 --other 12.4 --rtt 0.5ms
      atoll lab calc --files 18602 --other 161.6
    """
    from atoll.lab import calc, registry
    from atoll.lab.report.figures import duration, number

    made = calc.per_file(
        files,
        registry.seconds(other),
        None if local is None else registry.seconds(local),
        None if rtt is None else registry.seconds(rtt),
    )
    if as_json:
        output.print_json(
            {
                "files": files,
                "seconds_per_file": made.other,
                "local_seconds_per_file": made.local,
                "wait_per_file": made.wait,
                "round_trips_per_file": made.round_trips,
            }
        )
        return
    print(f"{duration(made.other)} a file")
    if made.local is not None and made.wait is not None:
        print(f"{duration(made.local)} a file on the local disk")
        print(f"{duration(made.wait)} waited for each file beyond that")
    if made.round_trips is not None:
        print(f"{number(made.round_trips)} round trips for each file")
