"""The map of the code in CONTRIBUTING.md, checked: who imports what, file lengths, names not to appear."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python" / "atoll"
LONGEST_FILE = 600

# crate -> the crates of this workspace that it may use
CRATES: dict[str, set[str]] = {
    "atoll-store": set(),
    "atoll-fs": {"atoll-store"},
    "atoll-fuse": set(),
    "atoll-mount": {"atoll-store", "atoll-fs", "atoll-fuse"},
    "atoll-py": {"atoll-store", "atoll-fs", "atoll-mount"},
}

# outside crate -> the only crates that may use it
ONLY_IN: dict[str, set[str]] = {
    "pyo3": {"atoll-py"},
    "io-uring": {"atoll-fuse"},
    "libc": {"atoll-fuse"},
    "rusqlite": {"atoll-store"},
    "zstd": {"atoll-store"},
    "blake3": {"atoll-store"},
    "fastcdc": {"atoll-store", "atoll-fs"},
}

# crates that may hold `unsafe`
UNSAFE = {"atoll-fuse", "atoll-py"}

# first part of a module below atoll -> parts of atoll that it may not import
PYTHON_NEVER: dict[str, set[str]] = {
    "*": {"cli"},  # the command line is an adapter: nothing but itself knows it
    "drivers": {"run"},
    "errors": {"store", "workspace", "drivers", "run", "registry"},
}

# outside package -> the only part of atoll that may import it
PYTHON_ONLY_IN: dict[str, str] = {"click": "cli", "rich": "cli"}


def tracked(*patterns: str) -> list[Path]:
    """Files in git that match, with what is new and not ignored."""
    out = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout
    return [ROOT / name.decode() for name in out.split(b"\0") if name and (ROOT / name.decode()).is_file()]


def manifest(crate: str) -> dict[str, object]:
    with (ROOT / "crates" / crate / "Cargo.toml").open("rb") as file:
        return tomllib.load(file)


def dependencies(crate: str) -> set[str]:
    table = manifest(crate).get("dependencies", {})
    assert isinstance(table, dict)
    return set(table)


def test_every_crate_is_on_the_map() -> None:
    assert {path.parent.name for path in ROOT.glob("crates/*/Cargo.toml")} == set(CRATES)


@pytest.mark.parametrize("crate", CRATES)
def test_a_crate_uses_only_the_crates_below_it(crate: str) -> None:
    ours = {name for name in dependencies(crate) if name.startswith("atoll-")}
    assert ours <= CRATES[crate], f"{crate} may not depend on {sorted(ours - CRATES[crate])}"


@pytest.mark.parametrize("crate", CRATES)
def test_a_crate_uses_no_library_of_another_layer(crate: str) -> None:
    wrong = {name for name in dependencies(crate) if name in ONLY_IN and crate not in ONLY_IN[name]}
    assert not wrong, f"{crate} may not depend on {sorted(wrong)}"


@pytest.mark.parametrize("crate", CRATES)
def test_a_crate_takes_the_lints_of_the_workspace(crate: str) -> None:
    assert manifest(crate)["lints"] == {"workspace": True}


@pytest.mark.parametrize("crate", sorted(set(CRATES) - UNSAFE))
def test_no_unsafe_outside_fuse_and_bindings(crate: str) -> None:
    for path in tracked(f"crates/{crate}/src/*.rs"):
        text = path.read_text()
        assert "allow(unsafe_code)" not in text, f"{path.relative_to(ROOT)} allows unsafe code"


def modules() -> list[Path]:
    return [path for path in tracked("python/atoll/*.py") if path.suffix == ".py"]


def imports(path: Path) -> Iterator[str]:
    """Dotted names of the modules that a file of the package imports, at whatever depth."""
    package = path.relative_to(ROOT / "python").with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_bytes(), filename=str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package[: len(package) - node.level + 1]
                base = ".".join((*above, base) if base else above)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def part(path: Path) -> str:
    """The part of the package that a file belongs to: its folder, or its own name at the top."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def test_python_parts_keep_to_their_layer() -> None:
    wrong = []
    for path in modules():
        here = part(path)
        forbidden = PYTHON_NEVER.get(here, set()) | (PYTHON_NEVER["*"] if here != "cli" else set())
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "atoll" and len(parts) > 1 and parts[1] in forbidden and parts[1] != here:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
            if parts[0] in PYTHON_ONLY_IN and here != PYTHON_ONLY_IN[parts[0]]:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_importing_the_package_loads_neither_the_core_nor_the_command_line() -> None:
    code = "import sys, atoll; print([m for m in sys.modules if m.startswith(('atoll.', 'click', 'rich'))])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert out.stdout.strip() == "[]", f"`import atoll` loads {out.stdout.strip()}"


@pytest.mark.parametrize("suffix", ["py", "rs"])
def test_no_file_is_too_long(suffix: str) -> None:
    lengths = {path: path.read_bytes().count(b"\n") for path in tracked(f"*.{suffix}")}
    long = [f"{path.relative_to(ROOT)} has {n} lines" for path, n in lengths.items() if n > LONGEST_FILE]
    assert not long, f"split these, {LONGEST_FILE} lines are the limit: " + ", ".join(long)


# Written with classes so that this file does not match itself.
NEVER_NAMED = re.compile(
    r"/(wo[r]k|fa[r]m)/|/ro[o]t/\.|py[p]i\.or[g]|python[h]osted|crate[s]\.i[o]|npm[j]s\.(org|com)|debia[n]\.or[g]"
)


def test_no_file_names_a_registry_host_or_a_path_of_one_machine() -> None:
    wrong = []
    for path in tracked():
        # Cargo writes the name of its registry into the lock file itself.
        if path.name == "Cargo.lock" or b"\0" in (data := path.read_bytes())[:8192]:
            continue
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            if NEVER_NAMED.search(line):
                wrong.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert not wrong, "\n".join(wrong)


def test_the_map_in_contributing_names_every_folder() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    folders = {f"crates/{crate}" for crate in CRATES}
    folders |= {f"python/atoll/{part(path)}" for path in modules() if path.parent != PACKAGE}
    missing = sorted(folder for folder in folders if f"{folder}/" not in text)
    assert not missing, f"CONTRIBUTING.md's map lacks {missing}"
