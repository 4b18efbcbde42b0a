"""Real tar, rsync and cp in and out of a workspace: what they compare is equal, also after remounts."""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path

import pytest

from atoll import _native
from tests.compat.conftest import Bench, Tools

LONG_AGO = 981173106_123456789
#: Owner, mode, times, hard links, holes, devices, xattrs.
RSYNC = ("rsync", "-aHXS", "--numeric-ids")


def furnish(folder: Path) -> None:
    """A tree with a bit of everything that these tools keep."""
    for name in ("plain", "deep/er/est", "empty"):
        (folder / name).mkdir(parents=True)
    for number in range(200):
        (folder / "plain" / f"f{number}").write_bytes(bytes([number]) * number * 37)
    os.link(folder / "plain" / "f9", folder / "deep" / "hard")
    (folder / "link").symlink_to("deep/er")
    os.mkfifo(folder / "pipe")
    with open(folder / "sparse", "wb") as file:
        file.truncate(8 << 20)
        file.seek(4 << 20)
        file.write(b"middle")
    (folder / "plain" / "f1").chmod(0o4750)
    (folder / "empty").chmod(0o1777)
    (folder / "deep").chmod(0o2755)
    os.setxattr(folder / "plain" / "f2", "user.note", b"a\0b")
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9")).write_text("latin")
    if os.geteuid() == 0:
        os.mknod(folder / "null", 0o20666, os.makedev(1, 3))
        os.chown(folder / "plain" / "f3", 1234, 5678)
    for place, folders, names in os.walk(folder, topdown=False):
        for name in (*folders, *names):
            os.utime(os.path.join(place, name), ns=(LONG_AGO, LONG_AGO), follow_symlinks=False)


def differences(tools: Tools, one: Path, other: Path) -> str:
    """What rsync would have to do to make `other` equal to `one`, contents compared; not the time of the top,
    which changes with what the tests put there."""
    if shutil.which("rsync") is None:
        pytest.skip("rsync is not installed; scripts/setup.sh test installs it")
    said = tools(*RSYNC, "-n", "-i", "-c", "--delete", f"{one}/", f"{other}/", cwd=one)
    return said.removeprefix(".d..t...... ./\n")


def test_rsync_out_of_and_into_a_workspace(bench: Bench, tools: Tools, home: Path) -> None:
    """rsync finds no difference between the folder and a fork, nor between a workspace and what it copied
    there, after a remount too; an incremental second run over inherited files changes only what differs."""
    furnish(bench.project)
    bench.imported()
    ws = bench.fork("a")
    assert differences(tools, bench.project, ws.path) == ""
    tools(*RSYNC, f"{ws.path}/", "copy/", "--exclude=/copy", cwd=ws)
    tools(*RSYNC, f"{ws.path}/", f"{home}/out/", "--exclude=/copy", cwd=ws)
    assert differences(tools, bench.project, home / "out") == ""
    ws = bench.remounted(ws)
    assert differences(tools, bench.project, ws.path / "copy") == ""
    # The source changes; rsync brings it, in place and by replacement, over what is inherited.
    (bench.project / "plain" / "f5").write_text("changed")
    shutil.rmtree(bench.project / "deep" / "er")
    (bench.project / "plain" / "f7").unlink()
    (bench.project / "empty" / "new").write_text("new")
    for extra in ((), ("--inplace", "--no-W")):
        target = f"{ws.path}/" if extra else f"{ws.path}/copy/"
        keep = ("--exclude=/copy",) if extra else ()
        tools(
            "rsync", "-aHX", "--numeric-ids", "--delete", *keep, *extra, f"{bench.project}/", target, cwd=ws
        )
    ws.commit("synced")
    changed = {change.path for change in bench.store.diff("main", "a") if not change.path.startswith("copy")}
    assert changed == {"deep/er", "deep/er/est", "empty/new", "plain/f5", "plain/f7"}
    with bench.remounted(ws) as ws:
        assert differences(tools, bench.project, ws.path / "copy") == ""
        shutil.rmtree(ws.path / "copy")
        assert differences(tools, bench.project, ws.path) == ""


def test_tar_in_a_workspace(bench: Bench, tools: Tools, home: Path) -> None:
    """GNU tar writes an inherited tree, reads it back elsewhere in the workspace and over what is inherited,
    and finds no difference (`tar --compare`) now and after a remount; so does an export."""
    furnish(bench.project)
    bench.imported()
    flags = ("--xattrs", "--xattrs-include=*", "--sparse", "--numeric-owner")
    ws = bench.fork("a")
    archive = home / "tree.tar"
    tools("tar", "-cf", archive, "--format=posix", *flags, ".", cwd=ws)
    (ws.path / "again").mkdir()
    tools("tar", "-xpf", archive, *flags, "-C", "again", cwd=ws)
    shutil.rmtree(ws.path / "plain")
    tools("tar", "-xpf", archive, *flags, "--overwrite", cwd=ws)
    for folder in (".", "again"):
        assert tools("tar", "-df", archive, *flags, "-C", folder, cwd=ws) == ""
    ws = bench.remounted(ws)
    for folder in (".", "again"):
        assert tools("tar", "-df", archive, *flags, "-C", folder, cwd=ws) == ""
    # tar --unlink-first and --keep-newer take other ways over inherited files.
    tools("tar", "-xpf", archive, *flags, "--unlink-first", "--recursive-unlink", "-C", "again", cwd=ws)
    with bench.remounted(ws) as ws:
        assert tools("tar", "-df", archive, *flags, "-C", "again", cwd=ws) == ""
    bench.store.export("a", home / "out")
    assert tools("tar", "-df", archive, *flags, "-C", home / "out" / "again", cwd=home) == ""
    ours = home / "ours.tar"
    with ours.open("wb") as file:
        _native.export_tar(bench.store.native, bench.store.resolve("a"), b"again", file.fileno())
    with tarfile.open(archive) as theirs, tarfile.open(ours) as tar:
        names = {member.name.removeprefix("./") for member in theirs if member.name != "."}
        assert {member.name for member in tar if member.name not in ("", ".")} == names


def test_cp_with_links(bench: Bench, tools: Tools) -> None:
    """Case 16: `cp -al` links a whole inherited tree, `cp -a` copies it, `cp --reflink=auto` too; one inode
    each, and the right counts after a remount."""
    furnish(bench.project)
    bench.imported()
    ws = bench.fork("a")
    tools("cp", "-al", "plain", "linked", cwd=ws)
    tools("cp", "-a", "plain", "copied", cwd=ws)
    tools("cp", "-a", "--reflink=auto", "--sparse=always", "sparse", "sparse2", cwd=ws)
    ws = bench.remounted(ws)
    for number in (0, 1, 3, 9, 100):
        plain, linked = (ws.path / folder / f"f{number}" for folder in ("plain", "linked"))
        assert plain.samefile(linked)
        assert plain.stat().st_nlink == (3 if number == 9 else 2)
        assert (ws.path / "copied" / f"f{number}").stat().st_nlink == (2 if number == 9 else 1) - (
            number == 9
        )
    with open(ws.path / "linked" / "f100", "ab") as file:
        file.write(b"through the link")
    assert (ws.path / "plain" / "f100").read_bytes().endswith(b"through the link")
    shutil.rmtree(ws.path / "plain")
    with bench.remounted(ws) as ws:
        assert (ws.path / "linked" / "f100").stat().st_nlink == 1
        assert (ws.path / "linked" / "f9").samefile(ws.path / "deep" / "hard")
        assert (ws.path / "linked" / "f100").read_bytes().endswith(b"through the link")
        assert (ws.path / "sparse2").stat().st_blocks <= 16
