"""`python -m benchmarks.report [FOLDER]`: the records as one Markdown page, for docs/PERFORMANCE.md."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.__main__ import BENCHMARKS, ROOT
from benchmarks.harness import Row, markdown


def rows(record: dict[str, Any]) -> list[Row]:
    """The rows of a record as they were measured."""
    return [
        Row(
            row["name"],
            row["samples"],
            row["unit"],
            row["figure"],
            row["bar"],
            row["how"],
            row.get("notes", {}),
        )
        for row in record["rows"]
    ]


def page(folder: Path) -> str:
    """A section for each record that is there, in the order of the benchmarks."""
    parts = []
    for name, run in BENCHMARKS.items():
        path = folder / f"{name}.json"
        if not path.exists():
            continue
        record = json.loads(path.read_text())
        host = record["host"]
        samples = max(len(values) for row in record["rows"] for values in row["samples"].values())
        what = (run.__doc__ or "").strip()
        load = host["load"][0]
        where = f"`python -m benchmarks {name}`: up to {samples} samples each, load {load:.1f} at the end."
        parts.append(f"### {name}\n\n{what}\n{where}\n\n{markdown(rows(record))}")
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "target" / "benchmarks"))
