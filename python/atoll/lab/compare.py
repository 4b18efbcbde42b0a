"""Two records of the same work beside each other: what became slower, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from atoll.errors import Usage
from atoll.lab.record import Record, RowRecord, SuiteRecord
from atoll.lab.report.tables import Clock, clock_values, cost, figure
from atoll.lab.stats import Spread

__all__ = ["Change", "Comparison", "compare"]

#: What has to be the same for the work to be the same. The number of samples and their order need not.
_SAME = ("quick", "scale", "trace", "repo", "snapshots", "online")


@dataclass(frozen=True)
class Change:
    """A row on a target in both records."""

    suite: str
    row: str
    target: str
    unit: str
    clock: Clock
    old: Spread | None
    new: Spread | None
    ratio: Spread | None
    """The new cost in old ones: more than 1 is worse."""
    regression: bool
    """The whole interval is beyond the threshold, or what gave figures or passed fails now."""
    note: str = ""


@dataclass(frozen=True)
class Comparison:
    """All that both records have."""

    changes: list[Change]
    notes: list[str]
    """What else differs, in sentences."""

    @property
    def regressions(self) -> list[Change]:
        """What became worse."""
        return [change for change in self.changes if change.regression]


def compare(old: Record, new: Record, threshold: float = 1.1) -> Comparison:
    """Each row that both records have, on each target of the same name.

    Raises:
        Usage: they have no suite in common, or a common suite did other work (its version, the options).
    """
    before = {suite.name: suite for suite in old.suites}
    common = [(before[suite.name], suite) for suite in new.suites if suite.name in before]
    if not common:
        raise Usage("The records have no suite in common; compare two runs of the same suites.")
    for name in _SAME:
        was, now = getattr(old.options, name), getattr(new.options, name)
        if was != now:
            raise Usage(
                f"The records were made with different options ({name}: {was}, then {now}), so their work "
                "differs; run both with the same."
            )
    for was, now in common:
        if was.version != now.version:
            raise Usage(
                f"{now.name} has version {was.version} in the old record and {now.version} in the new one: "
                "its work has changed; measure the old state again with this version."
            )
    changes = [change for was, now in common for change in _suite(was, now, threshold)]
    return Comparison(changes, list(_notes(old, new)))


def _notes(old: Record, new: Record) -> Iterator[str]:
    for name in ("cpu", "cpus", "memory_bytes", "kernel"):
        was, now = getattr(old.host, name), getattr(new.host, name)
        if was != now:
            yield f"The machines differ ({name}: {was}, then {now}): the ratios measure that too."
    for target in new.targets:
        before = old.target(target.name)
        if before and (before.spec, before.file_system) != (target.spec, target.file_system):
            yield (
                f"{target.name} was {before.spec} on {before.file_system}, and is {target.spec} on "
                f"{target.file_system}."
            )
    for name, record in (("old", old), ("new", new)):
        if record.partial:
            yield f"The {name} record is partial: it was {record.partial}."


def _suite(old: SuiteRecord, new: SuiteRecord, threshold: float) -> Iterator[Change]:
    yield from _tests(old, new)
    before = {(row.scenario, row.name): row for row in old.rows}
    for row in new.rows:
        was = before.get((row.scenario, row.name))
        if was is None or row.better == "none":
            continue
        for target in new.targets:
            if target in old.targets:
                yield from _row(new.name, was, row, target, threshold)


def _tests(old: SuiteRecord, new: SuiteRecord) -> Iterator[Change]:
    """Of conformance suites: one change for each target with tests that passed and do not any more."""
    for target in new.outcomes.keys() & old.outcomes.keys():
        now = new.outcomes[target]
        lost = [
            f"{test} ({now.get(test, 'not run')})"
            for test, result in old.outcomes[target].items()
            if result == "pass" and now.get(test) != "pass"
        ]
        if lost:
            note = f"{len(lost)} no longer pass: {', '.join(lost)}"
            yield Change(new.name, "tests", target, "tests", "returned", None, None, None, True, note)


def _row(suite: str, old: RowRecord, new: RowRecord, target: str, threshold: float) -> Iterator[Change]:
    was, now = old.samples.get(target, []), new.samples.get(target, [])
    clocks: tuple[Clock, Clock] = ("durable", "returned")
    # By the later clock that both have; without samples on a side, by whatever the other one has.
    for clock in clocks:
        before, after = clock_values(was, clock), clock_values(now, clock)
        if (before or not was) and (after or not now):
            break
    if not before and not after:
        return
    a = figure(old, before, f"old {suite} {new.name} {target}") if before else None
    b = figure(new, after, f"new {suite} {new.name} {target}") if after else None
    ratio = cost(new, b, a) if a and b else None
    ends = ratio.interval if ratio else None
    broke = bool(new.failures.get(target)) and not old.failures.get(target)
    note = ""
    if broke:
        note = f"fails now: {new.failures[target][0].message}"
    elif b is None:
        note = new.unavailable.get(target, "not in the new record")
    elif a is None:
        note = "not in the old record"
    elif ends is None:
        note = "too few samples"
    worse = ends is not None and ends[0] > threshold
    yield Change(suite, new.name, target, new.unit, clock, a, b, ratio, broke or worse, note)
