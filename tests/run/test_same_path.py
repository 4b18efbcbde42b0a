"""The reason for the same path: what was installed in the project names its own folder, and must mean the
workspace."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.run.conftest import Person

# A build backend in the tree, so that `pip install -e .` needs no network and no setuptools.
BACKEND = """
import os, zipfile

def _wheel(directory, files):
    name = "tiny-1.0-py3-none-any.whl"
    info = "tiny-1.0.dist-info"
    files = dict(files)
    files[f"{info}/METADATA"] = "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    files[f"{info}/entry_points.txt"] = "[console_scripts]\\ntiny = tiny:main\\n"
    record = "".join(f"{path},,\\n" for path in files) + f"{info}/RECORD,,\\n"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as archive:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)
    return name

def build_editable(directory, config_settings=None, metadata_directory=None):
    return _wheel(directory, {"__editable__.tiny.pth": os.path.join(os.getcwd(), "src") + "\\n"})

def build_wheel(directory, config_settings=None, metadata_directory=None):
    with open("src/tiny.py") as file:
        return _wheel(directory, {"tiny.py": file.read()})
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "tiny"
version = "1.0"
"""
MODULE = 'import os\nVALUE = "original"\n\n\ndef main():\n    print(VALUE, os.path.abspath(__file__))\n'


def python_project(person: Person) -> Path:
    folder = person.home / "src" / "tiny"
    (folder / "src").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "backend.py").write_text(BACKEND)
    (folder / "src" / "tiny.py").write_text(MODULE)
    (folder / "current").symlink_to(folder / "src")
    if person.uid != os.geteuid():
        person.own(person.home / "src")
    made = person.do("/usr/bin/env", "python3", "-m", "venv", ".venv", cwd=folder, timeout=110)
    if made.returncode != 0:
        pytest.skip(f"python3 -m venv does not work here: {made.stderr or made.stdout}")
    install(person, folder)
    return folder


PIP = [
    ".venv/bin/pip",
    "--isolated",
    "--no-input",
    "--disable-pip-version-check",
    "--no-cache-dir",
    "install",
    "-q",
    "--no-index",
]


def install(person: Person, folder: Path) -> None:
    done = person.do(*PIP, "--no-build-isolation", "-e", ".", cwd=folder, timeout=110)
    assert done.returncode == 0, done.stderr


def run(person: Person, folder: Path, *words: str, name: str) -> subprocess.CompletedProcess[str]:
    return person.atoll("run", "--name", name, "--", *words, cwd=folder, timeout=110)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_editable_install_is_the_workspaces_own(person: Person) -> None:
    folder = python_project(person)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    person.atoll("import", cwd=folder)

    # The console script (by its shebang), the interpreter and the absolute link all lead into the workspace.
    change = "sed -i s/original/changed/ src/tiny.py"
    script = (
        f"{change}; .venv/bin/tiny; .venv/bin/python -c 'import tiny; tiny.main()'; head -2 current/tiny.py"
    )
    done = run(person, folder, "sh", "-c", script, name="edit")
    lines = done.stdout.splitlines()
    assert lines[:2] == [f"changed {folder}/src/tiny.py"] * 2
    assert lines[3] == 'VALUE = "changed"'

    # pip writes into the workspace.
    script = " ".join([*PIP, "--no-build-isolation", "--force-reinstall", "."])
    run(person, folder, "sh", "-c", script, name="install")
    listed = person.json("diff", "main", "install", cwd=folder)["changes"]
    assert any(change["path"].endswith("site-packages/tiny.py") for change in listed)

    after = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    assert after == before
    assert 'VALUE = "original"' in (folder / "src" / "tiny.py").read_text()

    # Where it is mounted, the same files lead out, and that is said.
    person.atoll("fork", "main", "plain", cwd=folder)
    mounted = person.atoll("mount", "plain", cwd=folder)
    try:
        for named in ("pyvenv.cfg", "shebang .venv/bin/", "__editable__", "link current"):
            assert named in mounted.stderr
        place = Path(mounted.stdout.strip())
        leads_out = person.do(".venv/bin/tiny", cwd=place).stdout
        assert leads_out == f"original {folder}/src/tiny.py\n"
        # A command in the same workspace stays inside.
        done = person.atoll("exec", "plain", "--", ".venv/bin/tiny", cwd=folder)
        assert done.stdout == f"original {folder}/src/tiny.py\n"
        person.do("sed", "-i", "s/original/mounted/", "src/tiny.py", cwd=place)
        done = person.atoll("exec", "plain", "--", ".venv/bin/tiny", cwd=folder)
        assert done.stdout == f"mounted {folder}/src/tiny.py\n"
    finally:
        person.atoll("drop", "plain", cwd=folder)
