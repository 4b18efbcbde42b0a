"""The command line: one file for each command, imported when it is called."""

from __future__ import annotations

import sys
from typing import NoReturn

__all__ = ["COMMANDS", "main"]

#: Every command with its line in `atoll --help`, in the order of a first day's use. `atoll --help` imports
#: none.
COMMANDS: dict[str, str] = {
    "init": "Make a store.",
    "import": "Make a folder's present state a commit.",
    "run": "Fork, mount, run a command, commit, unmount.",
    "runs": "List what was run, with its outcome.",
    "fork": "Make a branch on a commit, at no cost.",
    "mount": "Make a branch a writable folder.",
    "exec": "Run a command in an existing workspace.",
    "status": "Show what a workspace changed since its last commit.",
    "commit": "Make what a workspace holds a commit.",
    "umount": "Take a workspace's folder away; uncommitted changes are kept.",
    "diff": "Show what differs between two commits.",
    "apply": "Bring a branch's changes into a real folder.",
    "restore": "Bring a workspace back to what a commit has.",
    "drop": "Throw branches away.",
    "undo": "Take the last operation back.",
    "log": "List a branch's commits.",
    "show": "Show a commit and what it changed.",
    "ls": "List a folder of a commit.",
    "cat": "Print files of a commit.",
    "grep": "Search the files of a commit.",
    "find": "Find paths in a commit by name, type or size.",
    "stat": "Show everything about a path of a commit.",
    "export": "Write a commit to a folder or as a tar archive.",
    "branch": "List, rename or delete branches.",
    "tag": "List, make or delete tags.",
    "op": "Show the operation log.",
    "workspaces": "List workspaces.",
    "servers": "List the processes that serve history mounts.",
    "path": "Print where a workspace or a commit can be read.",
    "stats": "Show what the store holds and how large it is.",
    "gc": "Free what nothing needs any more.",
    "lab": "Measure file systems: ours and others, honestly.",
    "doctor": "Check what this machine offers and how to mend what is missing.",
    "completion": "Print the shell's completion script.",
    "version": "Print the version.",
}


def main(arguments: list[str] | None = None) -> NoReturn:
    """The entry point of `atoll`."""
    from atoll.cli.app import run

    sys.exit(run(sys.argv[1:] if arguments is None else arguments))
