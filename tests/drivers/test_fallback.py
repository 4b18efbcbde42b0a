"""Where the better driver cannot be had: what is said, and what is taken instead."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import atoll
from atoll.errors import Unsupported
from scripts.leftovers import processes_of


@pytest.fixture
def on_overlay(home: Path) -> Iterator[Path]:
    """A folder on an overlay, as everything in a container is."""
    for name in ("lower", "upper", "work", "merged"):
        (home / name).mkdir()
    options = ",".join(f"{name}dir={home / name}" for name in ("lower", "upper", "work"))
    merged = home / "merged"
    mount = ["mount", "-t", "overlay", "overlay", "-o", options, str(merged)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"overlay: {done.stderr.strip()}")
    yield merged
    deadline = time.monotonic() + 15
    while processes_of(str(home)) and time.monotonic() < deadline:
        time.sleep(0.05)  # the history server has the store open until it ends by itself
    subprocess.run(["umount", str(merged)], check=True)


@pytest.mark.overlay
def test_a_store_on_an_overlay_says_so_and_takes_a_copy(project: Path, on_overlay: Path) -> None:
    folder = on_overlay / "store"
    with atoll.create(folder) as store:
        store.import_folder(project, branch="main")
        notes: list[str] = []
        with store.fork("main", "a").mount(note=notes.append) as ws:
            assert ws.driver == "copy"
        (said,) = notes
        assert f"{folder} is on an overlay itself" in said
        assert f"docker run -v atoll:{folder}'" in said and "--scratch memory" in said
        with pytest.raises(Unsupported, match="is on an overlay itself"):
            store.fork("main", "b").mount(driver="overlay")
        with store.mount("b", scratch="memory") as ws:
            assert ws.driver == "overlay"
            (ws.path / "new").touch()
            ws.commit("in memory")
        assert store.read("b", "new") == b""
