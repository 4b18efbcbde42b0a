"""Real venv, pip and uv in a workspace, on inherited environments."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from atoll.workspace import Workspace
from tests.compat.conftest import Bench, Tools

pytestmark = pytest.mark.network


@pytest.fixture
def python(tools: Tools, home: Path) -> Tools:
    """Tools whose pip and uv keep their caches in the test's home."""
    own = {
        "PIP_CACHE_DIR": os.fspath(home / "pip"),
        "PIP_NO_INPUT": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "UV_PYTHON": sys.executable,
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_CONFIG": "1",
    }
    # `make` is quiet, and then pip says nothing of what is read here.
    for name in ("VIRTUAL_ENV", "UV_CACHE_DIR", "PIP_FIND_LINKS", "PIP_QUIET"):
        tools.env.pop(name, None)
    tools.env.update(own)
    return tools


def test_a_venv_in_a_workspace(bench: Bench, python: Tools) -> None:
    """Case 35: `python -m venv` and pip install: absolute links stay what they are, and pip's own check holds
    after a remount, also when what it replaces is inherited."""
    bench.imported()
    ws = bench.fork("a")
    python(sys.executable, "-m", "venv", ".venv", cwd=ws)
    pip = (".venv/bin/python", "-m", "pip")
    python(*pip, "install", "-q", "six==1.16.0", cwd=ws)
    links = [path for path in (ws.path / ".venv" / "bin").iterdir() if path.is_symlink()]
    targets = {path.name: os.readlink(path) for path in links}
    assert any(os.path.isabs(target) for target in targets.values())
    ws = bench.remounted(ws)
    assert {name: os.readlink(ws.path / ".venv" / "bin" / name) for name in targets} == targets
    assert python(".venv/bin/python", "-c", "import six; print(six.__version__)", cwd=ws) == "1.16.0\n"
    python(*pip, "install", "-q", "six==1.17.0", cwd=ws)
    with bench.remounted(ws) as ws:
        assert python(".venv/bin/python", "-c", "import six; print(six.__version__)", cwd=ws) == "1.17.0\n"
        assert python(*pip, "check", cwd=ws) == "No broken requirements found.\n"
        python(*pip, "uninstall", "-q", "-y", "six", cwd=ws)
        assert not list((ws.path / ".venv").glob("lib/*/site-packages/six*"))


def at_project(ws: Workspace, python: Tools, *words: str) -> str:
    """Runs a command that sees the workspace at the path that was imported."""
    done = ws.run(words, env=python.env, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return str(done.stdout)


def test_pip_in_the_projects_own_venv(bench: Bench, python: Tools) -> None:
    """An environment that was made in the project is upgraded in one workspace and in a fork of that, and the
    project's own stays as it was."""
    python(sys.executable, "-m", "venv", "--without-pip", ".venv", cwd=bench.project)
    pip = (sys.executable, "-m", "pip", "--python", ".venv/bin/python")
    python(*pip, "install", "-q", "six==1.16.0", cwd=bench.project)
    bench.imported()
    ws = bench.fork("a")
    at_project(ws, python, *pip, "install", "-q", "six==1.17.0")
    at_project(ws, python, *pip, "check")
    version = ("-c", "import six; print(six.__version__, six.__file__)")
    ws.commit("upgraded")
    with bench.fork("b", "a") as fork, ws:
        for each in (ws, fork):
            number, place = at_project(each, python, ".venv/bin/python", *version).split()
            assert number == "1.17.0" and place.startswith(f"{bench.project}/.venv/")
        at_project(fork, python, *pip, "uninstall", "-q", "-y", "six")
        assert "six" in at_project(ws, python, *pip, "list")
        fork.commit("without")
    assert python(".venv/bin/python", *version, cwd=bench.project).startswith("1.16.0 ")


UV_PROJECT = """
[project]
name = "app"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["iniconfig==2.0.0"]
"""


def test_uv_sync_links_from_its_cache(bench: Bench, python: Tools) -> None:
    """Case 16: `uv sync` twice with its cache in the workspace: hard links between the inherited cache and a
    new environment, with the right count and one inode, after a remount too."""
    python("uv", "--version", cwd=bench.project)
    python.env |= {"UV_LINK_MODE": "hardlink", "UV_CACHE_DIR": ".uv-cache"}
    (bench.project / "pyproject.toml").write_text(UV_PROJECT)
    python("uv", "sync", "-q", cwd=bench.project)
    bench.imported()

    def linked(folder: Path, venv: str) -> tuple[int, int]:
        (file,) = (folder / venv).glob("lib/*/site-packages/iniconfig/__init__.py")
        return file.stat().st_ino, file.stat().st_nlink

    assert linked(bench.project, ".venv")[1] == 2
    ws = bench.fork("a")
    assert linked(ws.path, ".venv")[1] == 2
    python("uv", "sync", "-q", "--offline", "--locked", cwd=ws, env={"UV_PROJECT_ENVIRONMENT": "second"})
    assert linked(ws.path, "second") == (linked(ws.path, ".venv")[0], 3)
    ws = bench.remounted(ws)
    assert linked(ws.path, "second") == (linked(ws.path, ".venv")[0], 3)
    # The first environment is made anew over what is inherited, and its links again.
    python("uv", "venv", "-q", "--clear", ".venv", cwd=ws)
    python("uv", "sync", "-q", "--offline", "--locked", cwd=ws)
    with bench.remounted(ws) as ws:
        assert linked(ws.path, "second") == (linked(ws.path, ".venv")[0], 3)
        for venv in (".venv", "second"):
            python("uv", "pip", "check", "--python", f"{venv}/bin/python", cwd=ws)
            code = "import iniconfig, sys; print(iniconfig.__file__.startswith(sys.prefix))"
            assert python(f"{venv}/bin/python", "-c", code, cwd=ws) == "True\n"
        python("uv", "sync", "-q", "--offline", "--locked", "--check", cwd=ws)
        python("uv", "cache", "prune", "-q", cwd=ws)


def test_links_that_lead_anywhere(bench: Bench, tools: Tools) -> None:
    """Case 35: a link's target is opaque: absolute, dangling, of 4095 bytes, in bytes that are no text; its
    owner may set its times."""
    targets = [b"/etc/hostname", b"no/where", b"x" * 4095, b"caf\xe9/\xff\n", b"..", b"/", b"./a//b/"]
    for number, target in enumerate(targets[:4]):
        os.symlink(target, os.fsencode(bench.project) + b"/base%d" % number)
    bench.imported()
    ws = bench.fork("a")
    root = os.fsencode(ws.path)
    for number, target in enumerate(targets):
        os.symlink(target, root + b"/link%d" % number)
        os.utime(root + b"/link%d" % number, ns=(1, 981173106123456789), follow_symlinks=False)
    os.utime(root + b"/base1", ns=(1, 981173106000000001), follow_symlinks=False)
    os.rename(root + b"/base2", root + b"/moved")
    with bench.remounted(ws) as ws:
        for number, target in enumerate(targets):
            assert os.readlink(root + b"/link%d" % number) == target
            assert os.lstat(root + b"/link%d" % number).st_mtime_ns == 981173106123456789
            assert os.lstat(root + b"/link%d" % number).st_size == len(target)
        assert os.lstat(root + b"/base1").st_mtime_ns == 981173106000000001
        assert os.readlink(root + b"/base1") == targets[1] and os.readlink(root + b"/moved") == targets[2]
