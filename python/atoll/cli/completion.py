"""`atoll completion`."""

from __future__ import annotations

import click

from atoll.cli import common


@click.command("completion", **common.COMMAND)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    Examples:
      eval "$(atoll completion bash)"                                  in ~/.bashrc
      eval "$(atoll completion zsh)"                                   in ~/.zshrc
      atoll completion fish > ~/.config/fish/completions/atoll.fish
    """
    from click.shell_completion import get_completion_class

    from atoll.cli.app import cli

    kind = get_completion_class(shell)
    assert kind is not None
    if shell == "bash":
        # Click's own checks bash's version by running it; the script is the same for every bash since 4.4.
        kind._check_version = staticmethod(lambda: None)  # type: ignore[attr-defined]
    print(kind(cli, {}, "atoll", "_ATOLL_COMPLETE").source())
