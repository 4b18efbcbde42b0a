"""`install` and `clone`, the inputs that they bring, and what they check."""

from __future__ import annotations

import base64
import email
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from atoll.lab import inputs
from atoll.lab.inputs import DATA
from atoll.lab.model import CheckFailed, Unavailable
from atoll.lab.suites import clone, install
from atoll.lab.trees import Tree, tree_of
from tests.lab.suites import figures, on_each_target, quick, work_in

needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is missing: Debian's package npm")
LOCKS = sorted(DATA.glob("npm-*/package-lock.json"))


@pytest.mark.network
@needs_npm
@on_each_target
def test_each_way_to_install_has_its_row_and_its_number_of_files(
    home: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    rows = figures(quick("install", target, home))
    assert {name: row.files for name, row in rows.items()} == {
        "npm ci, 3 packages": 62,
        "pip install": 9,
        "uv pip install": 9,
    }
    names = sorted(path.name.rpartition("-")[0] for path in (home / "cache" / "atoll" / "lab").iterdir())
    assert names == ["npm-small", "python-small"], "the packages are kept for the next run"


@needs_npm
def test_without_a_registry_the_suite_is_unavailable_with_a_sentence(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    nowhere = "http://127.0.0.1:9/"
    monkeypatch.setenv("npm_config_registry", nowhere)
    monkeypatch.setenv("PIP_INDEX_URL", nowhere)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    record = quick("install", "folder", home)
    assert record.unavailable and "is a package registry in reach?" in record.unavailable
    assert not list((home / "cache" / "atoll" / "lab").iterdir()), "half a cache was kept"


@on_each_target
def test_both_clones_have_their_row(home: Path, target: str) -> None:
    rows = figures(quick("clone", target, home))
    assert list(rows) == [clone.OVER_PROTOCOL, clone.LOCAL]
    # Python's package `email`, which is what a quick run clones.
    assert {row.files for row in rows.values()} == {_files_of_email()}


def _files_of_email() -> int:
    top = Path(email.__file__).parent
    return sum(path.is_file() and path.parent.name != "__pycache__" for path in top.rglob("*"))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.parent.name)
def test_a_lock_file_has_names_versions_and_no_address(lock: Path) -> None:
    packages = json.loads(lock.read_text())["packages"]
    assert len(packages) > 3
    for name, package in packages.items():
        assert "resolved" not in package, name
        assert package["version"] and (not name or package["integrity"]), name
    assert (lock.parent / "package.json").exists() and (lock.parent / "start.js").exists()


def test_the_requirements_are_pinned() -> None:
    for path in DATA.glob("python*/requirements.txt"):
        assert all("==" in line for line in path.read_text().splitlines()), path


@pytest.fixture
def tree(tmp_path: Path) -> tuple[Path, Tree]:
    folder = tmp_path / "tree"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "a").write_text("some bytes")
    (folder / "b").write_text("more")
    (folder / "link").symlink_to("b")
    return folder, tree_of(folder)


def _truncate(folder: Path) -> None:
    os.truncate(folder / "inner" / "a", 3)


def _change(folder: Path) -> None:
    (folder / "inner" / "a").write_text("Some bytes")


def _remove(folder: Path) -> None:
    (folder / "inner" / "a").unlink()


def _move(folder: Path) -> None:
    (folder / "inner" / "a").rename(folder / "a")


def _link(folder: Path) -> None:
    (folder / "link").unlink()
    (folder / "link").symlink_to("inner")


def _execute(folder: Path) -> None:
    (folder / "b").chmod(0o755)


@pytest.mark.parametrize("damage", [_truncate, _change, _remove, _move, _link, _execute])
def test_a_tree_that_is_not_the_same_is_seen(tree: tuple[Path, Tree], damage: Callable[[Path], None]) -> None:
    folder, whole = tree
    assert (whole.files, whole.bytes) == (3, len("some bytes") + len("more") + len("b"))
    install.check_tree(folder, whole)
    damage(folder)
    with pytest.raises(CheckFailed, match=r"tree has .* instead of 3"):
        install.check_tree(folder, whole)


