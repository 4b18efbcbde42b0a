"""`atoll diff`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from atoll.cli import common, output
from atoll.cli.status import print_changes

if TYPE_CHECKING:
    from atoll.history import Change
    from atoll.store import Store


@click.command("diff", **common.COMMAND)
@click.argument("old", required=False, shell_complete=common.REF)
@click.argument("new", required=False, shell_complete=common.REF)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--stat", "as_stat", is_flag=True, help="Lines or bytes for each path, and a sum.")
@click.option("--patch", "-p", is_flag=True, help="A patch that `git apply --binary` accepts.")
@click.option("--name-only", is_flag=True, help="Only the paths.")
@common.z_option
@click.option("--exit-code", is_flag=True, help="End with 1 when something differs.")
@common.store_option
@common.json_option
def command(
    old: str | None,
    new: str | None,
    paths: tuple[str, ...],
    as_stat: bool,
    patch: bool,
    name_only: bool,
    null: bool,
    exit_code: bool,
    store: str | None,
    as_json: bool,
) -> int:
    """Show what differs from OLD to NEW. With one commit, what differs from the commit that it was forked at;
    without any, what the current workspace changed since its last commit.

    Letters: A added, D deleted, M modified, R renamed, T another kind of file, m only mode, owner or
    attributes. A renamed folder is one line.

    \b
    Examples:
      atoll diff main a1
      atoll diff main a1 --patch -- src docs
      atoll diff a1 --stat
      atoll diff main a1 --name-only -z | xargs -0 ls
    """
    from atoll.errors import Usage

    opened = common.open_store(store)
    if old is None:
        if patch or as_stat:
            raise Usage("A patch needs two commits; commit the workspace first.")
        changes = list(common.workspace_of(store, None).status().changes)
        before = after = None
    else:
        before, after = _commits(opened, old, new)
        changes = opened.diff(before, after)
    changes = _within(changes, paths)
    if as_json:
        document = {
            "old": before,
            "new": after,
            "changes": [output.change_json(change) for change in changes],
        }
        output.print_json(document)
    elif patch and before is not None and after is not None:
        sys.stdout.buffer.write(opened.patch(before, after, paths))
        sys.stdout.buffer.flush()
    elif as_stat and before is not None and after is not None:
        _print_stat(opened, before, after, paths)
    elif name_only or null:
        output.print_names((change.path_bytes for change in changes), null)
    elif changes:
        print_changes(changes)
    return 1 if exit_code and changes else 0


def _commits(store: Store, old: str, new: str | None) -> tuple[str, str]:
    if new is not None:
        return store.resolve(old), store.resolve(new)
    raw = store.native.get_ref("branch", old)
    if raw is not None:
        return raw["base"], raw["commit"]
    commit = store.commit(old)
    return (commit.parents[0] if commit.parents else commit.id), commit.id


def _within(changes: list[Change], paths: tuple[str, ...]) -> list[Change]:
    from atoll.browsing import clean

    wanted = [clean(path) for path in paths]
    if not wanted:
        return changes

    def inside(path: bytes | None) -> bool:
        return path is not None and any(
            not top or path == top or path.startswith(top + b"/") for top in wanted
        )

    return [change for change in changes if inside(change.path_bytes) or inside(change.old_path_bytes)]


def _print_stat(store: Store, old: str, new: str, paths: tuple[str, ...]) -> None:
    from atoll import _native
    from atoll.browsing import clean

    rows = _native.diff_stat(store.native, old, new, [clean(path) for path in paths])
    width = max((len(output.shown(row["path"])) for row in rows), default=0)
    added = deleted = 0
    for row in rows:
        name = output.shown(row["path"]).ljust(width)
        if row["binary"]:
            print(f" {name} | Bin {row['old_size']} -> {row['new_size']} bytes")
            continue
        added += row["added"]
        deleted += row["deleted"]
        plus = output.colour(f"+{row['added']}", "green")
        minus = output.colour(f"-{row['deleted']}", "red")
        print(f" {name} | {plus} {minus}")
    print(f" {len(rows)} files changed, {added} insertions(+), {deleted} deletions(-)")
