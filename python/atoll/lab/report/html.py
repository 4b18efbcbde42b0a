"""One HTML file that needs nothing else: offline, in light and dark, on a phone, printed, and read aloud."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atoll.errors import Unsupported
from atoll.lab.record import Record
from atoll.lab.report import picture, words
from atoll.lab.report.base import Report
from atoll.lab.report.figures import between, duration, number
from atoll.lab.report.tables import CLOCKS, SuiteView, suite_views

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["HtmlReport"]


class HtmlReport(Report):
    """Summary first, then a picture and a table for each suite, the calculator, the environment."""

    name = "html"
    suffix = ".html"

    def missing(self) -> str | None:
        try:
            import jinja2  # noqa: F401
            import vl_convert  # noqa: F401
        except ImportError as error:
            return (
                f"An HTML report needs the package {error.name}, which is not here; pip install 'atoll[lab]'."
            )
        return None

    def render(self, records: Sequence[Record], reference: str | None = None) -> str:
        """The whole file."""
        if sentence := self.missing():
            raise Unsupported(sentence)
        environment = _environment()
        views = suite_views(records, reference)
        pictures = [
            {"wide": picture.draw(view, picture.WIDE), "narrow": picture.draw(view, picture.NARROW)}
            for view in views
        ]
        text: str = environment.get_template("template.html.j2").render(
            records=list(records),
            suites=list(zip(views, pictures, strict=True)),
            targets={name for view in views for name in view.record.targets},
            compared=(compared := _compared(views)),
            columns=list(dict.fromkeys(name for view in compared for name in view.record.targets)),
            began=min(record.started for record in records),
            ended=max(record.ended for record in records),
            jobs=_jobs(views),
            hosts=list(dict.fromkeys(words.host_line(record) for record in records)),
            cautions=_cautions(records),
            repeated=_repeated(views),
            clocks=CLOCKS,
            words=words,
        )
        return text


def _environment() -> Environment:
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters |= {"number": number, "between": between, "duration": duration}
    return made


def _compared(views: Sequence[SuiteView]) -> list[SuiteView]:
    """Those of the overview: they have a headline against the reference that most have. Suites that compare
    ways of their own have columns of their own."""
    with_headline = [view for view in views if view.headline and len(view.record.targets) > 1]
    references = [view.reference for view in with_headline]
    return [view for view in with_headline if view.reference == max(references, key=references.count)]


def _jobs(views: Sequence[SuiteView]) -> list[dict[str, Any]]:
    """What the calculator can be filled with: rows that make files, with their reference's time."""
    made = []
    for view in views:
        for row in view.rows:
            for cell in row.cells:
                files = cell.files
                if files is None or cell.per_file is None or cell.per_file.local is None:
                    continue
                both = f"{cell.target} against {view.reference}"
                made.append(
                    {
                        "name": f"{view.record.name}: {row.record.name}, {both}",
                        "files": files,
                        "local": f"{cell.per_file.local * files:.4g}",
                        "other": f"{cell.per_file.other * files:.4g}",
                        "rtt": 0.5 if view.run.options.rtt is None else view.run.options.rtt * 1000,
                    }
                )
    # A job that waits explains itself best.
    return sorted(made, key=lambda job: float(job["other"]) <= float(job["local"]))


def _cautions(records: Sequence[Record]) -> list[tuple[str, list[int]]]:
    """Each sentence once, with the numbers of the runs that it holds for."""
    found: dict[str, list[int]] = {}
    for at, record in enumerate(records, 1):
        for sentence in words.cautions(record):
            found.setdefault(sentence, []).append(at)
    return list(found.items())


def _repeated(views: Sequence[SuiteView]) -> set[str]:
    """Suites that several runs have: they need the number of the run beside their name."""
    names = [view.record.name for view in views]
    return {name for name in names if names.count(name) > 1}
