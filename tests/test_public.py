"""The public names: sorted, lazy, all there."""

from __future__ import annotations

import subprocess
import sys

import pytest

import atoll


def test_all_is_sorted() -> None:
    assert atoll.__all__ == sorted(atoll.__all__)


@pytest.mark.parametrize("name", atoll.__all__)
def test_each_name_is_there(name: str) -> None:
    assert getattr(atoll, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        _ = atoll.nonsense


def test_importing_atoll_imports_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import atoll; print(sorted(set(sys.modules) - before))"
    line = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, timeout=30
    ).stdout
    assert "atoll._native" not in line
    assert "asyncio" not in line


def test_the_command_line_imports_no_rich_and_no_asyncio() -> None:
    code = (
        "import sys\nfrom atoll.cli.app import run\nrun(['--help'])\n"
        "wrong = {'rich', 'asyncio', 'atoll._native'} & set(sys.modules)\n"
        "print(sorted(wrong), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stderr.strip() == "[]"
