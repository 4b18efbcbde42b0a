"""A tour of atoll on real input: a Django source tree and a web application with its npm dependencies.

Brings the input from the package registries, imports it, works on three forks at the same time with real
commands, shows the differences, applies one result to the folder, exports another and compares it with its
mount, byte for byte. Everything stands in one temporary place, which is gone at the end (`--keep` leaves it).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))

from scripts.compare_folders import differences  # noqa: E402
from scripts.leftovers import clean_up  # noqa: E402

DJANGO = "django==5.2"
DOWNLOADS = ROOT / "target" / "quickstart"
WORK = {
    "deps": "cd app && npm ci --no-audit --no-fund --loglevel=error && npm run --silent build",
    "tests": (
        "python3 -m venv .venv && .venv/bin/pip install -q -e ./django"
        " && cd django/tests"
        " && ../../.venv/bin/python runtests.py --parallel 1 utils_tests.test_text 2>&1 | tail -4"
    ),
    "edit": (
        "grep -rl 'force_str' django/django | xargs sed -i 's/force_str/to_text/g'"
        " && mv django/docs/howto django/docs/guides && rm -r django/js_tests && chmod +x django/scripts/*.py"
        " && git -c advice.statusHints=false status --short | tail -3"
    ),
}


class TourError(Exception):
    """Something outside atoll is missing; the message is a full sentence for the person at the terminal."""


@dataclass
class Tour:
    """Runs the commands of the tour, shows them, and keeps what the closing table needs."""

    atoll: Path
    project: Path
    env: dict[str, str]
    rows: list[tuple[str, str, float]] = field(default_factory=list)

    def run(self, *args: str, quiet: bool = False, lines: int = 12, check: bool = True) -> str:
        """Run `atoll ARGS` in the project; returns what it wrote to stdout."""
        print(f"\n$ atoll {' '.join(args)}", flush=True)
        done = subprocess.run(
            [self.atoll, *args], cwd=self.project, env=self.env, capture_output=True, text=True, check=False
        )
        shown = [line for line in (done.stderr + ("" if quiet else done.stdout)).splitlines() if line]
        for line in shown[-lines:]:
            print(f"  {line}")
        if check and done.returncode != 0:
            raise TourError(f"`atoll {' '.join(args)}` ended with exit code {done.returncode}.")
        return done.stdout

    def timed(self, what: str, detail: str, began: float) -> None:
        """Note a row of the closing table."""
        self.rows.append((what, detail, time.perf_counter() - began))


def download_django() -> Path:
    """Django's source archive from the package registry, kept for the next time."""
    DOWNLOADS.mkdir(parents=True, exist_ok=True)
    for archive in DOWNLOADS.glob("[Dd]jango-*.tar.gz"):
        return archive
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run(
        [*command, "--no-binary", ":all:", "--dest", str(DOWNLOADS), DJANGO],
        capture_output=True,
        text=True,
        check=False,
    )
    for archive in DOWNLOADS.glob("[Dd]jango-*.tar.gz"):
        return archive
    reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    raise TourError(
        f"Django's source archive could not be downloaded ({reason}). The tour needs a package registry; "
        f"without a network, put Django-5.2.tar.gz into {DOWNLOADS} and have npm's packages in its cache."
    )


def make_project(project: Path, archive: Path) -> None:
    """A folder of some 7,000 files under git: Django's source beside a web application."""
    project.mkdir(parents=True)
    subprocess.run(["tar", "-xzf", str(archive), "-C", str(project), "--no-same-owner"], check=True)
    next(project.glob("[Dd]jango-*")).rename(project / "django")
    shutil.copytree(HERE / "quickstart_app", project / "app")
    (project / ".gitignore").write_text("node_modules\n.venv\n__pycache__\n*.pyc\ndist\n*.egg-info\n")
    git = ["git", "-c", "user.name=tour", "-c", "user.email=tour@localhost", "-c", "gc.auto=0"]
    for args in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "start"], ["repack", "-adq"]):
        subprocess.run([*git, *args], cwd=project, check=True, capture_output=True)


def count(folder: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(folder))


