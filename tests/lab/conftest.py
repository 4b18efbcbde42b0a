"""What the tests of the lab share: a package with suites and a target of its own, and what is left over."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.lab import lab_example


@pytest.fixture
def example(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installs `lab_example` as another package's distribution, for this process and for those of samples."""
    site = home / "site"
    info = site / "lab_example-1.0.dist-info"
    info.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("lab_example.py"), site)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lab-example\nVersion: 1.0\n")
    suites = [f"{suite.name} = lab_example:{suite.__name__}" for suite in lab_example.SUITES]
    lines = ["[atoll.lab.suites]", *suites, "[atoll.lab.targets]", "plain = lab_example:Plain"]
    # Ours cannot be replaced.
    lines += ["tmpfs = lab_example:Plain", ""]
    (info / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")])))
    monkeypatch.setenv("LAB_EXAMPLE_BEGAN", str(home / "began"))


@pytest.fixture
def place(home: Path) -> Path:
    """A folder on the disk for the lab's own files."""
    folder = home / "place"
    folder.mkdir()
    return folder
