"""The store through the SDK: import, names, history, export, operations."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import shutil
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

import atoll
from atoll import errors


def test_import_twice_reads_nothing_and_makes_no_commit(store: atoll.Store, project: Path) -> None:
    # Files as young as the import itself are in doubt, and the next one reads them once more.
    (project / "first.txt").write_text("first\n")
    time.sleep(0.05)
    assert store.import_folder(project).changed
    commit = store.ref("main").commit
    again = store.import_folder(project)
    assert not again.changed and again.commit == commit and again.read_files == 0
    assert again.unchanged == again.files


def test_import_reads_only_what_changed(store: atoll.Store, project: Path) -> None:
    # Files as young as the import itself are in doubt, and the next one reads them once more.
    (project / "first.txt").write_text("first\n")
    time.sleep(0.05)
    assert store.import_folder(project).changed
    time.sleep(0.05)
    (project / "new.txt").write_text("new\n")
    result = store.import_folder(project, message="with new")
    assert result.changed and result.read_files == 1
    assert store.commit("main").message == "with new"
    assert [change.path for change in store.diff("main~1", "main")] == ["new.txt"]


def test_a_branch_holds_one_folder(store: atoll.Store, project: Path, home: Path) -> None:
    other = home / "other"
    shutil.copytree(project, other, symlinks=True)
    with pytest.raises(errors.Conflict, match="--replace"):
        store.import_folder(other)
    assert store.import_folder(other, replace=True).changed
    assert store.ref("main").folder == str(other)
    assert store.import_folder(project, branch="second").changed


def test_what_cannot_be_imported(store: atoll.Store, project: Path) -> None:
    with pytest.raises(errors.NotFound, match="no folder"):
        store.import_folder(project / "nope")
    with pytest.raises(errors.Usage, match="not a folder"):
        store.import_folder(project / "a.txt")
    with pytest.raises(errors.InvalidName):
        store.import_folder(project, branch="bad..name")
    (project / ".git").mkdir()
    (project / ".git" / "index.lock").touch()
    with pytest.raises(errors.Busy, match=r"index\.lock"):
        store.import_folder(project)


def test_excludes_and_atollignore(store: atoll.Store, project: Path) -> None:
    (project / "x.log").touch()
    (project / "y.tmp").touch()
    (project / ".atollignore").write_text("*.tmp\n")
    result = store.import_folder(project, exclude=["*.log"])
    names = {entry.path for entry in store.ls("main")}
    assert "x.log" not in names and "y.tmp" not in names and result.ignored == 2


def test_references(store: atoll.Store, project: Path) -> None:
    (project / "a.txt").write_text("two\n")
    store.import_folder(project)
    tip = store.ref("main").commit
    store.tag("v1", "main~1")
    assert store.resolve("main") == store.resolve(tip[:10]) == tip
    assert store.resolve("v1") == store.resolve("main^") == store.resolve("main~1") != tip
    with pytest.raises(errors.NotFound, match="main"):
        store.resolve("mian")
    with pytest.raises(errors.NotFound, match="'main'"):
        store.ref("mian")
    store.untag("v1")
    with pytest.raises(errors.NotFound):
        store.resolve("v1")


def test_names(store: atoll.Store) -> None:
    store.fork("main", "try-1")
    with pytest.raises(errors.Exists, match="try-1"):
        store.fork("main", "try-1")
    for name in ("", "a b", "a..b", "-x", "a\nb", "x" * 300):
        with pytest.raises((errors.InvalidName, errors.Usage)):
            store.fork("main", name)
    assert store.rename_branch("try-1", "done").name == "done"
    assert [ref.name for ref in store.branches()] == ["done", "main"]


def test_a_fork_remembers_base_and_folder(store: atoll.Store, project: Path) -> None:
    store.fork("main", "a")
    ref = store.ref("a")
    assert ref.base == store.ref("main").commit and ref.folder == str(project)
    store.fork("a~0", "b")
    assert store.ref("b").folder == str(project)


def test_undo_of_drop_and_fork(store: atoll.Store) -> None:
    store.fork("main", "a")
    store.drop("a")
    with pytest.raises(errors.NotFound):
        store.ref("a")
    assert store.undo().kind == "drop"
    assert store.ref("a").base == store.ref("main").commit
    assert store.undo().kind == "fork"
    with pytest.raises(errors.NotFound):
        store.ref("a")
    assert [each.kind for each in store.operations(2)] == ["undo", "undo"]


def test_drop_of_nothing(store: atoll.Store) -> None:
    with pytest.raises(errors.NotFound, match="'zz\\*'"):
        store.drop("zz*")
    with pytest.raises(errors.NotFound):
        store.drop("zz")


def test_reading_a_commit(store: atoll.Store, project: Path) -> None:
    assert {entry.path for entry in store.ls("main", "src", recursive=True)} == {
        "src/b.py",
        "src/deep",
        "src/deep/c.bin",
    }
    assert store.read("main", "link") == b"a.txt"
    assert store.read("main", "/src//deep/c.bin", 256, 4) == bytes([0, 1, 2, 3])
    entry = store.stat("main", "run.sh")
    assert entry.mode == 0o755 and entry.mtime_ns == (project / "run.sh").stat().st_mtime_ns
    with pytest.raises(errors.NotFound, match="nope"):
        store.stat("main", "nope")
    with pytest.raises(errors.NotFound):
        store.read("main", "a.txt/below")


def test_export_and_compare(store: atoll.Store, project: Path, home: Path) -> None:
    from atoll import _native

    result = store.export("main", home / "out")
    assert result.files == 5 and result.lost == ()
    assert (
        _native.compare_folder(
            store.native, store.resolve("main"), b"", home / "out", owner=True, mtime=True, limit=10
        )
        == []
    )
    (home / "out" / "a.txt").write_text("other\n")
    differing = _native.compare_folder(
        store.native, store.resolve("main"), b"", home / "out", owner=True, mtime=False, limit=10
    )
    assert {path for path, _ in differing} == {b"a.txt", b"hard.txt"}
    with pytest.raises(errors.Exists):
        store.export("main", home / "out")
    store.export("main", home / "part", path="src/deep")
    assert os.listdir(home / "part") == ["c.bin"]


def test_tar_out_and_in(store: atoll.Store, home: Path) -> None:
    from atoll import _native

    archive = home / "out.tar"
    with archive.open("wb") as file:
        _native.export_tar(store.native, store.resolve("main"), b"", file.fileno())
    with tarfile.open(archive) as tar:
        assert tar.extractfile("a.txt").read() == b"one\n"  # type: ignore[union-attr]
        assert tar.getmember("link").linkname == "a.txt"
    store.import_tar(archive, branch="x")
    assert store.commit("x").content == store.commit("main").content
    with pytest.raises(errors.AtollError):
        store.import_tar(_hostile(home / "hostile.tar"), branch="y")
    with pytest.raises(errors.NotFound):
        store.ref("y")


def _hostile(path: Path) -> Path:
    with tarfile.open(path, "w") as tar:
        member = tarfile.TarInfo("../escaped")
        member.size = 1
        tar.addfile(member, io.BytesIO(b"x"))
    return path


def test_patch_is_accepted_by_git(store: atoll.Store, project: Path, home: Path) -> None:
    store.export("main", home / "checkout")
    (project / "a.txt").write_text("two\n")
    (project / "src" / "deep" / "c.bin").write_bytes(bytes(range(255, -1, -1)) * 900)
    (project / "run.sh").chmod(0o644)
    store.import_folder(project)
    patch = store.patch("main~1", "main")
    for words in (["git", "init", "-q"], ["git", "apply", "--binary", "-"]):
        subprocess.run(words, cwd=home / "checkout", input=patch, check=True, timeout=30, capture_output=True)
    for name in ("a.txt", "src/deep/c.bin"):
        assert (home / "checkout" / name).read_bytes() == (project / name).read_bytes()
    assert (home / "checkout" / "run.sh").stat().st_mode & 0o777 == 0o644


def test_gc_frees_what_was_dropped(store: atoll.Store) -> None:
    with store.fork("main", "big").mount(driver="copy") as ws:
        (ws.path / "blob").write_bytes(os.urandom(4 << 20))
        ws.commit()
    store.drop("big")
    assert store.gc()["bytes_freed"] < 1 << 20
    store.undo()
    assert len(store.read("big", "blob")) == 4 << 20
    store.drop("big")
    assert store.gc(expire_days=0)["bytes_freed"] > 3 << 20
    assert store.check()["problems"] == []
    with pytest.raises(errors.AtollError):
        store.undo(max(each.seq for each in store.operations() if each.kind == "drop"))


def test_stats(store: atoll.Store) -> None:
    stats = store.stats()
    assert stats["branches"] == 1 and stats["commits"] == 1 and stats["profile"] == "full"


def test_a_fork_takes_no_time(store: atoll.Store) -> None:
    # No timing in tests: what must hold is that nothing of the tree is read or written.
    before = store.stats()
    for number in range(20):
        store.fork("main", f"f{number}")
    after = store.stats()
    assert after["objects"] == before["objects"] and after["packs"] == before["packs"]
    assert after["log_bytes"] - before["log_bytes"] < 20 * 1000


def test_a_progress_callback_can_stop(store: atoll.Store, home: Path) -> None:
    folder = home / "many"
    folder.mkdir()
    for number in range(3000):
        (folder / f"f{number}").write_bytes(os.urandom(2000))

    class StopNow(Exception):
        pass

    def stop(phase: str, files: int, size: int) -> None:
        raise StopNow

    before = store.operations(1)[0].seq
    with contextlib.suppress(StopNow):
        store.import_folder(folder, branch="many", progress=stop)
    # Stopped, or past the point where it could be: nothing, or the whole import.
    if store.operations(1)[0].seq != before:
        assert store.operations(1)[0].seq == before + 1
        assert len(store.ls("many")) == 3000


def test_asyncio_over_twenty_workspaces(store: atoll.Store) -> None:
    async def one(number: int) -> str:
        branch = await store.fork_async("main", f"w{number}")
        async with await branch.mount_async(driver="copy") as ws:
            (ws.path / "n").write_text(str(number))
            return (await ws.commit_async(f"commit {number}")).commit

    async def everything() -> list[str]:
        return await asyncio.gather(*(one(number) for number in range(20)))

    commits = asyncio.run(everything())
    assert len(set(commits)) == 20
    assert [store.read(f"w{number}", "n") for number in range(20)] == [str(n).encode() for n in range(20)]
    assert store.workspaces() == []


def test_open_says_what_is_missing(home: Path) -> None:
    with pytest.raises(errors.NoStore, match="atoll import"):
        atoll.open(home)
    with pytest.raises(errors.NoStore):
        atoll.open(store=home / "nope")
    (home / "full").mkdir()
    (home / "full" / "x").touch()
    with pytest.raises(errors.StoreExists):
        atoll.create(home / "full")


def test_a_newer_store_is_refused(store: atoll.Store) -> None:
    config = store.path / "atoll.toml"
    text = config.read_text()
    assert "format = " in text
    config.write_text("\n".join(
        "format = 99" if line.startswith("format = ") else line for line in text.splitlines()
    ))  # fmt: skip
    with pytest.raises(errors.NewerFormat, match="newer"):
        atoll.open(store=store.path)
    config.write_text(text)


def test_a_wiped_database_is_rebuilt(store: atoll.Store) -> None:
    store.fork("main", "a")
    commit = store.resolve("main")
    store.close()
    for name in ("meta.db", "meta.db-wal", "meta.db-shm"):
        (store.path / name).unlink(missing_ok=True)
    with atoll.open(store=store.path) as again:
        assert again.resolve("main") == again.resolve("a") == commit
        assert again.read("main", "a.txt") == b"one\n"


def test_a_closed_store_lets_go_of_its_files(store: atoll.Store) -> None:
    def held() -> list[str]:
        places = []
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):  # the listing's own
                places.append(os.readlink(f"/proc/self/fd/{name}"))
        return [place for place in places if place.startswith(os.fspath(store.path))]

    store.read("main", "a.txt")
    assert held()
    store.close()
    assert held() == []
    with pytest.raises(errors.Usage, match="was closed here"):
        store.branches()
