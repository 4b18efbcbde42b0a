"""`atoll lab calc`: the formula and its bad input."""

from __future__ import annotations

import pytest

from atoll.errors import Usage
from atoll.lab.calc import per_file
from tests.conftest import Cli


def test_the_wait_for_each_file_and_its_round_trips(cli: Cli) -> None:
    words = "lab calc --files 1000 --local 10 --other 12 --rtt 0.5ms".split()
    made = cli.json(*words)
    assert made["seconds_per_file"] == 0.012 and made["local_seconds_per_file"] == 0.01
    assert made["wait_per_file"] == pytest.approx(0.002)
    assert made["round_trips_per_file"] == pytest.approx(4)
    assert cli(*words).splitlines() == [
        "12.0 ms a file",
        "10.0 ms a file on the local disk",
        "2.00 ms waited for each file beyond that",
        "4.00 round trips for each file",
    ]


def test_without_a_local_time_there_is_no_wait(cli: Cli) -> None:
    made = cli.json("lab", "calc", "--files", "10", "--other", "2s")
    assert made["seconds_per_file"] == 0.2
    assert made["wait_per_file"] is None and made["round_trips_per_file"] is None


def test_a_system_quicker_than_the_disk_has_a_wait_below_zero() -> None:
    assert per_file(10, other=1.0, local=2.0, rtt=0.1).wait == pytest.approx(-0.1)


def test_bad_input(cli: Cli) -> None:
    assert "0.5ms" in cli.fails(2, "lab", "calc", "--files", "3", "--other", "soon")
    assert "--files" in cli.fails(2, "lab", "calc", "--files", "0", "--other", "1s")
    assert "--rtt" in cli.fails(
        2, "lab", "calc", "--files", "1", "--local", "1", "--other", "2", "--rtt", "0"
    )
    with pytest.raises(Usage):
        per_file(1, other=-1)
