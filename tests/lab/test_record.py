"""The record of a run as a file: its published schema, and what is no record."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import jsonschema
import pytest

from atoll import lab
from atoll.errors import Usage
from atoll.lab.record import schema

PUBLISHED = Path(__file__).parents[2] / "docs" / "lab-record.schema.json"


def test_the_published_schema_is_that_of_the_code() -> None:
    """`python -m atoll.lab.record >docs/lab-record.schema.json` brings it up to date."""
    assert json.loads(PUBLISHED.read_text()) == json.loads(json.dumps(schema()))


@pytest.mark.usefixtures("example")
def test_a_record_keeps_to_its_schema_and_comes_back_as_it_was(place: Path) -> None:
    record = lab.run(
        [lab.suite("writes"), lab.suite("forgets"), lab.suite("needs"), lab.suite("absent")],
        [lab.parse_target("plain"), lab.parse_target("victim=plain"), lab.parse_target("bad=plain,fail")],
        lab.Options(reps=1, quick=True),
        place=place,
        command=["atoll", "lab", "run"],
    )
    file = place / "deep" / "record.json"
    lab.save(record, file)
    validator = jsonschema.Draft202012Validator(json.loads(PUBLISHED.read_text()))
    assert [error.message for error in validator.iter_errors(json.loads(file.read_text()))] == []
    assert lab.load(file) == record
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (None, "No such file or directory; name a record that `atoll lab run` has written."),
        ("{", "is no record of `atoll lab run`"),
        ('{"schema": 1}', "is no record of `atoll lab run`: Object missing required field"),
        ('{"schema": 2}', "was written by a newer atoll (schema 2, this one reads 1); upgrade."),
    ],
)
def test_what_is_no_record_is_refused(text: str | None, part: str, home: Path) -> None:
    file = home / "it.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(Usage) as caught:
        lab.load(file)
    assert part in str(caught.value)


def test_the_example_of_the_package_works(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The indented block of the docstring of `atoll.lab`, on folders that anybody has."""
    monkeypatch.chdir(place)
    lines = [line for line in (lab.__doc__ or "").splitlines() if not line or line.startswith("    ")]
    example = textwrap.dedent("\n".join(lines)).replace('"tmpfs"', '"memory=/dev/shm/"')
    exec(compile(example, "the example", "exec"), {})
    assert [target.name for target in lab.load(place / "smallfile.json").targets] == ["memory", "disk"]
