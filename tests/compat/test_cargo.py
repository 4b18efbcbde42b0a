"""Real cargo and rustc in a workspace: incremental builds, locks, and what is fresh stays fresh."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.compat.conftest import Bench, Tools

MANIFEST = """
[package]
name = "app"
version = "0.1.0"
edition = "2021"
[dependencies]
dep = { path = "dep" }
[profile.dev]
debug = 0
"""
DEPENDENCY = '[package]\nname = "dep"\nversion = "0.1.0"\nedition = "2021"\n'


@pytest.fixture
def cargo(tools: Tools, home: Path) -> Tools:
    """Tools whose cargo has a home of its own; the toolchain is the machine's."""
    if shutil.which("cargo") is None:
        pytest.skip("cargo is not installed")
    before = Path(os.environ.get("RUSTUP_HOME", Path("~" + _user()).expanduser() / ".rustup"))
    tools.env |= {
        "CARGO_HOME": os.fspath(home / "cargo"),
        "CARGO_INCREMENTAL": "1",
        "CARGO_TERM_COLOR": "never",
    }
    if before.is_dir():
        tools.env["RUSTUP_HOME"] = os.fspath(before)
    return tools


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


def build(cargo: Tools, folder: str | os.PathLike[str]) -> list[str]:
    """Builds, and says which crates were compiled."""
    done = cargo.raw("cargo", "build", "--offline", cwd=folder)
    assert done.returncode == 0, done.stderr
    # "incremental compilation: could not lock" and the like are warnings.
    assert "warning" not in done.stderr, done.stderr
    return sorted(
        line.split()[1] for line in done.stderr.splitlines() if line.lstrip().startswith("Compiling")
    )


def test_a_build_is_fresh_in_every_fork(bench: Bench, cargo: Tools) -> None:
    """Case 28: rustc's incremental build works with its locks, hard links and maps on inherited files; what
    was built is fresh after a remount and, at the same path, in a fork."""
    dependency = bench.project / "dep"
    for folder in (bench.project, dependency):
        (folder / "src").mkdir(parents=True)
    (bench.project / "Cargo.toml").write_text(MANIFEST)
    (dependency / "Cargo.toml").write_text(DEPENDENCY)
    (dependency / "src" / "lib.rs").write_text('pub fn word() -> &\'static str { "dep" }\n')
    (bench.project / "src" / "main.rs").write_text('fn main() { println!("one {}", dep::word()) }\n')
    assert build(cargo, bench.project) == ["app", "dep"]
    bench.imported()
    # A plain mount is another path, and cargo builds what lies at a new path; there, it stays fresh.
    ws = bench.fork("a")
    build(cargo, ws)
    assert build(cargo, ws) == []
    ws = bench.remounted(ws)
    assert build(cargo, ws) == []
    (ws.path / "src" / "main.rs").write_text('fn main() { println!("two {}", dep::word()) }\n')
    assert build(cargo, ws) == ["app"]
    assert cargo("target/debug/app", cwd=ws) == "two dep\n"
    ws = bench.remounted(ws)
    assert build(cargo, ws) == []
    assert cargo("target/debug/app", cwd=ws) == "two dep\n"
    ws.umount()
    # Seen at the path that was imported, what was built there is fresh, and only what changes is built.
    with bench.fork("b") as fork:
        words = ("cargo", "build", "--offline")
        done = fork.run(words, env=cargo.env, capture_output=True, text=True, timeout=110)
        assert done.returncode == 0 and "Compiling" not in str(done.stderr), done.stderr
        (fork.path / "src" / "main.rs").write_text('fn main() { println!("three {}", dep::word()) }\n')
        done = fork.run(words, env=cargo.env, capture_output=True, text=True, timeout=110)
        assert str(done.stderr).count("Compiling") == 1, done.stderr
        assert cargo("target/debug/app", cwd=fork) == "three dep\n"
        fork.commit("built")
    assert cargo("target/debug/app", cwd=bench.project) == "one dep\n"


@pytest.mark.network
def test_a_crate_from_the_registry(bench: Bench, cargo: Tools) -> None:
    """A crate is fetched into a cargo home in the workspace; afterwards it is built from what is inherited,
    without the network."""
    (bench.project / "src").mkdir()
    manifest = MANIFEST.replace('dep = { path = "dep" }', 'cfg-if = "=1.0.0"')
    (bench.project / "Cargo.toml").write_text(manifest)
    (bench.project / "src" / "main.rs").write_text(
        'cfg_if::cfg_if! { if #[cfg(unix)] { fn main() { println!("unix") } } else { fn main() {} } }\n'
    )
    bench.imported()
    ws = bench.fork("a")
    cargo.env["CARGO_HOME"] = os.fspath(ws.path / ".cargo-home")
    cargo("cargo", "fetch", "-q", cwd=ws)
    ws = bench.remounted(ws)
    assert build(cargo, ws) == ["app", "cfg-if"]
    with bench.remounted(ws) as ws:
        assert build(cargo, ws) == []
        assert cargo("target/debug/app", cwd=ws) == "unix\n"
