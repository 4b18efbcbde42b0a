"""`python -m benchmarks NAME...`: measure, write JSON and Markdown, print the table."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import copyup, host, ingest, reads, workspaces
from benchmarks.harness import Options, Row, markdown, progress, write
from scripts.leftovers import clean_up

ROOT = Path(__file__).resolve().parents[1]

BENCHMARKS: dict[str, Callable[[Options], list[Row]]] = {
    "import100k": ingest.import100k,
    "commit100k": ingest.commit100k,
    "reimport": ingest.reimport,
    "second-commit": ingest.second_commit,
    "fork": workspaces.fork,
    "mount": workspaces.mount,
    "hundred": workspaces.hundred,
    "cold": reads.cold,
    "git-status": reads.git_status,
    "memory": reads.memory,
    "copyup": copyup.copyup,
}


def parse() -> argparse.Namespace:
    lines = [f"  {name:<16}{(run.__doc__ or '').strip()}" for name, run in BENCHMARKS.items()]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure atoll against the same work on a plain file system.",
        epilog="\n".join(["benchmarks:", *lines]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help="one of those below, or `all`")
    parser.add_argument("--runs", type=int, default=5, help="samples of each target (5)")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full number of files (1)")
    parser.add_argument(
        "--place", type=Path, help="folder on the disk to measure (default: the temporary folder)"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "target" / "benchmarks", help="where records go")
    return parser.parse_args()


def main() -> int:
    args = parse()
    names = list(BENCHMARKS) if args.names == ["all"] else args.names
    if unknown := [name for name in names if name not in BENCHMARKS]:
        print(f"benchmarks: there is none called {', '.join(unknown)}; see --help", file=sys.stderr)
        return 2
    place = Path(tempfile.mkdtemp(prefix="atoll-bench.", dir=args.place))
    # Both this process and the commands that it starts keep to stores and mounts of their own.
    for folder in ("data", "config"):
        os.environ[f"XDG_{folder.upper()}_HOME"] = str(place / folder)
    os.environ["XDG_RUNTIME_DIR"] = str(place / "run")
    (place / "run").mkdir(mode=0o700)
    os.environ["ATOLL_SERVER_IDLE"] = "1"  # a fresh mount has to wait for the server before it to end
    for name in ("ATOLL_STORE", "ATOLL_WORKSPACE", "ATOLL_BRANCH", "ATOLL_BASE"):
        os.environ.pop(name, None)
    command = Path(sys.executable).parent / "atoll"
    options = Options(args.runs, place, command, dict(os.environ), args.scale)
    held = True
    try:
        for name in names:
            progress(f"== {name}")
            rows = BENCHMARKS[name](options)
            path = write(name, rows, host.describe(place, command), args.out)
            print(f"\n{name} ({path})\n\n{markdown(rows)}", flush=True)
            held = held and all(row.holds is not False for row in rows)
    finally:
        for line in clean_up(str(place), 15.0):
            held = False
            print(f"benchmarks: left behind: {line}", file=sys.stderr)
        shutil.rmtree(place, ignore_errors=True)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
