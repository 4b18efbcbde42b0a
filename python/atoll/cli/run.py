"""`atoll run`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from atoll.cli.common import BRANCH, COMMAND, REF, json_option, note, open_store, progress, store_option
from atoll.errors import AtollError, Usage

if TYPE_CHECKING:
    from atoll.run import RunResult

__all__ = [
    "FAILED",
    "CommandLine",
    "as_failure",
    "command",
    "command_options",
    "options_of",
    "patience",
    "report",
]

#: The exit code of atoll's own failures, so that they are not mistaken for the command's.
FAILED = 125


class _Failed(AtollError):
    exit_code = FAILED


@contextlib.contextmanager
def as_failure() -> Iterator[None]:
    """Failures of atoll itself end the process with 125; what they are stays in the message and in JSON's
    `code`."""
    try:
        yield
    except AtollError as error:
        failure = _Failed(error.message, errno=error.errno, details=error.details)
        # The class attribute is what the command line prints.
        failure.__dict__["code"] = error.code
        raise failure from error


@contextlib.contextmanager
def patience() -> Iterator[None]:
    """While a command's work is committed, the first Ctrl-C is answered with a sentence, the second one stops
    it."""
    pressed = 0

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        pressed += 1
        if pressed > 1:
            raise KeyboardInterrupt
        with contextlib.suppress(OSError):
            note("Committing the command's work; Ctrl-C again leaves it uncommitted in the workspace.")

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def command_options(function: Any) -> Any:
    """What `run` and `exec` share."""
    positive = click.FloatRange(min=0, min_open=True)
    options = (
        click.option(
            "--at",
            default="same",
            metavar="PATH",
            help="Where the command sees the workspace: `same` (the imported folder's path; the default), "
            "`none` (where it is mounted), or a folder.",
        ),
        click.option(
            "--timeout",
            type=positive,
            metavar="SECONDS",
            help="End the command after this time; exit code 124.",
        ),
        click.option(
            "--grace",
            type=click.FloatRange(min=0),
            default=10.0,
            show_default=True,
            metavar="SECONDS",
            help="Between SIGTERM and SIGKILL.",
        ),
        click.option("--memory", metavar="SIZE", help="All its processes together, like 2G; needs a cgroup."),
        click.option("--cpus", type=positive, metavar="N", help="Like 1.5; needs a cgroup."),
        click.option(
            "--pids", type=click.IntRange(min=1), metavar="N", help="Processes and threads; needs a cgroup."
        ),
        click.option(
            "--pass",
            "passes",
            multiple=True,
            metavar="PATH",
            help="Show a host file or folder read-only; it is never captured. May be given several times.",
        ),
        click.option(
            "--detach-children", is_flag=True, help="Let processes that the command leaves behind go on."
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def options_of(values: dict[str, Any]) -> dict[str, Any]:
    """The keywords of `atoll.run.command.Options` among a command's values."""
    names = ("at", "timeout", "grace", "memory", "cpus", "pids", "passes", "detach_children")
    return {name: values[name] for name in names}


