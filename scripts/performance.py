"""`python -m scripts.performance`: docs/PERFORMANCE.md from the records of `make lab-full` and `make bench`.

The words are in docs/performance.md.j2; every number comes out of a record.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2

from atoll.lab.record import Record, load
from atoll.lab.report.figures import number
from atoll.lab.report.markdown import section
from atoll.lab.report.tables import suite_views
from atoll.lab.report.words import host_line, load_line
from benchmarks.__main__ import BENCHMARKS
from benchmarks.harness import Row, markdown
from scripts.bars import BARS, reach
from scripts.lab import PLANS, ROOT, Run

DOCS = ROOT / "docs"
#: Paths of the machine that measured say nothing to anybody else; those of the kernel do.
_PATH = re.compile(r"(?<![\w./])/(?!proc/|sys/|dev/)(?:[\w.+@-]+/)+(?=[\w.+@-])")


def lab_part(run: Run, record: Record) -> str:
    """A run of the lab: its suites, and how they were run."""
    views = suite_views([record], run.reference)
    parts = [section(view, level=3) for view in views]
    # What was run, not what the plan says: somebody may have measured less.
    when = f"{record.started[:10]}, atoll {record.lab}, {load_line(record)}"
    parts.append(f"`{shlex.join(record.command)}`, {when}.")
    return _PATH.sub("…/", "\n\n".join(parts))


def benchmark_part(name: str, record: Mapping[str, object]) -> str:
    """A benchmark of `benchmarks/`."""
    rows = [
        Row(
            row["name"],
            row["samples"],
            row["unit"],
            row["figure"],
            row["bar"],
            row["how"],
            row.get("notes", {}),
        )
        for row in record["rows"]  # type: ignore[attr-defined]
    ]
    samples = max(len(values) for row in rows for values in row.samples.values())
    load = record["host"]["load"][0]  # type: ignore[index]
    what = (BENCHMARKS[name].__doc__ or "").strip()
    how = f"`python -m benchmarks {name}`: up to {samples} samples each, load {load:.1f} at the end."
    return f"### {name}\n\n{what}\n{how}\n\n{markdown(rows)}".rstrip()


def page(plan: Sequence[Run], lab: Path, benchmarks: Path) -> str:
    """The whole page, from the records that are there."""
    records = {
        run.name: load(lab / f"{run.name}.json") for run in plan if (lab / f"{run.name}.json").exists()
    }
    measured = {
        name: json.loads((benchmarks / f"{name}.json").read_text())
        for name in BENCHMARKS
        if (benchmarks / f"{name}.json").exists()
    }
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(DOCS),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["number"] = number
    text = environment.get_template("performance.md.j2").render(
        hosts=list(dict.fromkeys(host_line(record) for record in records.values())),
        bars=[reach(bar, records) for bar in BARS],
        lab=[lab_part(run, records[run.name]) for run in plan if run.name in records],
        benchmarks=[benchmark_part(name, record) for name, record in measured.items()],
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def main() -> int:
    """Writes the page; exit code 1 when a record of the plan is missing."""
    parser = argparse.ArgumentParser(prog="python -m scripts.performance", description=__doc__)
    parser.add_argument("--plan", choices=PLANS, default="full", help="which runs the folder has (full)")
    parser.add_argument("--lab", type=Path, help="folder of the lab's records (runs/PLAN)")
    parser.add_argument("--benchmarks", type=Path, default=ROOT / "target" / "benchmarks")
    parser.add_argument("--out", type=Path, default=DOCS / "PERFORMANCE.md")
    args = parser.parse_args()
    lab = args.lab or ROOT / "runs" / args.plan
    args.out.write_text(page(PLANS[args.plan], lab, args.benchmarks))
    missing = [run.name for run in PLANS[args.plan] if not (lab / f"{run.name}.json").exists()]
    missing += [name for name in BENCHMARKS if not (args.benchmarks / f"{name}.json").exists()]
    if missing:
        print(f"performance: no record of {', '.join(missing)}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
