"""`python -m scripts.lab_docs`: writes what the lab says of its suites and targets into docs/LAB.md."""

from __future__ import annotations

import textwrap
from pathlib import Path

from atoll.lab import registry

PAGE = Path(__file__).resolve().parents[1] / "docs" / "LAB.md"
WIDTH = 120


def suites() -> str:
    """A paragraph for each suite of our own."""
    parts = []
    for name in registry.SUITES:
        suite = registry.suite(name)
        parts.append(_wrapped(f"**{name}**: {suite.title}. {suite.about}"))
    return "\n\n".join(parts)


def targets() -> str:
    """A line for each kind of target of our own, and one for each of its settings."""
    lines = []
    kinds = registry.target_kinds()
    for kind in registry.TARGETS:
        target = kinds[kind]
        written = [f"{kind}:{each}" for each in target.arguments] or [target.syntax or kind]
        lines.append(_wrapped(f"* {', '.join(f'`{each}`' for each in written)}: {target.title}", "  "))
        for key, meaning in (target.keys or {}).items():
            lines.append(_wrapped(f"  * `{key}=`: {meaning}", "    "))
    return "\n".join(lines)


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, WIDTH, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )


def page(text: str) -> str:
    """The page with its two sections brought up to date."""
    for name, made in (("suites", suites()), ("targets", targets())):
        head, begin, rest = text.partition(f"<!-- {name}: written by `python -m scripts.lab_docs` -->\n")
        text = f"{head}{begin}\n{made}\n\n{rest[rest.index('<!-- end -->') :]}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
