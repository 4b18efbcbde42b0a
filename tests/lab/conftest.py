"""What the tests of the lab share: a package with suites and a target of its own, and what is left over."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab import lab_example
from tests.lab.packages import install


@pytest.fixture
def example(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installs `lab_example` as another package's distribution, for this process and for those of samples."""
    entry_points = {
        "atoll.lab.suites": [f"{suite.name} = lab_example:{suite.__name__}" for suite in lab_example.SUITES],
        # Ours cannot be replaced.
        "atoll.lab.targets": ["plain = lab_example:Plain", "tmpfs = lab_example:Plain"],
    }
    source = Path(__file__).with_name("lab_example.py").read_text()
    install(home / "site", "lab_example", source, entry_points, monkeypatch)
    monkeypatch.setenv("LAB_EXAMPLE_BEGAN", str(home / "began"))


@pytest.fixture
def place(home: Path) -> Path:
    """A folder on the disk for the lab's own files."""
    folder = home / "place"
    folder.mkdir()
    return folder