def test_what_is_left_out_of_a_tree_is_only_at_its_top(tree: tuple[Path, Tree]) -> None:
    folder, whole = tree
    (folder / ".git").mkdir()
    (folder / ".git" / "config").touch()
    assert tree_of(folder, without=".git") == whole != tree_of(folder)
    (folder / "inner" / ".git").touch()
    assert tree_of(folder, without=".git").files == 4


def test_a_package_whose_file_was_changed_is_seen(tmp_path: Path) -> None:
    """A package as pip leaves it, whose record names the hash of its file."""
    site = tmp_path / "site-packages"
    (site / "thing-1.dist-info").mkdir(parents=True)
    (site / "thing.py").write_text("x = 1\n")
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"x = 1\n").digest()).decode().rstrip("=")
    (site / "thing-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: thing\nVersion: 1\n")
    (site / "thing-1.dist-info" / "RECORD").write_text(
        f"thing.py,sha256={digest},6\nthing-1.dist-info/METADATA,,\nthing-1.dist-info/RECORD,,\n"
    )
    whole = install.look_at(site)
    assert (whole.files, whole.hashed) == (3, 1)
    install.check_site(site, whole)
    (site / "thing.py").write_text("x = 2\n")
    with pytest.raises(CheckFailed, match="is not what its package holds"):
        install.check_site(site, whole)
    (site / "thing.py").unlink()
    with pytest.raises(CheckFailed):
        install.check_site(site, whole)
    (site / "thing-1.dist-info" / "RECORD").write_text("")
    with pytest.raises(CheckFailed, match="0 of them recorded"):
        install.check_site(site, whole)


def _lose_an_object(copy: Path) -> None:
    pack = next((copy / ".git" / "objects" / "pack").glob("*.pack"))
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 0xFF
    pack.chmod(0o644)
    pack.write_bytes(data)


def _lose_a_file(copy: Path) -> None:
    next((copy / "email").glob("*.py")).unlink()


def _same_size_other_bytes(copy: Path) -> None:
    """What git status does not see: it compares sizes and times only."""
    file = copy / "email" / "message.py"
    found = file.stat()
    data = file.read_bytes()
    with file.open("r+b") as opened:
        opened.write(b"!" + data[1:])
    os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))


@pytest.mark.parametrize("damage", [_lose_an_object, _lose_a_file, _same_size_other_bytes])
def test_a_clone_that_lost_something_is_seen(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    source = clone._small(tmp_path)
    subprocess.run(["git", "clone", "-q", str(source / "bare.git"), "copy"], cwd=tmp_path, check=True)
    tree, copy = inputs.saved_tree(source), tmp_path / "copy"
    clone.check(work_in(tmp_path), copy, tree)
    damage(copy)
    with pytest.raises(CheckFailed):
        clone.check(work_in(tmp_path), copy, tree)


def test_inputs_are_made_once_and_a_failure_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "file").touch()

    def fail(folder: Path) -> None:
        make(folder)
        raise Unavailable("no network")

    with pytest.raises(Unavailable):
        inputs.kept("thing", b"1", fail)
    assert not list((tmp_path / "atoll" / "lab").iterdir())
    first = inputs.kept("thing", b"1", make)
    assert inputs.kept("thing", b"1", make) == first and (first / "file").exists()
    assert inputs.kept("thing", b"2", make) != first
    assert len(made) == 3


def test_a_command_that_fails_says_its_error(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="ERROR: no such thing"):
        code = "import sys; print('notice\\nERROR: no such thing\\nbye', file=sys.stderr); sys.exit(1)"
        inputs.run([sys.executable, "-c", code], tmp_path)
    with pytest.raises(Unavailable, match="no-such-program is missing"):
        inputs.run(["no-such-program"], tmp_path)
