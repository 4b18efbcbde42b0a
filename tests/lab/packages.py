"""Packages that bring suites, targets or forms of report, made up by tests."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest


def install(
    site: Path, name: str, source: str, entry_points: Mapping[str, Sequence[str]], patch: pytest.MonkeyPatch
) -> None:
    """Makes a distribution of one module in `site`, found by this process and by those that it starts.
    `entry_points` has lines like "notes = lab_notes:Notes" by group."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (site / f"{name}.py").write_text(source)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n")
    lines = [line for group, entries in entry_points.items() for line in (f"[{group}]", *entries)]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    patch.syspath_prepend(site)
    patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")])))
