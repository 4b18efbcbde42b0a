"""Real git in a workspace: its own verdict holds during the work, after a remount and in a fork."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from atoll.workspace import Workspace
from tests.compat.conftest import Bench, Tools, tool

LONG_AGO = 981173106


@pytest.fixture
def repository(bench: Bench, tools: Tools) -> Path:
    """The project as a git repository of some files and commits, its files older than its index: git then
    trusts their stat data."""
    settings = {"user.name": "t", "user.email": "t@example.invalid", "gc.auto": "0"}
    settings["protocol.file.allow"] = "always"  # submodules from a path
    for key, value in settings.items():
        tools("git", "config", "--global", key, value, cwd=bench.project)
    tools("git", "init", "-q", "-b", "main", cwd=bench.project)
    for number in range(40):
        file = bench.project / f"dir{number % 4}" / f"file{number}.txt"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"line {number}\n" * (number + 1))
    (bench.project / "run.sh").write_text("#!/bin/sh\n")
    (bench.project / "run.sh").chmod(0o755)
    (bench.project / "link").symlink_to("run.sh")
    old(bench.project)
    for message in ("one", "two two"):
        (bench.project / "log").write_text(message)
        os.utime(bench.project / "log", (LONG_AGO, LONG_AGO))
        tools("git", "add", "-A", cwd=bench.project)
        tools("git", "commit", "-qm", message, cwd=bench.project)
    tools("git", "gc", "-q", cwd=bench.project)
    return bench.project


def old(folder: Path) -> None:
    """Gives every file outside of `.git` an mtime that no index is older than."""
    for place, folders, names in os.walk(folder):
        if ".git" in folders:
            folders.remove(".git")
        for name in names:
            os.utime(os.path.join(place, name), (LONG_AGO, LONG_AGO), follow_symlinks=False)


def verdict(tools: Tools, folder: str | os.PathLike[str]) -> None:
    """git finds nothing wrong and nothing left over."""
    assert tools("git", "fsck", "--full", "--strict", "--no-dangling", cwd=folder) == ""
    assert leftovers(Path(folder)) == []


def leftovers(folder: Path) -> list[str]:
    """What an interrupted or failed git leaves in a repository."""
    found = []
    for place, _, names in os.walk(folder):
        if "/.git" in place + "/":
            found += [name for name in names if name.endswith(".lock") or name.startswith("tmp_")]
    return found


def unread(tools: Tools, folder: str | os.PathLike[str]) -> bool:
    """Whether the index's stat data (inode, ctime, mtime, size, mode) fit every file, so that git reads
    none."""
    return tools("git", "diff-files", cwd=folder) == ""


def test_status_in_a_fork_and_after_a_remount(bench: Bench, tools: Tools, repository: Path) -> None:
    """Case 20: clone, commit, unmount, mount, fork: clean, and with overlay without a content read."""
    bench.imported()
    ws = bench.fork("a")
    if bench.overlay:
        assert unread(tools, ws)
    assert tools("git", "status", "--porcelain", cwd=ws) == ""
    tools("git", "clone", "-q", ".", "inner", cwd=ws)
    old(ws.path / "inner")
    tools("git", "update-index", "--refresh", cwd=ws.path / "inner")
    # Changes of git's own making: replaced files, a new commit.
    (ws.path / "dir1" / "file1.txt").write_text("changed\n")
    os.utime(ws.path / "dir1" / "file1.txt", (LONG_AGO + 1, LONG_AGO + 1))
    tools("git", "add", "dir1", cwd=ws)
    tools("git", "commit", "-qm", "three", cwd=ws)
    head = tools("git", "rev-parse", "HEAD", cwd=ws)
    ws = bench.remounted(ws)
    with bench.fork("b", "a") as fork, ws:
        for folder in (ws.path, fork.path):
            for repo in (folder, folder / "inner"):
                if bench.overlay:
                    assert unread(tools, repo), repo
                assert tools("git", "status", "--porcelain", "-uno", cwd=repo) == ""
                verdict(tools, repo)
            assert tools("git", "rev-parse", "HEAD", cwd=folder) == head


def everything(tools: Tools, ws: Workspace, turn: int) -> None:
    """One round of what people and agents do with git."""

    def git(*words: str, cwd: Path = ws.path) -> str:
        return tools("git", *words, cwd=cwd)

    file = ws.path / f"dir{turn % 4}" / f"file{turn}.txt"
    file.write_text(f"turn {turn}\n")
    git("add", "-A")
    git("commit", "-qm", f"turn {turn}")
    git("switch", "-q", "-c", f"topic{turn}", "HEAD~1")
    (ws.path / f"topic{turn}").write_text("topic\n")
    git("add", f"topic{turn}")
    git("commit", "-qm", f"topic {turn}")
    git("rebase", "-q", "main")
    file.write_text("stashed\n")
    git("stash", "-q")
    assert file.read_text() == f"turn {turn}\n"
    git("stash", "pop", "-q")
    assert file.read_text() == "stashed\n"
    git("checkout", "-q", "--", str(file))
    git("switch", "-q", "main")
    git("merge", "-q", "--no-edit", f"topic{turn}")
    git("mv", f"topic{turn}", f"moved{turn}")
    git("commit", "-qm", f"moved {turn}")
    if turn % 4 == 0:
        git("worktree", "add", "-q", f"trees/t{turn}", f"topic{turn}")
        assert git("status", "--porcelain", cwd=ws.path / "trees" / f"t{turn}") == ""
        git("submodule", "add", "-q", "./.git", f"sub{turn}")
        git("commit", "-qm", f"submodule {turn}")
    git("gc", "-q", "--prune=now")


def test_rounds_of_everything(bench: Bench, tools: Tools, repository: Path) -> None:
    """Case 3: add, commit, switch, rebase, stash, merge, worktree, submodule, gc on an inherited repository:
    every exit code is true, and the store stays whole; worktrees and submodules work (case 36)."""
    (repository / ".gitignore").write_text("trees\n")
    tools("git", "add", "-A", cwd=repository)
    tools("git", "commit", "-qm", "ignore", cwd=repository)
    bench.imported()
    ws = bench.fork("a")
    for turn in range(4):
        everything(tools, ws, turn)
    verdict(tools, ws)
    ws = bench.remounted(ws)
    # What is inherited now is worked on again: packs and loose objects are replaced and removed.
    for turn in range(4, 6):
        everything(tools, ws, turn)
    count = tools("git", "rev-list", "--count", "--all", cwd=ws)
    with bench.remounted(ws) as ws:
        verdict(tools, ws)
        assert tools("git", "rev-list", "--count", "--all", cwd=ws) == count
        assert tools("git", "status", "--porcelain", cwd=ws) == ""
        for turn in (0, 4):
            assert tools("git", "status", "--porcelain", cwd=ws.path / f"sub{turn}") == ""
            # A worktree names its repository by an absolute path: it is found where it was made.
            assert tools("git", "status", "--porcelain", cwd=ws.path / "trees" / f"t{turn}") == ""
    # The original never saw any of it.
    assert tools("git", "rev-list", "--count", "--all", cwd=repository) == "3\n"
    assert not (repository / "sub0").exists()


def test_a_killed_git_leaves_its_lock_and_nothing_broken(
    bench: Bench, tools: Tools, repository: Path, home: Path
) -> None:
    """Case 3: kill -9 in the middle of `git add`: its lock is there in the next mount too; once
    it is removed everything works."""
    bench.imported()
    ws = bench.fork("a")
    # A filter that git waits for, with the index locked.
    gate = home / "gate"
    os.mkfifo(gate)
    (ws.path / ".gitattributes").write_text("*.slow filter=slow\n")
    tools("git", "config", "filter.slow.clean", f"cat {gate}", cwd=ws)
    (ws.path / "a.slow").write_text("slow\n")
    (ws.path / "b.txt").write_text("quick\n")
    git = subprocess.Popen(
        [tool("git"), "add", "-A"],
        cwd=ws.path,
        env=tools.env,
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    with open(gate, "w"):  # opens when the filter has opened it, which is in the middle
        os.killpg(git.pid, signal.SIGKILL)
        assert git.wait() == -signal.SIGKILL
    assert leftovers(ws.path) == ["index.lock"]
    with bench.remounted(ws) as ws:
        assert leftovers(ws.path) == ["index.lock"]
        assert "index.lock" in tools.raw("git", "add", "b.txt", cwd=ws).stderr
        (ws.path / ".git" / "index.lock").unlink()
        tools("git", "add", "b.txt", cwd=ws)
        assert tools("git", "diff", "--cached", "--name-only", cwd=ws) == "b.txt\n"
        tools("git", "commit", "-qm", "after", cwd=ws)
        verdict(tools, ws)


def test_a_local_clone_links_its_objects(bench: Bench, tools: Tools, repository: Path) -> None:
    """Case 16: `git clone --local` shares the packs by hard links, also inherited ones; the links are
    history afterwards."""
    bench.imported()
    ws = bench.fork("a")

    def packs(folder: Path) -> list[tuple[int, int]]:
        files = sorted((folder / ".git" / "objects" / "pack").glob("*.pack"))
        return [(file.stat().st_ino, file.stat().st_nlink) for file in files]

    tools("git", "clone", "-q", "--local", ".", "clone", cwd=ws)
    assert packs(ws.path) == packs(ws.path / "clone")
    assert [links for _, links in packs(ws.path)] == [2]
    with bench.remounted(ws) as ws:
        assert packs(ws.path) == packs(ws.path / "clone")
        assert [links for _, links in packs(ws.path)] == [2]
        verdict(tools, ws.path / "clone")
        # A link from what is inherited to a new name, and one of the names goes.
        tools("git", "clone", "-q", "--local", "clone", "second", cwd=ws)
        assert [links for _, links in packs(ws.path)] == [3]
        tools("git", "gc", "-q", cwd=ws.path)
        for name in ("clone", "second"):
            verdict(tools, ws.path / name)


def test_a_moved_folder_of_ten_thousand_files(bench: Bench, tools: Tools, repository: Path) -> None:
    """Case 17: `mv` of an inherited folder: it succeeds (no EXDEV), reads nothing, and is one moved key."""
    big = repository / "node_modules"
    packages = 100 if bench.overlay else 10  # copy writes each of them, several times
    for number in range(packages):
        (big / f"pkg{number}").mkdir(parents=True)
        for file in range(100):
            (big / f"pkg{number}" / f"f{file}.js").write_text(f"{number} {file}\n")
    bench.imported()
    objects = bench.store.stats()["objects"]
    ws = bench.fork("a")
    os.rename(ws.path / "node_modules", ws.path / "modules")
    result = ws.commit("moved")
    (change,) = bench.store.diff("main", "a")
    assert (change.kind, change.old_path, change.path) == ("renamed", "node_modules", "modules")
    assert result.stored_bytes < 20_000
    # A node for each level above the key, at most: no chunk, no entry of a file.
    assert bench.store.stats()["objects"] - objects <= 8
    if bench.overlay:
        assert result.read_files == 0
    with bench.remounted(ws) as ws:
        assert len(list((ws.path / "modules").glob("*/*.js"))) == packages * 100
        os.rename(ws.path / "modules" / "pkg7", ws.path / "pkg7")
        os.rename(ws.path / "modules", ws.path / "node_modules")
        ws.commit("back")
        assert {(each.kind, each.path) for each in bench.store.diff("main", "a")} == {("renamed", "pkg7")}
        assert (ws.path / "pkg7" / "f7.js").read_text() == "7 7\n"


def test_modes_that_git_keeps(bench: Bench, tools: Tools, repository: Path) -> None:
    """Case 37: `core.fileMode` and `core.symlinks` are what git finds in a workspace, and a chmod alone is a
    change."""
    bench.imported()
    ws = bench.fork("a")
    tools("git", "init", "-q", "probe", cwd=ws)
    assert tools("git", "config", "core.fileMode", cwd=ws.path / "probe") == "true\n"
    assert tools.raw("git", "config", "core.symlinks", cwd=ws.path / "probe").stdout in ("", "true\n")
    (ws.path / "run.sh").chmod(0o644)
    assert "old mode 100755" in tools("git", "diff", cwd=ws)
    with bench.remounted(ws) as ws:
        assert "old mode 100755" in tools("git", "diff", cwd=ws)
        assert stat.S_IMODE((ws.path / "run.sh").stat().st_mode) == 0o644
