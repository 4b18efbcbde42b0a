"""Real pnpm in a workspace: packages are hard links into a store of pnpm's own."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.compat.conftest import Bench, Tools

pytestmark = pytest.mark.network


def pnpm(tools: Tools, *words: str, cwd: str | os.PathLike[str]) -> str:
    """pnpm with its store beside the application, links where they can be had, and no questions."""
    settings = {
        "npm_config_store_dir": ".pnpm-store",
        "npm_config_package_import_method": "hardlink",
        "npm_config_manage_package_manager_versions": "false",
        "CI": "1",
    }
    return tools("pnpm", *words, cwd=cwd, env=settings)


def application(folder: Path, dependencies: dict[str, str]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "package.json").write_text(json.dumps({"name": "app", "dependencies": dependencies}))


def test_pnpm_twice_in_one_workspace(bench: Bench, tools: Tools) -> None:
    """Case 16: a second application that installs the same package gets hard links to the inherited store of
    pnpm: one inode, the right link count, in the workspace, after a remount and in a fork."""
    tools("pnpm", "--version", cwd=bench.project)
    application(bench.project, {"left-pad": "1.3.0"})
    pnpm(tools, "install", cwd=bench.project)
    source = (bench.project / "node_modules" / "left-pad" / "index.js").stat()
    if source.st_nlink < 2:
        pytest.skip("pnpm makes no hard links here even outside of a workspace")
    bench.imported()

    def links(folder: Path) -> tuple[int, int]:
        file = (folder / "node_modules" / "left-pad" / "index.js").stat()
        return file.st_ino, file.st_nlink

    ws = bench.fork("a")
    assert links(ws.path)[1] == source.st_nlink
    application(ws.path / "second", {"left-pad": "1.3.0"})
    second = (
        "install",
        "--ignore-workspace",
        "--dir",
        "second",
        "--store-dir",
        os.fspath(ws.path / ".pnpm-store"),
    )
    pnpm(tools, *second, "--offline", cwd=ws)
    assert links(ws.path / "second") == links(ws.path)
    assert links(ws.path)[1] == source.st_nlink + 1
    ws = bench.remounted(ws)
    # pnpm moves and removes what is inherited now.
    pnpm(tools, "install", "--force", "--offline", cwd=ws)
    ws = bench.remounted(ws)
    with bench.fork("b", "a") as fork, ws:
        for folder in (ws.path, fork.path):
            assert links(folder / "second") == links(folder)
            assert links(folder)[1] == source.st_nlink + 1
            assert tools("node", "-p", "require('left-pad')('x', 3)", cwd=folder / "second") == "  x\n"
        listed = json.loads(pnpm(tools, "ls", "--json", cwd=ws))
        assert listed[0]["dependencies"]["left-pad"]["version"] == "1.3.0"
        pnpm(tools, "store", "status", cwd=ws)


def test_a_store_elsewhere_is_another_device(bench: Bench, tools: Tools, home: Path) -> None:
    """Case 16: a link from outside into a workspace is EXDEV, as between any two mounts, and pnpm copies
    instead."""
    application(bench.project, {"left-pad": "1.3.0"})
    bench.imported()
    with bench.fork("a") as ws:
        if bench.overlay:
            (home / "outside").touch()
            with pytest.raises(OSError, match="cross-device"):
                os.link(home / "outside", ws.path / "inside")
        words = ("install", "--store-dir", os.fspath(home / "pnpm"), "--config.package-import-method=auto")
        tools("pnpm", *words, cwd=ws, env={"CI": "1"})
        assert tools("node", "-p", "require('left-pad')('x', 3)", cwd=ws) == "  x\n"
        ws.commit("installed")
