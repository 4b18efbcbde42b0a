"""The group of all commands, and how their failures end the process."""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

import click

from atoll.cli import COMMANDS
from atoll.errors import AtollError

__all__ = ["Group", "cli", "run"]

_EPILOG = """\b Exit codes: 0 done; 1 the answer is no (diff --exit-code, grep without a match, doctor); 2
usage; 3 no store; 4 not found; 5 exists; 6 the branch moved; 7 busy; 8 damaged; 9 no space; 10 permission; 11
not supported here; 12 conflict; 13 newer format; 14 kept changing; 70 a fault of atoll's; 74 input or output;
130 interrupted. `run` and `exec` end as their command does; 124 timeout, 125 atoll itself failed, 126 and 127
the command could not start.

\b
Environment: ATOLL_STORE names the store; ATOLL_AUTHOR who commits; NO_COLOR turns colours off.
"""


class Group(click.Group):
    """Imports a command's module when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(
            f"atoll.cli.{cmd_name}" if cmd_name != "import" else "atoll.cli.import_"
        )
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and name not in COMMANDS and not name.startswith("-"):
            import difflib

            near = difflib.get_close_matches(name, COMMANDS, n=3)
            hint = f"; did you mean {' or '.join(near)}?" if near else "; `atoll --help` lists the commands."
            ctx.fail(f"There is no command '{name}'{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=Group,
    name="atoll",
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(None, "--version", package_name="atoll", message="atoll %(version)s")
def cli() -> None:
    """Every agent gets an island: its own full-speed workspace over one shared, versioned history.

    \b
      cd ~/src/app && atoll import        this folder becomes a commit on `main`
      atoll run --name a1 -- npm ci       a command in a fork of it, at the same path
      atoll diff main a1                  what it changed
      atoll apply a1                      those changes into the folder

    `atoll COMMAND --help` explains each command with examples.
    """


def run(arguments: list[str]) -> int:
    """Runs one command line and returns its exit code."""
    as_json = "--json" in (arguments[: arguments.index("--")] if "--" in arguments else arguments)
    try:
        code = cli.main(args=arguments, prog_name="atoll", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.Abort:
        return _fail("interrupted", "Interrupted.", 130, as_json)
    except KeyboardInterrupt:
        return _fail("interrupted", "Interrupted; what was published before is safe.", 130, as_json)
    except click.UsageError as error:
        if error.ctx is not None and not as_json:
            print(error.ctx.get_usage(), file=sys.stderr)
        return _fail("usage", error.format_message(), 2, as_json)
    except click.ClickException as error:
        return _fail("usage", error.format_message(), 2, as_json)
    except AtollError as error:
        return _fail(error.code, error.message, error.exit_code, as_json, error.details)
    except BrokenPipeError:
        # Who read us has gone; Python must not complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        return _os_error(error, as_json)
    except Exception as error:
        if os.environ.get("ATOLL_DEBUG"):
            raise
        fault = f"This is a fault of atoll's ({type(error).__name__}: {error}); ATOLL_DEBUG=1 shows where."
        return _fail("internal", fault, 70, as_json)


def _os_error(error: OSError, as_json: bool) -> int:
    import errno

    from atoll.errors import Io, NoSpace, PermissionDenied

    kinds: dict[int | None, type[AtollError]] = {
        errno.ENOSPC: NoSpace,
        errno.EDQUOT: NoSpace,
        errno.EACCES: PermissionDenied,
        errno.EPERM: PermissionDenied,
        errno.EROFS: PermissionDenied,
    }
    kind = kinds.get(error.errno, Io)
    where = f" {os.fsdecode(error.filename)}:" if isinstance(error.filename, str | bytes) else ""
    return _fail(kind.code, f"The system refused:{where} {error.strerror or error}.", kind.exit_code, as_json)


def _fail(
    code: str, message: str, exit_code: int, as_json: bool, details: dict[str, Any] | None = None
) -> int:
    if as_json:
        error = {"code": code, "message": message, "exit_code": exit_code, **(details or {})}
        print(json.dumps({"schema": 1, "error": error}), file=sys.stderr)
    else:
        print(f"atoll: {message}", file=sys.stderr)
    return exit_code
