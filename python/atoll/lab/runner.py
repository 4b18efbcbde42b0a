"""Runs suites on targets: interleaved, shuffled, every sample kept, whatever fails."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import atoll
from atoll.errors import NoSpace, Usage
from atoll.lab import host
from atoll.lab.folders import claimed, clear_leftovers, run_folder
from atoll.lab.model import CheckFailed, Job, Options, Row, Scenario, Suite, Target, Unavailable
from atoll.lab.record import Failure, Record, RowRecord, Sample, SuiteRecord, save
from atoll.lab.running import Running, stop
from atoll.lab.sampling import Taken, take

__all__ = ["Progress", "run", "turns"]

T = TypeVar("T")

Progress = Callable[[str], None]
"""Takes a line about what is done just now."""

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(
    suites: Sequence[Suite],
    targets: Sequence[Target],
    options: Options,
    *,
    place: Path,
    out: Path | None = None,
    command: Sequence[str] = (),
    progress: Progress | None = None,
) -> Record:
    """Measures; returns the record, also when it was interrupted (then it says so in `partial`).

    `place` is a folder on a disk for the lab's own files: images, stores, inputs. Everything below it is
    gone at the end. With `out` the record is written there too, before a second Ctrl-C can come between.

    Raises:
        Usage: two targets have one name, or there is nothing to do.
        Busy: another run works in `place`.
        NoSpace: the work would not fit; nothing was done.
    """
    names = [target.name for target in targets]
    if doubled := next((name for name in names if names.count(name) > 1), None):
        raise Usage(
            f"Two targets are called {doubled}; give one of them a name of its own, as other={doubled}."
        )
    if not suites:
        raise Usage("Name a suite; `atoll lab suites` lists them.")
    if not place.is_dir():
        raise Usage(f"{place} is not a folder; make it, or give --place another one.")
    # What makes no sense together with the options is said before anything is started.
    work = {suite.name: suite.scenarios(options) for suite in suites}
    say = progress or (lambda line: None)
    record = Record(
        lab=atoll.__version__,
        command=list(command),
        started=_now(),
        ended="",
        options=options,
        host=host.describe(),
        targets=[],
        suites=[],
    )
    folders = [folder for target in targets for folder in target.folders()]
    found = [host.caution(folder) for folder in (place, *folders)]
    record.host.cautions = [each for each in dict.fromkeys(found) if each]
    with claimed(place, folders), _interruptible():
        for folder in dict.fromkeys((place, *folders)):
            record.notes += clear_leftovers(folder)
        with run_folder(place, record.notes) as scratch:
            running = [Running(target) for target in targets]
            record.targets = [each.record for each in running]
            try:
                for each in running:
                    say(f"starting {each.target.name}")
                    each.start(scratch)
                for suite in suites:
                    _room(suite, work[suite.name], running, scratch)
                _overhead(record, running, options)
                for suite in suites:
                    _suite(record, suite, work[suite.name], running, options, scratch, say)
            except KeyboardInterrupt:
                _ignore_interrupts()
                record.partial = "interrupted"
                say("interrupted; taking everything down")
            finally:
                # For good: a second Ctrl-C must not leave mounts behind.
                _ignore_interrupts()
                stop(running)
        record.ended = _now()
        record.host.load_after = list(os.getloadavg())
        if out is not None:
            save(record, out)
    return record


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP end a run as Ctrl-C does: everything is unmounted."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in _INTERRUPTS}
    try:
        for number in _INTERRUPTS[1:]:
            signal.signal(number, interrupt)
    except ValueError:  # not in the main thread: whoever called us takes the signals
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore_interrupts() -> None:
    with contextlib.suppress(ValueError):
        for number in _INTERRUPTS:
            signal.signal(number, signal.SIG_IGN)


def _overhead(record: Record, running: Sequence[Running], options: Options) -> None:
    for each in running:
        if each.handle is not None:
            job = Job(suite="", scenario="", options=options, handle=each.handle, rep=0)
            record.overhead[each.target.name] = take(job, 120).overhead


def _suite(
    record: Record,
    suite: Suite,
    scenarios: Sequence[Scenario],
    running: list[Running],
    options: Options,
    scratch: Path,
    say: Progress,
) -> None:
    made = SuiteRecord(
        name=suite.name,
        title=suite.title,
        about=suite.about,
        version=suite.version,
        rows=[],
        summaries=list(suite.summaries),
    )
    record.suites.append(made)
    own = suite.contenders(options)
    if own is not None:
        for target in own:
            if record.target(target.name) is not None:
                target.name = f"{target.name} ({suite.name})"
        running = [Running(target) for target in own]
        record.targets += [each.record for each in running]
    made.targets = [each.target.name for each in running]
    try:
        if own is not None:
            for each in running:
                each.start(scratch)
            _room(suite, scenarios, running, scratch)
        tools = {tool.name: tool for scenario in scenarios for tool in scenario.tools}
        for name in tools.keys() - record.host.versions.keys():
            if version := host.version_of(name, *tools[name].version):
                record.host.versions[name] = version
        say(f"{suite.name}: preparing")
        suite.prepare(options, scratch / "inputs")
        for scenario in scenarios:
            _scenario(made, suite, scenario, running, options, say)
    except (Unavailable, NoSpace) as error:
        made.unavailable = str(error)
    except (CheckFailed, OSError, subprocess.SubprocessError) as error:
        _fail(made, scenarios, running, f"its inputs could not be made: {error}")
    finally:
        if own is not None:
            stop(running)


def _fail(made: SuiteRecord, scenarios: Sequence[Scenario], running: Sequence[Running], message: str) -> None:
    for scenario in scenarios:
        for row in scenario.rows:
            failed = _row_record(scenario, row)
            failed.failures = {each.target.name: [Failure(rep=0, message=message)] for each in running}
            made.rows.append(failed)


def _room(suite: Suite, scenarios: Sequence[Scenario], running: Sequence[Running], scratch: Path) -> None:
    """Whether the largest scenario fits on each target, and on the disk, where the data of most targets end
    up. Raises `NoSpace`."""
    size = max((scenario.bytes for scenario in scenarios), default=0)
    files = max((scenario.files for scenario in scenarios), default=0)
    places = [(each.target.name, Path(each.handle.root)) for each in running if each.handle and each.lives]
    for name, folder in (*places, (os.fspath(scratch.parent), scratch)):
        free, inodes = host.free_space(folder)
        if free < size or inodes < files:
            raise NoSpace(
                f"{suite.name} needs {size / 1e6:,.0f} MB and {files:,} files on {name}, which has "
                f"{free / 1e6:,.0f} MB and {inodes:,}; make room, or take a smaller --scale."
            )


def _scenario(
    made: SuiteRecord,
    suite: Suite,
    scenario: Scenario,
    running: Sequence[Running],
    options: Options,
    say: Progress,
) -> None:
    rows = {row.name: _row_record(scenario, row) for row in scenario.rows}
    made.rows += rows.values()
    for each in running:
        why = each.record.unavailable or _lacking(scenario)
        for row in scenario.rows:
            if why:
                rows[row.name].unavailable[each.target.name] = why
            elif row.needs_commit and each.handle and not each.handle.commit:
                rows[row.name].unavailable[each.target.name] = "this target has no commits"
    if _lacking(scenario):
        return
    reps = scenario.reps if scenario.reps is not None else options.reps
    first = 0 if options.quick else -scenario.warm_ups
    started = [each for each in running if each.handle is not None]
    for rep, order in turns(f"{options.seed} {suite.name} {scenario.name}", range(first, reps), started):
        which = "warm-up" if rep < 0 else f"{rep + 1}/{reps}"
        for place, each in enumerate(order):
            say(f"{suite.name}: {scenario.name}, {which}, {each.target.name}")
            _one(made, rows, suite, scenario, each, options, rep, place)


def turns(seed: str, reps: Iterable[int], targets: Sequence[T]) -> Iterator[tuple[int, list[T]]]:
    """The order in which targets have their turns in each repetition, the same for one seed. Shuffled, but so
    that chance favours nobody: see `_square`. Warm-ups come before."""
    rng = random.Random(seed)
    square: list[list[int]] = []
    for rep in reps:
        if rep < 0:
            yield rep, rng.sample(targets, len(targets))
            continue
        square = square or _square(rng, len(targets))
        yield rep, [targets[index] for index in square.pop(0)] if targets else []


def _square(rng: random.Random, size: int) -> list[list[int]]:
    """Orders of the numbers below `size` in which each has each place equally often, and comes equally often
    after each other: what one target leaves behind (dirty pages, full caches) meets all. Of an even number as
    many orders as numbers, of an odd one twice as many, the first half already with each place once.

    E. J. Williams, "Experimental designs balanced for the estimation of residual effects of treatments",
    Australian Journal of Scientific Research A 2 (1949)."""
    zigzag = [(index + 1) // 2 if index % 2 else -(index // 2) for index in range(size)]
    names = rng.sample(range(size), size)
    square = [[names[(index + shift) % size] for index in zigzag] for shift in range(size)]
    rng.shuffle(square)
    mirrored = [order[::-1] for order in square] if size % 2 else []
    return square + mirrored


def _one(
    made: SuiteRecord,
    rows: dict[str, RowRecord],
    suite: Suite,
    scenario: Scenario,
    each: Running,
    options: Options,
    rep: int,
    place: int,
) -> None:
    assert each.handle is not None
    name = each.target.name
    if each.record.died is not None:
        taken = Taken(failed=f"the target is dead: {each.record.died}")
    else:
        job = Job(suite=suite.name, scenario=scenario.name, options=options, handle=each.handle, rep=rep)
        taken = take(job, scenario.limit)
        if taken.failed is not None and not taken.is_unavailable:
            each.look_after(taken.failed)
    if rep < 0:
        return
    if taken.failed is not None and not taken.is_unavailable:
        # What was timed before a check failed, or the target did, is not known to have been done.
        taken.rows.clear()
    for event in taken.rows:
        if rows[event["row"]].files is None and (files := event["details"].get("files")):
            rows[event["row"]].files = int(files)
        rows[event["row"]].samples.setdefault(name, []).append(
            Sample(
                rep=rep,
                order=place,
                value=event["value"],
                durable=event["durable"],
                details=event["details"],
                series=event["series"],
            )
        )
    for row, why in taken.unavailable.items():
        rows[row].unavailable[name] = why
    seen = {event["row"] for event in taken.rows}
    for row, record in rows.items():
        if row in seen or name in record.unavailable:
            continue
        message = taken.failed or "the work gave no figure"
        if taken.is_unavailable:
            record.unavailable[name] = message
        else:
            record.failures.setdefault(name, []).append(Failure(rep=rep, message=message))
    if taken.outcomes:
        made.outcomes.setdefault(name, {}).update(taken.outcomes)
    made.notes += [note for note in taken.notes if note not in made.notes]


def _row_record(scenario: Scenario, row: Row) -> RowRecord:
    return RowRecord(
        scenario=scenario.name,
        name=row.name,
        unit=row.unit,
        better=row.better,
        durable=row.durable,
        group=row.group,
        files=row.files,
        cache=row.cache,
        exact=row.exact,
    )


def _lacking(scenario: Scenario) -> str | None:
    gone = [tool for tool in scenario.tools if host.find_program(tool.name) is None]
    return "; ".join(f"{tool.name} is missing: {tool.package}" for tool in gone) or None
