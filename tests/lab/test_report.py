"""Reports: what the tables say of records that hold everything, in each form."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import pytest

from atoll.errors import Unsupported, Usage
from atoll.lab import registry
from atoll.lab.record import Sample, save
from atoll.lab.report.figures import duration, number, scale_of
from atoll.lab.report.tables import suite_views
from atoll.lab.report.words import leaders, says, tally
from tests.conftest import Cli
from tests.lab import made
from tests.lab.packages import install


def test_ratios_are_costs_by_the_clock_that_both_sides_have() -> None:
    bench, fio, *_ = suite_views([made.full()])
    create = bench.rows[0]
    slow, tmpfs = create.cell("slow"), create.cell("tmpfs")
    assert slow.clock == "durable" and slow.quoted and slow.quoted.ratio
    assert slow.quoted.ratio.value == pytest.approx(1.1 * 1.2 / (0.12 * 3), rel=0.1)
    assert tmpfs.clock == "returned" and says(create, tmpfs) == "faster to return"
    assert says(create, slow) == "slower"
    # More is better: a quarter of the bandwidth costs four times as much.
    quoted = fio.rows[0].cell("slow").quoted
    assert quoted and quoted.ratio and quoted.ratio.value == pytest.approx(4, rel=0.1)
    assert quoted.verdict == "slower"


def test_what_failed_now_and_then_wins_nothing() -> None:
    bench = suite_views([made.full()])[0]
    cell = bench.rows[1].cell("slow")
    assert len(cell.failures) == 2 and len(cell.samples) == 3
    assert cell.quoted and cell.quoted.ratio and cell.quoted.verdict is None
    assert bench.headline is not None
    for lines in bench.headline.lines.values():
        assert next(line for line in lines if line.target == "slow").missing == ["write 64 MiB"]
    assert not any("slow" in sentence for sentence in leaders(bench))
    assert tally(bench, "slow") == {"slower": 2, "failed": 1}
    assert tally(bench, "absent") == {"not available": 3}


def test_times_per_file_come_from_the_rows_that_make_files() -> None:
    create = suite_views([made.full()])[0].rows[0]
    each = create.cell("slow").per_file
    assert each and each.wait and each.round_trips
    assert each.other == pytest.approx(1.1 * 1.2 / 1000, rel=0.1)
    assert each.round_trips == pytest.approx(each.wait / 0.0005)
    disk = create.cell("disk").per_file
    assert disk and disk.wait is None
    assert create.cell("absent").per_file is None


def test_summaries_and_leaders() -> None:
    record = made.full()
    bench = suite_views([record])[0]
    mean, total = bench.summaries
    returned = {line.target: line for line in mean.lines["returned"]}
    assert returned["tmpfs"].ratio and returned["tmpfs"].ratio.value == pytest.approx(
        ((0.017 / 0.12) * (0.028 / 0.03)) ** 0.5, rel=0.1
    )
    assert returned["disk"].ratio is None and not returned["disk"].missing
    disk = total.lines["durable"][0]
    assert disk.figure and disk.figure.value == pytest.approx(0.36 + 0.06 + 1.92, rel=0.1)
    (first,) = leaders(bench)[:1]
    assert "tmpfs took least" in first
    for row in record.suites[0].rows:
        row.samples["tmpfs"] = copy.deepcopy(row.samples["disk"])
    assert "no difference is shown between" in leaders(suite_views([record])[0])[0]


def test_another_reference_and_one_that_gave_nothing() -> None:
    record = made.full()
    assert suite_views([record], "tmpfs")[0].reference == "tmpfs"
    with pytest.raises(Usage, match="disk"):
        suite_views([record], "nobody")
    record.suites[0].targets = ["absent", "disk", "tmpfs", "slow"]
    assert suite_views([record])[0].reference == "disk"


def test_conformance_outcomes_name_what_only_the_target_fails() -> None:
    tests = suite_views([made.full()])[2]
    disk, slow = tests.outcomes
    assert disk.counts == {"pass": 2, "fail": 1, "skip": 1} and not disk.worse
    assert slow.worse == [("chmod::b", "fail: EPERM <b>")]


def test_a_count_that_the_work_determines_needs_one_sample() -> None:
    def verdict(ours: list[float], theirs: list[float], *, exact: bool = True) -> str:
        figures = {
            name: [Sample(rep=rep, order=0, value=value) for rep, value in enumerate(values)]
            for name, values in (("disk", theirs), ("ours", ours))
        }
        row = made.row("passed", figures, unit="tests", better="higher")
        row.durable, row.exact = False, exact
        view = suite_views([made.record([made.suite("fsx", [row], ["disk", "ours"])], ["disk", "ours"])])[0]
        return says(view.rows[0], view.rows[0].cell("ours"))

    assert verdict([343], [385]) == "worse" and verdict([385], [384]) == "better"
    assert verdict([385], [385]) == "no difference shown"
    assert verdict([343], [385], exact=False) == "too few samples"
    # Where samples differ, luck has a part in it all the same.
    assert verdict([343, 344], [385, 385]) == "too few samples"


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_each_form_shows_failures_and_what_is_missing_as_they_were(form: str) -> None:
    if form == "html":
        pytest.importorskip("jinja2")
        pytest.importorskip("vl_convert")
    text = registry.report(form).render([made.full()])
    for piece in (
        "create 1000 files", "slow", "juicefs is missing", "no package registry answers", "chmod::b",
        "bytes", "it no longer answers", "tmpfs took least",
    ):  # fmt: skip
        assert piece in text or (form == "text" and piece == "chmod::b"), piece


def test_markdown_cells_cannot_be_broken_out_of() -> None:
    text = registry.report("markdown").render([made.full()])
    assert "big has 4 bytes \\| &lt;instead> of 8" in text
    tables = [line for line in text.splitlines() if line.startswith("| ")]
    assert tables and all(line.endswith(" |") for line in tables)


def test_two_records_stand_beside_each_other_unpooled() -> None:
    first, second = made.full(), made.full()
    for row in second.suites[0].rows:
        for samples in row.samples.values():
            for sample in samples:
                sample.value *= 10
    one, *_, other = [view for view in suite_views([first, second]) if view.record.name == "fs-bench"]
    assert (one.number, other.number) == (1, 2)
    ratios = [view.rows[0].cell("tmpfs").clocks["returned"].ratio for view in (one, other)]
    assert ratios[0] and ratios[1] and ratios[0].value == pytest.approx(ratios[1].value)


def test_the_command_writes_what_it_is_told(cli: Cli, home: Path) -> None:
    save(made.full(), home / "a.json")
    out = cli("lab", "report", home / "a.json")
    assert "fs-bench of the tests" in out and "FAILED: big has 4 bytes" in out
    found = cli.json(
        "lab", "report", home / "a.json", "--markdown", home / "deep" / "a.md", "--to", f"text={home}/a.txt"
    )
    assert found["written"] == {"markdown": f"{home}/deep/a.md", "text": f"{home}/a.txt"}
    assert (home / "a.txt").read_text() == out
    assert "did you mean html" in cli.fails(2, "lab", "report", home / "a.json", "--to", "htm=x")
    assert "FORM=FILE" in cli.fails(2, "lab", "report", home / "a.json", "--to", "html")
    assert "disk" in cli.fails(2, "lab", "report", home / "a.json", "--reference", "nobody")
    assert "record" in cli.fails(2, "lab", "report", home / "none.json")


def test_figures_have_three_digits() -> None:
    assert [number(value) for value in (0, 0.000077, 0.0123, 0.5, 3.14159, 12.34, 123.4, 12345)] == [
        "0", "0.000077", "0.012", "0.50", "3.14", "12.3", "123", "12,345",
    ]  # fmt: skip
    assert [duration(value) for value in (0, 91.4e-6, 0.0005, 12.4)] == ["0 s", "91.4 µs", "500 µs", "12.4 s"]
    assert scale_of("s", [0.5, 3]).text(0.5) == "500 ms" and scale_of("s", [1.5, 100]).text(100) == "100 s"


def test_a_form_of_another_package(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        "from atoll.lab.report.base import Report\n\n\n"
        "class Count(Report):\n"
        "    name, suffix = 'count', '.txt'\n\n"
        "    def render(self, records, reference=None):\n"
        "        return f'{len(records)} records\\n'\n"
    )
    install(
        home / "site", "lab_count", source, {"atoll.lab.reports": ["count = lab_count:Count"]}, monkeypatch
    )
    save(made.full(), home / "a.json")
    Cli(home)("lab", "report", home / "a.json", "--to", f"count={home}/count.txt")
    assert (home / "count.txt").read_text() == "1 records\n"


def test_there_is_no_mean_of_times_and_sizes() -> None:
    record = made.full()
    size = {"disk": [Sample(rep=0, order=0, value=1e6)], "slow": [Sample(rep=0, order=1, value=2e6)]}
    extra = [made.row("write", {"disk": made.samples(1.0), "slow": made.samples(2.0)})]
    extra.append(made.row("size", size, unit="bytes"))
    view = suite_views([made.record([made.suite("history", extra, ["disk", "slow"])], ["disk", "slow"])])[0]
    assert view.headline is None
    said = leaders(view)
    assert said[0].startswith("write, best first: disk ") and "between" not in said[0]
    assert said[1] == "size, best first: disk 1.00 MB, slow 2.00 MB."
    assert said[2] == "With fewer than 4 samples each, no order is sure."
    assert leaders(suite_views([record])[2]) == [
        "slow: 1 pass, 2 fail, 1 skip; of the tests that disk passes it does not pass 1."
    ]


@pytest.mark.parametrize("name", ["jinja2", "vl_convert"])
def test_without_its_libraries_the_page_says_what_brings_them(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(Unsupported, match=r"pip install 'atoll\[lab\]'"):
        registry.report("html").render([made.full()])


def test_a_run_that_could_not_show_its_page_does_not_start(home: Path) -> None:
    # As if the library were not installed.
    code = "import sys; sys.modules['vl_convert'] = None\nfrom atoll.cli import main; main(sys.argv[1:])"
    words = [
        sys.executable,
        "-c",
        code,
        "lab",
        "run",
        "mdtest",
        "--quick",
        "-t",
        "disk=./",
        "--html",
        "it.html",
    ]
    done = subprocess.run(words, cwd=home, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 11 and "pip install 'atoll[lab]'" in done.stderr
    assert not (home / "runs").exists() and not (home / "it.html").exists()
