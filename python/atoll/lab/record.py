"""The record of a run: everything that a reader needs to believe it, and every sample.

The schema of the JSON file is published in `docs/lab-record.schema.json`; a test holds the two together.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import msgspec

from atoll.errors import Usage
from atoll.lab.model import Barrier, Better, Options, Summary

__all__ = [
    "SCHEMA",
    "Failure",
    "Host",
    "Record",
    "RowRecord",
    "Sample",
    "SuiteRecord",
    "TargetRecord",
    "load",
    "save",
    "schema",
]

#: Goes up when a key changes its meaning or goes away.
SCHEMA = 1


class Sample(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One figure of one repetition."""

    rep: int
    order: int
    """Place of the target in the shuffled order of this repetition, from 0."""
    value: float
    """In the row's unit. For a timed row: seconds until the work returned."""
    durable: float | None = None
    """The same figure with the clock stopped when the work was durable, where there is a barrier."""
    details: dict[str, float] = {}
    """More about the same figure: p50, p90, p99, max, first, ..."""
    series: list[float] = []
    """The single steps that `value` sums up, where a suite keeps them."""


class Failure(msgspec.Struct, kw_only=True):
    """A sample that is none."""

    rep: int
    message: str


class RowRecord(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A row with its samples, by target. A target is in exactly one of `samples` or `failures` for a
    repetition, or in `unavailable`."""

    scenario: str
    name: str
    unit: str
    better: Better
    durable: bool
    group: str = ""
    files: int | None = None
    cache: Literal["warm", "cold", "new"] = "warm"
    exact: bool = False
    samples: dict[str, list[Sample]] = {}
    failures: dict[str, list[Failure]] = {}
    unavailable: dict[str, str] = {}


class SuiteRecord(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One suite of the run."""

    name: str
    title: str
    about: str
    version: int
    rows: list[RowRecord]
    targets: list[str] = []
    """Names of the targets that this suite ran on."""
    summaries: list[Summary] = []
    outcomes: dict[str, dict[str, str]] = {}
    """Of conformance suites: target to test to "pass", "fail" or "skip", with a reason after a colon."""
    notes: list[str] = []
    unavailable: str | None = None
    """Why the whole suite could not be run."""


class TargetRecord(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A target of the run."""

    name: str
    kind: str
    spec: str
    barrier: Barrier
    root: str = ""
    file_system: str = ""
    mount_options: str = ""
    versions: dict[str, str] = {}
    facts: dict[str, str] = {}
    unavailable: str | None = None
    died: str | None = None
    """How it ended before the run did, if it did."""


class Host(msgspec.Struct, kw_only=True):
    """The machine."""

    kernel: str
    machine: str
    cpu: str
    cpus: int
    memory_bytes: int
    virtual: str
    """The hypervisor or container that it runs in, as far as it says."""
    load_before: list[float]
    load_after: list[float] = []
    busy_before: float | None = None
    """The share of the processors' time, 0 to 1, that others used just before; None: not known."""
    versions: dict[str, str] = {}
    cautions: list[str] = []
    """Sentences about what on this machine makes figures depend on what was done before."""


class Record(msgspec.Struct, kw_only=True):
    """One run."""

    schema: int = SCHEMA
    lab: str
    """atoll's version."""
    command: list[str]
    started: str
    """ISO 8601, UTC."""
    ended: str
    options: Options
    host: Host
    targets: list[TargetRecord]
    suites: list[SuiteRecord]
    overhead: dict[str, list[float]] = {}
    """Seconds that the lab's own clock and barrier cost around an empty piece of work, by target."""
    notes: list[str] = []
    """What a reader has to know about the run as a whole."""
    partial: str | None = None
    """Why the run ended early, if it did."""

    def target(self, name: str) -> TargetRecord | None:
        """The target of this name."""
        return next((target for target in self.targets if target.name == name), None)


def save(record: Record, path: Path) -> None:
    """Writes a record, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = msgspec.json.format(msgspec.json.encode(record), indent=1)
    draft = path.with_name(path.name + ".new")
    draft.write_bytes(text + b"\n")
    draft.replace(path)


def load(path: Path) -> Record:
    """Reads a record.

    Raises:
        Usage: the file is not there, no record, or from a newer version.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Usage(f"{path}: {error.strerror}; name a record that `atoll lab run` has written.") from error
    try:
        number = msgspec.json.decode(data, type=_Version).schema
        if number > SCHEMA:
            raise Usage(
                f"{path} was written by a newer atoll (schema {number}, this one reads {SCHEMA}); upgrade."
            )
        return msgspec.json.decode(data, type=Record)
    except msgspec.DecodeError as error:
        raise Usage(f"{path} is no record of `atoll lab run`: {error}.") from error


class _Version(msgspec.Struct):
    schema: int


def schema() -> dict[str, Any]:
    """The JSON schema of a record."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(Record)}


if __name__ == "__main__":
    # `python -m atoll.lab.record >docs/lab-record.schema.json`
    print(json.dumps(schema(), indent=2))
