"""The registry of project folders and mount points."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from atoll import finding, registry
from atoll.errors import NoStore
from atoll.places import data_home, default_store


def test_a_project_is_found_from_below(home: Path) -> None:
    project = home / "app"
    (project / "a" / "b").mkdir(parents=True)
    registry.record("project", project, home / "store")
    assert registry.project_of(project / "a" / "b") == (project, home / "store")
    assert registry.project_of(home) is None


def test_the_nearest_project_wins(home: Path) -> None:
    inner = home / "app" / "vendor"
    inner.mkdir(parents=True)
    registry.record("project", home / "app", home / "outer-store")
    registry.record("project", inner, home / "inner-store")
    assert registry.project_of(inner) == (inner, home / "inner-store")


def test_names_that_are_not_utf8(home: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(home) + b"/caf\xe9"))
    folder.mkdir()
    registry.record("project", folder, home / "store")
    assert registry.project_of(folder) == (folder, home / "store")


def test_a_forgotten_folder_and_a_damaged_file_are_no_error(home: Path) -> None:
    registry.record("workspace", home, home / "store")
    registry.forget("workspace", home)
    registry.forget("workspace", home)
    assert registry.workspace_of(home) is None
    registry.record("workspace", home, home / "store")
    for file in (data_home() / "registry").iterdir():
        file.write_text("{")
    assert registry.workspace_of(home) is None


def test_many_writers_at_once(home: Path) -> None:
    folders = [home / f"p{number}" for number in range(50)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda folder: registry.record("project", folder, folder / "store"), folders * 4))
    assert all(registry.find("project", folder) == folder / "store" for folder in folders)
    assert not list((data_home() / "registry").glob(".*"))


def test_the_order_in_which_a_store_is_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, workspace = home / "app", home / "ws"
    project.mkdir()
    workspace.mkdir()
    with pytest.raises(NoStore, match="atoll import"):
        finding.find_store(project)
    registry.record("project", project, home / "by-project")
    registry.record("workspace", workspace, home / "by-workspace")
    assert finding.find_store(project) == home / "by-project"
    assert finding.find_store(workspace) == home / "by-workspace"
    monkeypatch.setenv("ATOLL_STORE", str(home / "by-environment"))
    assert finding.find_store(project) == home / "by-environment"
    assert finding.find_store(project, home / "named") == home / "named"


def test_a_default_store_is_outside_of_the_project(home: Path) -> None:
    place = default_store(home / "my app!")
    assert place.parent == data_home() / "stores"
    assert place.name.startswith("my-app-")
    assert default_store(home / "other" / "my app!") != place
