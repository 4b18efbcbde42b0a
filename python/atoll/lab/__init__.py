"""Measures any file system honestly: the same work on each target in one run, every sample kept.

    from pathlib import Path
    from atoll import lab

    suites = [lab.suite("smallfile")]
    targets = [lab.parse_target("tmpfs"), lab.parse_target("disk=./")]
    record = lab.run(suites, targets, lab.Options(reps=3, quick=True), place=Path("."))
    lab.save(record, Path("smallfile.json"))
    for row in record.suites[0].rows:
        print(row.name, {name: [sample.value for sample in samples] for name, samples in row.samples.items()})

A suite of your own is a subclass of `Suite`, a target one of `Target`; a package registers them as entry
points in the groups `atoll.lab.suites` and `atoll.lab.targets`. A sample runs in a process of its own, which
finds its suite by that name again: so a suite has to be registered.

Names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from atoll.lab.model import (
        Barrier,
        CheckFailed,
        Handle,
        Options,
        Row,
        Scenario,
        Suite,
        Summary,
        Target,
        Tool,
        Unavailable,
    )
    from atoll.lab.record import Record, load, save
    from atoll.lab.registry import parse_target, suite
    from atoll.lab.runner import run
    from atoll.lab.work import Work

__all__ = [
    "Barrier",
    "CheckFailed",
    "Handle",
    "Options",
    "Record",
    "Row",
    "Scenario",
    "Suite",
    "Summary",
    "Target",
    "Tool",
    "Unavailable",
    "Work",
    "load",
    "parse_target",
    "run",
    "save",
    "suite",
]

_HOMES = {
    "Barrier": "model",
    "CheckFailed": "model",
    "Handle": "model",
    "Options": "model",
    "Record": "record",
    "Row": "model",
    "Scenario": "model",
    "Suite": "model",
    "Summary": "model",
    "Target": "model",
    "Tool": "model",
    "Unavailable": "model",
    "Work": "work",
    "load": "record",
    "parse_target": "registry",
    "run": "runner",
    "save": "record",
    "suite": "registry",
}


def __getattr__(name: str) -> object:
    import importlib

    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'atoll.lab' has no attribute {name!r}")
    return getattr(importlib.import_module(f"atoll.lab.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
