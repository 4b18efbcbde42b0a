"""Real npm and node in a workspace, on an inherited node_modules."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.compat.conftest import Bench, Tools

pytestmark = pytest.mark.network

PACKAGES = {"left-pad": "1.3.0", "is-odd": "3.0.1"}


def app(tools: Tools, folder: Path) -> None:
    """A small application, installed; its own cache below the test's home."""
    (folder / "package.json").write_text(
        json.dumps({"name": "app", "version": "1.0.0", "bin": "./cli.js", "dependencies": PACKAGES})
    )
    (folder / "cli.js").write_text(
        "#!/usr/bin/env node\nconsole.log(require('left-pad')('x', 3), require('is-odd')(3))\n"
    )
    (folder / "cli.js").chmod(0o755)
    npm(tools, "install", cwd=folder)


def npm(tools: Tools, *words: str, cwd: str | os.PathLike[str], code: int = 0) -> str:
    """npm without audit, funding and notices, which would ask the network."""
    quiet = ("--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")
    return tools("npm", *words, *quiet, cwd=cwd, code=code)


def whole(tools: Tools, folder: str | os.PathLike[str]) -> None:
    """npm finds the tree as package-lock.json says, and node finds the packages."""
    problems = json.loads(npm(tools, "ls", "--all", "--json", cwd=folder))
    assert "problems" not in problems
    assert tools("node", "cli.js", cwd=folder) == "  x true\n"


def test_npm_on_an_inherited_tree(bench: Bench, tools: Tools) -> None:
    """install, ci, dedupe, rebuild and uninstall on inherited packages; after a remount and in a fork npm and
    node find what they left."""
    tools("node", "--version", cwd=bench.project)
    app(tools, bench.project)
    bench.imported()
    ws = bench.fork("a")
    whole(tools, ws)
    # A clean install removes the inherited tree and writes it anew, from the cache.
    npm(tools, "ci", "--prefer-offline", cwd=ws)
    whole(tools, ws)
    ws = bench.remounted(ws)
    # On what is inherited now: a package is replaced, one goes, one is linked.
    npm(tools, "uninstall", "left-pad", cwd=ws)
    linked = ws.path / "packages" / "own"
    linked.mkdir(parents=True)
    (linked / "package.json").write_text('{"name": "own", "version": "1.0.0", "main": "own.js"}')
    (linked / "own.js").write_text("module.exports = 'own'\n")
    npm(tools, "install", "is-number@7.0.0", "left-pad@1.2.0", "./packages/own", "--prefer-offline", cwd=ws)
    os.rename(ws.path / "node_modules" / "is-odd", ws.path / "node_modules" / "is-odd.away")
    os.rename(ws.path / "node_modules" / "is-odd.away", ws.path / "node_modules" / "is-odd")
    npm(tools, "rebuild", cwd=ws)
    ws = bench.remounted(ws)
    with bench.fork("b", "a") as fork, ws:
        for folder in (ws.path, fork.path):
            whole(tools, folder)
            assert tools("node", "-p", "require('own') + require('is-number')(5)", cwd=folder) == "owntrue\n"
            version = tools("node", "-p", "require('left-pad/package.json').version", cwd=folder)
            assert version == "1.2.0\n"
            assert (folder / "node_modules" / "own").is_symlink()
    # The folder that was imported is as npm left it.
    whole(tools, bench.project)
    assert json.loads((bench.project / "package.json").read_text())["dependencies"] == PACKAGES


def test_npm_ci_of_the_same_packages_is_nearly_free(bench: Bench, tools: Tools) -> None:
    """Case 18: a workspace in which everything was installed anew stores no content again."""
    app(tools, bench.project)
    (bench.project / "node_modules" / "big.bin").write_bytes(os.urandom(4 << 20))
    bench.imported()
    before = bench.store.stats()["pack_bytes"]
    for number in range(2):
        ws = bench.fork(f"w{number}")
        data = (ws.path / "node_modules" / "big.bin").read_bytes()
        npm(tools, "ci", "--prefer-offline", cwd=ws)
        (ws.path / "node_modules" / "big.bin").write_bytes(data)
        ws.commit("installed")
        assert not ws.umount().kept
        assert bench.store.read(f"w{number}", "node_modules/big.bin") == data
    # Names, times and numbers are new, 4 MiB of contents are not.
    assert bench.store.stats()["pack_bytes"] - before < 200_000
