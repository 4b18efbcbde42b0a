"""`workflow`: what people with many agents do all day."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from atoll.lab.git import GIT_TOOL
from atoll.lab.model import Options, Row, Scenario, Suite, Target, Tool
from atoll.lab.suites.ways import WayTarget
from atoll.lab.suites.workflow_project import Project, prepare_inputs
from atoll.lab.suites.workflow_ways import WAYS, Way
from atoll.lab.targets.loop import LoopTarget
from atoll.lab.work import Work

__all__ = ["Workflow"]

_TOOLS = (
    GIT_TOOL,
    Tool("npm", "Debian's package npm"),
)


class Workflow(Suite):
    """Compares ways to work, not folders: it has targets of its own."""

    name = "workflow"
    title = "twenty agents on copies of one project, two results taken, the rest thrown away"
    about = (
        "A project with sources under git, node_modules (some 18,000 files) and a .venv in which it is "
        "installed editable. Twenty copies are made; each edits 20 modules of its own and runs the "
        "project's tests, all at the same time; the changes of each are counted; two results become "
        "commits of the project; the rest is thrown away. By atoll (forks mounted in process; exec at the "
        "project's own path), by git worktree and a fresh install from warm caches, by cp -a, and by cp "
        "--reflink on a loop image with xfs. A copy's tests pass only if they import the copy's own "
        "sources: an editable install names the project by its path, so a plain copy tests the original."
    )

    def prepare(self, options: Options, scratch: Path) -> None:
        prepare_inputs(options, scratch)

    def contenders(self, options: Options) -> Sequence[Target]:
        xfs = LoopTarget("xfs", "loop:xfs,size=64G", "xfs", {"size": "64G"})
        return [
            WayTarget("workflow:atoll", "atoll fork", facts={"driver": "auto"}),
            WayTarget("workflow:worktree", "worktree + install"),
            WayTarget("workflow:copy", "cp -a"),
            WayTarget("workflow:reflink", "cp --reflink", xfs),
        ]

    def scenarios(self, options: Options) -> Sequence[Scenario]:
        copies = options.count(20, 2)
        rows = (
            Row("take the project in, once", group="once", cache="warm"),
            Row(f"{copies} copies ready", group="steps", cache="warm"),
            Row("disk of the copies", unit="bytes", durable=False),
            Row("edit and test in all at once", group="steps", cache="warm"),
            Row("copies whose tests pass", unit="copies", better="higher", durable=False, exact=True),
            Row("compare all", group="steps", durable=False),
            Row("two results into git", group="steps"),
            Row("throw the rest away", group="steps"),
        )

        def run(work: Work) -> None:
            project = Project(work.folder / "project", options)
            project.make(work)
            way = WAYS[work.handle.kind](work, project)
            try:
                _steps(work, way, project)
            finally:
                way.end()

        size, files = (1 << 28, 5000) if options.quick else (copies * 400 << 20, copies * 22_000)
        reps = min(options.reps, 1 if options.quick else 3)
        return [
            Scenario(
                "agents",
                rows,
                run,
                tools=_TOOLS,
                reps=reps,
                warm_ups=0,
                bytes=size,
                files=files,
                limit=7200.0,
            )
        ]


def _steps(work: Work, way: Way, project: Project) -> None:
    copies = range(1, project.copies + 1)
    with work.timed("take the project in, once"):
        way.take_in()
    with work.timed(f"{project.copies} copies ready"):
        way.make(project.copies)
    work.measure("disk of the copies", float(way.disk()))
    with work.timed("edit and test in all at once"):
        running = {number: way.start(number, project.script(number)) for number in copies}
        said = {number: process.communicate()[0] for number, process in running.items()}
    wrong = [number for number, process in running.items() if process.returncode != 0]
    work.measure("copies whose tests pass", float(project.copies - len(wrong)))
    for number in wrong[:1]:
        last = said[number].decode(errors="replace").strip().splitlines()[-4:]
        work.note(f"{work.handle.name}: the tests of a copy fail: {' / '.join(last)[-300:]}")
    with work.timed("compare all"):
        changed = {number: way.changed(number) for number in copies}
    for number, found in changed.items():
        work.check(found == project.edits, f"copy {number} shows {found} changes instead of {project.edits}")
    with work.timed("two results into git"):
        for number in (1, 2):
            way.bring(number)
    for number in (1, 2):
        work.check(project.holds(number), f"the project lacks the edits of copy {number}")
    status = work.run(("git", "status", "--porcelain"), cwd=project.folder)
    work.check(status == "", f"the project is not clean afterwards: {status[:100]}")
    with work.timed("throw the rest away"):
        way.discard(copies)
