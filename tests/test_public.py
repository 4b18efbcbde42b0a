"""The public names: sorted, lazy, all there."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import atoll
import atoll.lab

MODULES = [atoll, atoll.lab]


@pytest.mark.parametrize("module", MODULES)
def test_all_is_sorted(module: ModuleType) -> None:
    assert module.__all__ == sorted(module.__all__)
    assert dir(module) == module.__all__


@pytest.mark.parametrize(("module", "name"), [(each, name) for each in MODULES for name in each.__all__])
def test_each_name_is_there(module: ModuleType, name: str) -> None:
    assert getattr(module, name) is not None


@pytest.mark.parametrize("module", MODULES)
def test_an_unknown_name_is_an_attribute_error(module: ModuleType) -> None:
    with pytest.raises(AttributeError):
        _ = module.nonsense


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