class CommandLine(click.Command):
    """A command with another program's command line after `--`, which is left as it is."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        program: list[str] = []
        if "--" in args:
            at = args.index("--")
            args, program = args[:at], args[at + 1 :]
        with as_failure():
            try:
                rest = super().parse_args(ctx, args)
                if not program:
                    ctx.fail(
                        f"There is no command to run; write it after `--`: {ctx.command_path} … -- COMMAND."
                    )
            except click.UsageError as error:
                raise Usage(error.format_message()) from error
        ctx.meta["atoll.program"] = program
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "-- COMMAND…"]


@click.command("run", cls=CommandLine, **COMMAND)
@click.argument("base", required=False, shell_complete=REF)
@click.option("--name", metavar="BRANCH", help="The fork's name. Default: run-N, the next free one.")
@click.option("--on", metavar="BRANCH", shell_complete=BRANCH, help="Run on this branch instead of a fork.")
@click.option(
    "--driver", type=click.Choice(["auto", "overlay", "fuse", "copy"]), default="auto", show_default=True
)
@click.option(
    "--fsync",
    type=click.Choice(["full", "commit"]),
    default="full",
    show_default=True,
    help="`commit`: what programs fsync is durable with the commit only.",
)
@click.option(
    "--scratch",
    default="disk",
    show_default=True,
    metavar="disk|memory[:SIZE]",
    help="Where changes are until they are committed.",
)
@click.option("-m", "--message", help="The commit's message.")
@click.option(
    "--no-commit", is_flag=True, help="Leave what the command changed uncommitted in the workspace."
)
@click.option("--discard-on-failure", is_flag=True, help="Throw the fork away when the exit code is not 0.")
@click.option("--no-record-command", is_flag=True, help="Record no command line with the commit.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing on stderr but errors.")
@command_options
@store_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, store: str | None, as_json: bool, quiet: bool, **values: Any) -> int:
    """Fork, mount, run COMMAND at the imported folder's path, commit, unmount.

    Without BASE the current folder's project is forked, with what changed there imported first; inside of a
    workspace its own branch is, with what changed there committed first. Output and exit code are the
    command's own; a failure, a timeout and Ctrl-C are committed too. 124: timeout; 125: atoll itself failed;
    126 and 127: the command could not be started. With --json the outcome is one line on stderr.

    \b
    Examples:
      atoll run --name a1 -- npm ci
      atoll run main --name a2 -- ./agent
      atoll run --timeout 600 --memory 4G -- pytest -q
      atoll run --discard-on-failure -- make release
    """
    program = ctx.meta["atoll.program"]
    with as_failure():
        from atoll.run.command import Options
        from atoll.run.whole import Settings, run

        settings = Settings(
            base=values["base"],
            name=values["name"],
            on=values["on"],
            driver=values["driver"],
            fsync=values["fsync"],
            scratch=values["scratch"],
            commit=not values["no_commit"],
            discard_on_failure=values["discard_on_failure"],
            record_command=not values["no_record_command"],
            message=values["message"],
        )
        options = Options(**options_of(values), stands_in=standing_in(), forward_signals=True)
        notes, say = listener(quiet, as_json)
        with progress("run") as drawn:
            done = run(
                open_store(store), program, settings, options, note=say, progress=drawn, patience=patience()
            )
    more = {
        "branch": done.branch,
        "base": done.base,
        "commit": done.commit,
        "kept": done.kept,
        "notes": notes,
    }
    report(done.result, more, as_json)
    return done.returncode


def listener(quiet: bool, as_json: bool) -> tuple[list[str], Callable[[str], None]]:
    """Where sentences for people go: to stderr, or with --json into the document."""
    notes: list[str] = []

    def say(sentence: str) -> None:
        # A terminal that was closed meanwhile must not keep the work from being committed.
        with contextlib.suppress(OSError):
            note(sentence)

    return notes, notes.append if quiet or as_json else say


def standing_in() -> str | None:
    """Where one stands: the command starts in the same place of what it sees."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def report(result: RunResult, more: dict[str, Any], as_json: bool) -> None:
    """Says on stderr what there is to say (stdout is the command's own)."""
    if as_json:
        print(json.dumps({"schema": 1, **more, **result_json(result)}), file=sys.stderr)
    elif not result.started:
        note(result.notes[-1])


def result_json(result: RunResult) -> dict[str, Any]:
    """What `--json` says about a command."""
    return {
        "exit_code": result.returncode,
        "started": result.started,
        "signal": result.signal,
        "timed_out": result.timed_out,
        "duration_s": result.duration_s,
        "cpu_s": result.cpu_s,
        "peak_memory_bytes": result.peak_memory_bytes,
        "peak_memory_of": result.peak_memory_of,
        "shown_at": result.shown_at,
        "namespace": result.namespace,
        "cgroup": result.cgroup,
        "left_behind": [{"pid": pid, "name": name} for pid, name in result.left_behind],
    }