def work_on_forks(tour: Tour) -> None:
    """Three forks, three real jobs, at the same time."""

    def job(name: str) -> tuple[str, subprocess.CompletedProcess[str], float]:
        began = time.perf_counter()
        command = [str(tour.atoll), "run", "main", "--name", name, "--", "sh", "-c", WORK[name]]
        done = subprocess.run(
            command, cwd=tour.project, env=tour.env, capture_output=True, text=True, check=False
        )
        return name, done, time.perf_counter() - began

    for name, command in WORK.items():
        print(f"\n$ atoll run main --name {name} -- sh -c {command!r} &")
    with ThreadPoolExecutor(len(WORK)) as pool:
        for name, done, seconds in pool.map(job, WORK):
            for line in (done.stdout + done.stderr).splitlines()[-5:]:
                print(f"  [{name}] {line}")
            if done.returncode != 0:
                raise TourError(
                    f"The run {name} ended with exit code {done.returncode}; its output stands above."
                )
            tour.rows.append((f"run {name}", WORK[name].split(" && ")[0][:48], seconds))


def check_equal(
    what: str, left: Path, right: Path, leave_out: frozenset[str] = frozenset(), times: bool = True
) -> None:
    """Fail the tour unless two folders hold the same, byte for byte."""
    unequal = differences(left, right, leave_out, times)
    if unequal:
        raise TourError(f"{what}: these differ: {', '.join(unequal[:5])}.")
    print(f"  {what}: equal, byte for byte")


def tour_steps(tour: Tour, place: Path) -> None:
    """The tour proper, once the input stands in `tour.project`."""
    files = count(tour.project)
    began = time.perf_counter()
    tour.run("import")
    tour.timed("import", f"{files:,} files", began)
    began = time.perf_counter()
    tour.run("import")
    tour.timed("import again", "nothing changed", began)

    began = time.perf_counter()
    work_on_forks(tour)
    tour.timed("three runs together", "fork, mount, work, commit, unmount", began)
    tour.run("runs")

    tour.run("diff", "--stat", "main", "edit", lines=6)
    tour.run("diff", "--stat", "main", "deps", lines=3)

    began = time.perf_counter()
    tour.run("apply", "edit", "--dry-run", lines=4)
    tour.run("apply", "edit", lines=4)
    tour.timed("apply edit", "into the folder that was imported", began)

    began = time.perf_counter()
    tour.run("export", "deps", str(place / "out"), lines=3)
    tour.timed("export deps", f"{count(place / 'out'):,} files", began)

    began = time.perf_counter()
    mounted = Path(tour.run("mount", "deps").strip())
    tour.timed("mount deps", "a writable folder", began)
    check_equal("export and mount of deps", mounted, place / "out")
    tour.run("umount", "deps")

    mounted = Path(tour.run("mount", "edit").strip())
    # What is applied is written now, as a checkout of git's is: its mtime is its own.
    check_equal("folder and mount of edit", mounted, tour.project, frozenset({".git"}), times=False)
    tour.run("umount", "edit")

    began = time.perf_counter()
    tour.run("fork", "main", "try-1")
    tour.timed("fork main try-1", "any size", began)
    tour.run("drop", "t*", "--except", "tests")
    tour.run("undo")
    tour.run("log", "tests", lines=6)
    tour.run("stats", lines=14)


def print_table(rows: list[tuple[str, str, float]]) -> None:
    print("\nwhat was done")
    for what, detail, seconds in rows:
        print(f"  {what:<22}{detail:<52}{seconds:9.2f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description="A tour of atoll on real input.")
    parser.add_argument("--keep", action="store_true", help="leave the store and the folders for a look")
    args = parser.parse_args()
    atoll = Path(sys.executable).parent / "atoll"
    place = Path(tempfile.mkdtemp(prefix="atoll-tour."))
    env = {name: value for name, value in os.environ.items() if not name.startswith("ATOLL_")}
    for folder in ("data", "config"):
        env[f"XDG_{folder.upper()}_HOME"] = str(place / folder)
    env["XDG_RUNTIME_DIR"] = str(place / "run")
    (place / "run").mkdir(mode=0o700)
    env["ATOLL_SERVER_IDLE"] = "1"  # the closing check waits for the history server to end by itself
    tour = Tour(atoll, place / "project", env)
    failed = None
    try:
        if not atoll.exists():
            raise TourError(f"{atoll} is missing; run `make build` first.")
        print("bringing a real project from the package registries ...", flush=True)
        make_project(tour.project, download_django())
        tour_steps(tour, place)
        print_table(tour.rows)
    except TourError as error:
        failed = str(error)
    finally:
        left = clean_up(str(place), 20.0)
        if args.keep:
            print(f"\nkept: {place} (remove it when you are done)")
        else:
            shutil.rmtree(place, ignore_errors=True)
    if left:
        failed = "; ".join(filter(None, [failed, "the tour left these behind: " + ", ".join(left)]))
    if failed:
        print(f"\nquickstart: {failed}", file=sys.stderr)
        return 1
    print("\nnothing is left mounted. The commands above are README.md's: try them in a folder of yours.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
