"""What points at the original folder."""

from __future__ import annotations

from pathlib import Path

from atoll.run.outside import find, sentence


def environment(top: Path, original: Path) -> None:
    bin_, packages = top / ".venv" / "bin", top / ".venv" / "lib" / "python3.11" / "site-packages"
    bin_.mkdir(parents=True)
    packages.mkdir(parents=True)
    command = f"command = /usr/bin/python3 -m venv {original}/.venv\n"
    (top / ".venv" / "pyvenv.cfg").write_text(f"home = /usr/bin\n{command}")
    (bin_ / "python").symlink_to("/usr/bin/python3")
    for name in ("pip", "pytest"):
        (bin_ / name).write_text(f"#!{original}/.venv/bin/python\nimport x\n")
    (bin_ / "long").write_text(f"#!/bin/sh\n'''exec' {original}/.venv/bin/python \"$0\" \"$@\"\n' '''\n")
    (bin_ / "other").write_text("#!/bin/sh\n")
    (packages / "__editable__.app.pth").write_text(f"{original}/src\n")
    (packages / "distutils.pth").write_text("import os\n")


def test_finds_what_leads_out(tmp_path: Path) -> None:
    top, original = tmp_path / "ws", tmp_path / "app"
    environment(top, original)
    (top / "data").symlink_to(original / "data")
    (top / "near").symlink_to("data")
    (top / "node_modules" / "deep").mkdir(parents=True)
    (top / "node_modules" / "deep" / "link").symlink_to(original)
    found = {(each.path, each.kind) for each in find(top, original)}
    assert found == {
        ("data", "link"),
        (".venv/pyvenv.cfg", "pyvenv.cfg"),
        (".venv/bin/pip", "shebang"),
        (".venv/bin/pytest", "shebang"),
        (".venv/bin/long", "shebang"),
        (".venv/lib/python3.11/site-packages/__editable__.app.pth", ".pth"),
    }
    line = sentence(top, original)
    assert line is not None
    assert "shebang .venv/bin/long and 2 more" in line
    assert "\n" not in line


def test_a_folder_with_a_longer_name_is_another(tmp_path: Path) -> None:
    top, original = tmp_path / "ws", tmp_path / "app"
    top.mkdir()
    (top / "link").symlink_to(tmp_path / "app-2" / "x")
    assert find(top, original) == []
    assert sentence(top, original) is None
