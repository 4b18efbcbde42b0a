"""Every code of the core has one class, one exit code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from atoll import errors

ROOT = Path(__file__).resolve().parents[1]


def codes_of_the_core() -> list[str]:
    text = (ROOT / "crates/atoll-store/src/error.rs").read_text()
    return re.findall(r'Code::\w+ => "(\w+)"', text)


def test_the_core_names_codes() -> None:
    assert len(codes_of_the_core()) >= 18


@pytest.mark.parametrize("code", codes_of_the_core())
def test_each_code_has_its_class(code: str) -> None:
    error = errors.from_code(code, "A sentence.", 5)
    assert type(error) is not errors.AtollError
    assert (error.code, error.message, str(error), error.errno) == (code, "A sentence.", "A sentence.", 5)
    assert error.exit_code != 70


def test_an_unknown_code_is_an_internal_error() -> None:
    assert errors.from_code("nonsense", "A sentence.").exit_code == 70


def test_all_is_sorted_and_whole() -> None:
    classes = [name for name, value in vars(errors).items() if isinstance(value, type)]
    mine = {name for name in classes if getattr(errors, name).__module__ == "atoll.errors"}
    assert errors.__all__ == sorted(errors.__all__)
    assert mine <= set(errors.__all__)
