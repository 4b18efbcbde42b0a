"""Finds suites and targets by name: ours, and those that other packages register.

A package adds a suite with an entry point in the group `atoll.lab.suites` (a subclass of `Suite`), a target
with one in `atoll.lab.targets` (a subclass of `Target`), a form of report with one in `atoll.lab.reports` (a
subclass of `Report`).
"""

from __future__ import annotations

import importlib
import os
import re
from importlib.metadata import entry_points

from atoll.errors import Usage
from atoll.lab.model import Suite, Target, nearest
from atoll.lab.report.base import Report

__all__ = [
    "REPORTS",
    "SUITES",
    "TARGETS",
    "parse_target",
    "report",
    "seconds",
    "suite",
    "suites",
    "target_kinds",
]

#: Our own, in the order of a report: name to module and class.
SUITES: dict[str, str] = {
    "fs-bench": "atoll.lab.suites.fs_bench:FsBench",
    "install": "atoll.lab.suites.install:Install",
    "clone": "atoll.lab.suites.clone:Clone",
    "calls": "atoll.lab.suites.calls:Calls",
    "store-compare": "atoll.lab.suites.store_compare:StoreCompare",
    "history": "atoll.lab.suites.history:History",
    "restart": "atoll.lab.suites.restart:Restart",
    "workflow": "atoll.lab.suites.workflow:Workflow",
    "smallfile": "atoll.lab.suites.smallfile:Smallfile",
    "fio": "atoll.lab.suites.fio:Fio",
    "mdtest": "atoll.lab.suites.mdtest:Mdtest",
    "pjdfstest": "atoll.lab.suites.pjdfstest:PjdFsTest",
    "fsx": "atoll.lab.suites.fsx:Fsx",
    "fsstress": "atoll.lab.suites.fsstress:FsStress",
    "xfstests": "atoll.lab.suites.xfstests:XfsTests",
}

#: Our own kinds of targets.
TARGETS: dict[str, str] = {
    "path": "atoll.lab.targets.path:PathTarget",
    "tmpfs": "atoll.lab.targets.tmpfs:TmpfsTarget",
    "loop": "atoll.lab.targets.loop:LoopTarget",
    "overlay": "atoll.lab.targets.overlay:OverlayTarget",
    "atoll": "atoll.lab.targets.atoll:AtollTarget",
    "passthrough": "atoll.lab.targets.passthrough:PassthroughTarget",
    "juicefs": "atoll.lab.targets.juicefs:JuicefsTarget",
    "seaweedfs": "atoll.lab.targets.seaweedfs:SeaweedfsTarget",
    "command": "atoll.lab.targets.command:CommandTarget",
}

#: Our own forms of a report.
REPORTS: dict[str, str] = {
    "html": "atoll.lab.report.html:HtmlReport",
    "markdown": "atoll.lab.report.markdown:MarkdownReport",
    "text": "atoll.lab.report.text:TextReport",
}


def _load(place: str) -> type:
    module, _, name = place.partition(":")
    loaded = getattr(importlib.import_module(module), name)
    assert isinstance(loaded, type)
    return loaded


def _known(ours: dict[str, str], group: str) -> dict[str, str]:
    found = {point.name: point.value for point in entry_points(group=group)}
    return ours | {name: value for name, value in found.items() if name not in ours}


def _found(what: str, name: str, ours: dict[str, str], group: str) -> type:
    known = _known(ours, group)
    if name not in known:
        raise Usage(f"There is no {what} '{name}'{nearest(name, known)}")
    return _load(known[name])


def suites() -> list[str]:
    """The names of all suites."""
    return list(_known(SUITES, "atoll.lab.suites"))


def suite(name: str) -> Suite:
    """The suite of this name. Raises `Usage` with the nearest ones."""
    made: Suite = _found("suite", name, SUITES, "atoll.lab.suites")()
    return made


def target_kinds() -> dict[str, type[Target]]:
    """Every kind of target, by name."""
    return {name: _load(place) for name, place in _known(TARGETS, "atoll.lab.targets").items()}


def report(name: str) -> Report:
    """The form of this name. Raises `Usage` with the nearest ones."""
    made: Report = _found("report", name, REPORTS, "atoll.lab.reports")()
    return made


def parse_target(text: str) -> Target:
    """A target from the command line: `[NAME=]KIND[:ARGUMENT][,KEY=VALUE...]`, or `[NAME=]FOLDER`, where a
    folder has a slash in it or is `.`. Raises `Usage`."""
    name, spec = _split_name(text)
    known = _known(TARGETS, "atoll.lab.targets")
    if "/" in spec.split(",")[0].split(":")[0] or spec in (".", "..", "~"):
        folder = os.path.expanduser(spec)
        made: Target = _load(known["path"])(name or spec, text, folder)
        return made
    head, *rest = spec.split(",")
    kind, _, argument = head.partition(":")
    if kind not in known:
        hint = nearest(kind, known)
        raise Usage(f"There is no target '{kind}'{hint} A folder is written with a slash, as ./{kind}.")
    settings = {}
    for each in rest:
        key, equals, value = each.partition("=")
        settings[key] = value if equals else "yes"
    other: Target = _load(known[kind])(name or spec, text, argument, settings)
    return other


def seconds(text: str) -> float:
    """A time as people write it: `0.5ms`, `200us`, `2s`, `1.5` (seconds). Raises `Usage`."""
    units = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
    match = re.fullmatch(r"\s*([0-9.]+)\s*(us|µs|ms|s|min)?\s*", text)
    try:
        if match is None:
            raise ValueError
        return float(match[1]) * units[match[2] or "s"]
    except ValueError as error:
        raise Usage(f"'{text}' is no time; write it as 0.5ms, 200us or 2s.") from error


def _split_name(text: str) -> tuple[str, str]:
    name, equals, spec = text.partition("=")
    # An equals sign in the settings of an unnamed target is not the one that ends a name.
    if equals and not any(sign in name for sign in ":,/."):
        return name, spec
    return "", text
