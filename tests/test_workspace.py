"""The life of a workspace, the same with both drivers: mount, change, commit, unmount, come back."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import atoll
from atoll import errors


def kinds(changes: object) -> dict[str, str]:
    assert isinstance(changes, list | tuple)
    return {change.path: change.kind for change in changes}


def test_a_mount_shows_what_was_imported(store: atoll.Store, project: Path, driver: str) -> None:
    with store.fork("main", "try-1").mount(driver=driver) as ws:
        assert ws.mounted and ws.driver == driver and os.fspath(ws) == str(ws.path)
        assert sorted(os.listdir(ws)) == sorted(os.listdir(project))
        for name in ("a.txt", "src/b.py", "src/deep/c.bin", "run.sh"):
            assert (ws.path / name).read_bytes() == (project / name).read_bytes()
            theirs, ours = (project / name).stat(), (ws.path / name).stat()
            assert (theirs.st_mode, theirs.st_mtime_ns) == (ours.st_mode, ours.st_mtime_ns)
        assert os.readlink(ws.path / "link") == "a.txt"
        assert (ws.path / "a.txt").stat().st_ino == (ws.path / "hard.txt").stat().st_ino
        assert ws.status().changes == ()


def test_commit_captures_each_kind_of_change(store: atoll.Store, driver: str) -> None:
    with store.fork("main", "try-1").mount(driver=driver) as ws:
        (ws.path / "a.txt").write_text("two\n")
        (ws.path / "new.txt").write_text("new\n")
        (ws.path / "run.sh").chmod(0o700)
        (ws.path / "src" / "b.py").unlink()
        (ws.path / "empty").rmdir()
        (ws.path / "link").unlink()
        (ws.path / "link").symlink_to("run.sh")
        os.mkfifo(ws.path / "pipe")
        result = ws.commit("all kinds", meta={"agent": {"name": "a1"}})
        assert result.changed
        assert kinds(store.diff("main", "try-1")) == {
            "a.txt": "modified",
            "hard.txt": "modified",
            "new.txt": "added",
            "run.sh": "metadata",
            "src/b.py": "deleted",
            "empty": "deleted",
            "link": "modified",
            "pipe": "added",
        }
        commit = store.commit("try-1")
        assert commit.id == result.commit and commit.message == "all kinds"
        assert commit.meta["agent"] == {"name": "a1"}
        assert commit.parents == (store.ref("main").commit,)
        assert store.read("try-1", "new.txt") == b"new\n"
        assert ws.status().changes == ()
        again = ws.commit("nothing")
        assert not again.changed and again.commit == result.commit


def test_a_moved_folder_is_one_change(store: atoll.Store, driver: str) -> None:
    with store.fork("main", "try-1").mount(driver=driver) as ws:
        (ws.path / "src").rename(ws.path / "lib")
        ws.commit()
        changes = store.diff("main", "try-1")
        assert [(change.kind, change.old_path, change.path) for change in changes] == [
            ("renamed", "src", "lib")
        ]


def test_forks_do_not_see_each_other(store: atoll.Store, project: Path, driver: str) -> None:
    with (
        store.fork("main", "a").mount(driver=driver) as a,
        store.fork("main", "b").mount(driver=driver) as b,
    ):
        (a.path / "a.txt").write_text("from a\n")
        (b.path / "b-only").write_text("b\n")
        assert (b.path / "a.txt").read_text() == "one\n"
        assert not (a.path / "b-only").exists()
        a.commit()
        b.commit()
        assert (project / "a.txt").read_text() == "one\n"
        assert store.read("a", "a.txt") == b"from a\n"
        assert store.read("b", "a.txt") == b"one\n"


def test_umount_keeps_uncommitted_changes(store: atoll.Store, driver: str) -> None:
    ws = store.fork("main", "try-1").mount(driver=driver)
    (ws.path / "a.txt").write_text("uncommitted\n")
    (ws.path / "src" / "more").mkdir()
    left = ws.umount()
    assert left.kept and left.changes == 3 and left.place is not None
    assert not ws.mounted
    assert [each.branch for each in store.workspaces()] == ["try-1"]
    again = store.mount("try-1")
    assert (again.path / "a.txt").read_text() == "uncommitted\n"
    assert kinds(again.status().changes)["src/more"] == "added"
    again.commit()
    assert not again.umount().kept
    assert store.workspaces() == []


def test_umount_leaves_nothing(store: atoll.Store, home: Path, driver: str) -> None:
    ws = store.fork("main", "try-1").mount(driver=driver)
    place, folder = ws.path, ws.folder
    (ws.path / "a.txt").write_text("two\n")
    ws.commit()
    assert not ws.umount().kept
    assert not place.exists() and not folder.exists()
    assert store.workspaces() == []
    # The next mount starts at the commit.
    with store.mount("try-1", driver=driver) as again:
        assert again.base == store.ref("try-1").commit
        assert (again.path / "a.txt").read_text() == "two\n"


def test_umount_leaves_nothing_whatever_the_names_in_it_are(store: atoll.Store, driver: str) -> None:
    ws = store.fork("main", "try-1").mount(driver=driver)
    (ws.path / "upper.aside-1").write_text("a file of the user's\n")
    (ws.path / "long").symlink_to("x" * 4095)
    ws.commit()
    folder = ws.folder
    assert not ws.umount().kept
    assert not folder.exists()


def test_status_commit_and_umount_agree_about_times(store: atoll.Store, driver: str) -> None:
    ws = store.fork("main", "try-1").mount(driver=driver)

    def pending() -> dict[str, str]:
        return kinds(ws.status().changes)

    assert pending() == {}
    # A file that comes and goes leaves its folder's time, and nothing else.
    (ws.path / "src" / "temporary").touch()
    (ws.path / "src" / "temporary").unlink()
    assert pending() == {"src": "metadata"}
    left = ws.umount()
    assert (left.kept, left.changes) == (True, 1)
    store.mount("try-1")
    assert pending() == {"src": "metadata"}
    assert ws.commit().changed
    assert pending() == {} and not ws.commit().changed
    os.utime(ws.path / "a.txt", ns=(1, 1))
    assert pending() == {"a.txt": "metadata", "hard.txt": "metadata"}
    assert ws.commit().changed
    # What was only opened for writing is the same file.
    with open(ws.path / "src" / "b.py", "r+"):
        pass
    assert pending() == {} and not ws.commit().changed
    assert not ws.umount().kept


def test_gc_takes_away_what_an_unmount_that_died_left(store: atoll.Store, driver: str) -> None:
    ws = store.fork("main", "try-1").mount(driver=driver)
    (ws.path / "a.txt").write_text("two\n")
    record = ws._record
    # As if the record had been lost: what is mounted, or may be somebody's work, stays.
    store.native.remove_workspace(ws.id)
    assert store.gc()["workspaces_removed"] == (1 if driver == "copy" else 0)
    store.native.put_workspace(record)
    ws.commit()
    ws.umount()
    assert not ws.folder.exists()
    # One that died before it had a record, or after it had none any more.
    ws.folder.mkdir()
    assert store.gc(dry_run=True)["workspaces_removed"] == 1
    assert store.gc()["workspaces_removed"] == 1
    assert not ws.folder.exists()


def test_a_workspace_that_is_gone_leaves_no_folder_when_it_is_asked(store: atoll.Store, driver: str) -> None:
    ws = store.fork("main", "try-1").mount(driver=driver)
    ws.umount()
    with pytest.raises(errors.NotFound):
        ws.status()
    assert not ws.folder.exists()


def test_a_workspace_that_is_gone_leaves_nothing_and_its_successor_alone(
    store: atoll.Store, driver: str
) -> None:
    with store.fork("main", "try-1").mount(driver=driver) as first:
        again = store.workspace("try-1")
        assert not again.umount().kept
        for verb in (first.status, first.commit, first.umount):
            with pytest.raises(errors.NotFound, match="not mounted any more"):
                verb()
        assert not first.folder.exists()
        second = store.mount("try-1", driver=driver)
        assert second.path == first.path
        (second.path / "new").touch()
    # The end of the block is no matter of the second one's.
    assert second.mounted and (second.path / "new").exists() and not first.folder.exists()
    assert second.umount().kept


def test_a_busy_workspace_names_process_and_pid(store: atoll.Store, driver: str) -> None:
    with store.fork("main", "try-1").mount(driver=driver) as ws:
        code = "import time; print(1, flush=True); time.sleep(60)"
        sleeper = subprocess.Popen([sys.executable, "-c", code], cwd=ws.path, stdout=subprocess.PIPE)
        assert sleeper.stdout is not None
        try:
            sleeper.stdout.readline()
            with pytest.raises(errors.Busy, match=rf"{sleeper.pid}"):
                ws.umount()
            assert ws.mounted
        finally:
            sleeper.kill()
            sleeper.wait()
            sleeper.stdout.close()


def test_a_second_writable_mount_names_the_holder(store: atoll.Store, home: Path, driver: str) -> None:
    with store.fork("main", "try-1").mount(driver=driver) as ws:
        with pytest.raises(errors.Busy, match=str(ws.path)):
            store.mount("try-1", home / "other")
        assert not (home / "other").exists()


def test_a_named_mount_point(store: atoll.Store, home: Path, driver: str) -> None:
    store.fork("main", "try-1")
    with store.mount("try-1", home / "x" / "y:z,w", driver=driver) as ws:
        assert ws.path == home / "x" / "y:z,w"
        assert (ws.path / "a.txt").read_text() == "one\n"
        assert store.workspace(ws.path / "src").id == ws.id
        assert store.workspace("try-1").id == ws.id
    assert (home / "x").is_dir() and not ws.path.exists()
    kept = home / "kept"
    kept.mkdir()
    with store.mount("try-1", kept, driver=driver):
        pass
    assert kept.is_dir() and not list(kept.iterdir())


def test_where_a_workspace_cannot_be_mounted(store: atoll.Store, project: Path, home: Path) -> None:
    store.fork("main", "try-1")
    full = home / "full"
    full.mkdir()
    (full / "x").write_text("mine")
    with pytest.raises(errors.Exists, match="not empty"):
        store.mount("try-1", full)
    with pytest.raises(errors.Usage, match="not a folder"):
        store.mount("try-1", full / "x")
    with pytest.raises(errors.Usage, match="file stands"):
        store.mount("try-1", full / "x" / "below")
    with pytest.raises(errors.Usage, match="imported"):
        store.mount("try-1", project / "inside")
    with pytest.raises(errors.Usage, match="inside of the store"):
        store.mount("try-1", store.path / "inside")
    with pytest.raises(errors.NotFound, match="'try-1'"):
        store.mount("try-2")
    assert store.workspaces() == [] and (full / "x").read_text() == "mine"


def test_a_branch_and_one_below_it(store: atoll.Store, driver: str) -> None:
    with (
        store.fork("main", "deep/er").mount(driver=driver) as inner,
        store.fork("main", "deep2").mount(driver=driver) as outer,
    ):
        assert inner.path.parts[-2:] == ("deep", "er")
        assert (outer.path / "a.txt").exists() and (inner.path / "a.txt").exists()


def test_the_branch_moved_meanwhile(store: atoll.Store, driver: str) -> None:
    from atoll import refs

    with store.fork("main", "try-1").mount(driver=driver) as ws:
        (ws.path / "a.txt").write_text("mine\n")
        other = store.fork("main", "other").mount(driver="copy")
        (other.path / "theirs").write_text("x")
        other.commit()
        other.umount()
        state, theirs = store.ref("try-1"), store.ref("other")
        refs.move(
            store.native,
            "branch",
            "move try-1",
            [{"kind": "branch", "name": "try-1", "old": state._state(),
              "new": {**state._state(), "commit": theirs.commit}}],
        )  # fmt: skip
        with pytest.raises(errors.Moved, match="--to NEW"):
            ws.commit()
        assert ws.status().moved
        assert ws.commit(to="mine").changed
        assert ws.branch == "mine"
        assert store.read("mine", "a.txt") == b"mine\n"
        assert store.ref("try-1").commit == theirs.commit


def test_restore_commits_the_present_state_first(store: atoll.Store, driver: str) -> None:
    with store.fork("main", "try-1").mount(driver=driver) as ws:
        (ws.path / "a.txt").write_text("two\n")
        (ws.path / "new").write_text("new\n")
        shutil.rmtree(ws.path / "src")
        result = ws.restore("main", ["src", "a.txt"])
        assert result.changed
        assert (ws.path / "a.txt").read_text() == "one\n" and (ws.path / "src" / "b.py").exists()
        assert (ws.path / "new").exists()
        before = store.commit("try-1~1")
        assert store.read(before.id, "a.txt") == b"two\n"
        assert ws.status().changes == ()
        ws.restore("main")
        assert store.commit("try-1").content == store.commit("main").content
        # A restore is taken back in the folder too.
        store.undo()
        assert (ws.path / "new").read_text() == "new\n"
        assert ws.status().changes == ()


def test_a_restore_has_the_times_too(store: atoll.Store, driver: str) -> None:
    with store.fork("main", "try-1").mount(driver=driver) as ws:

        def times() -> dict[str, int]:
            every = [ws.path, *ws.path.rglob("*")]
            return {str(path.relative_to(ws.path)): path.lstat().st_mtime_ns for path in every}

        before = times()
        (ws.path / "a.txt").write_text("two\n")
        shutil.rmtree(ws.path / "src")
        (ws.path / "empty" / "not").touch()
        os.utime(ws.path / "link", ns=(1, 1), follow_symlinks=False)
        ws.commit()
        changed = times()
        ws.restore("main", ["src/b.py"])
        assert times()["src/b.py"] == before["src/b.py"]
        store.undo()
        assert times() == changed
        ws.restore("main")
        assert times() == before
        assert ws.status().changes == () and not ws.commit().changed


def test_restore_of_what_is_not_mounted(store: atoll.Store, driver: str) -> None:
    ws = store.fork("main", "try-1").mount(driver=driver)
    (ws.path / "a.txt").write_text("two\n")
    (ws.path / "new").write_text("new\n")
    ws.umount()
    with pytest.raises(errors.NotFound):
        ws.restore("nothing")
    assert ws.restore("main", ["a.txt"]).changed
    # The present state came first, and nothing is left.
    assert store.read("try-1~1", "a.txt") == b"two\n" and store.read("try-1", "a.txt") == b"one\n"
    assert store.read("try-1", "new") == b"new\n"
    assert store.workspaces() == []
    # One that has no workspace at all, by the command.
    done = subprocess.run(
        [
            Path(sys.executable).with_name("atoll"),
            "restore",
            "--store",
            store.path,
            "-w",
            "try-1",
            "--from",
            "try-1~1",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "restored from try-1~1" in done.stdout
    assert store.read("try-1", "a.txt") == b"two\n" and store.workspaces() == []


def test_undo_of_a_commit_makes_its_changes_uncommitted(store: atoll.Store, driver: str) -> None:
    with store.fork("main", "try-1").mount(driver=driver) as ws:
        (ws.path / "a.txt").write_text("two\n")
        ws.commit()
        undone = store.undo()
        assert undone.kind == "commit"
        ws.refresh()
        assert ws.head == store.ref("main").commit
        assert kinds(ws.status().changes)["a.txt"] == "modified"
        assert ws.commit().changed


def test_drop_commits_first_and_undo_has_it(store: atoll.Store, driver: str) -> None:
    said: list[str] = []
    ws = store.fork("main", "a1").mount(driver=driver)
    (ws.path / "a.txt").write_text("precious\n")
    store.fork("main", "a2")
    store.fork("main", "b")
    assert store.drop("a*", exclude=["a2"], note=said.append) == ["a1"]
    assert not ws.path.exists() and store.workspaces() == []
    assert any("committed first" in sentence for sentence in said)
    assert [ref.name for ref in store.branches()] == ["a2", "b", "main"]
    store.undo()
    assert store.read("a1", "a.txt") == b"precious\n"


def test_an_exception_in_the_body_is_never_hidden(store: atoll.Store, driver: str) -> None:
    ws = store.fork("main", "try-1").mount(driver=driver)
    holder = os.open(ws.path, os.O_RDONLY)
    try:
        with pytest.raises(ZeroDivisionError) as caught, ws:
            raise ZeroDivisionError("mine")
        assert any("Unmounting" in note for note in caught.value.__notes__)
    finally:
        os.close(holder)
    assert ws.mounted
    with ws:
        pass
    assert not ws.mounted


def test_commit_while_the_workspace_is_in_use(store: atoll.Store, driver: str) -> None:
    with store.fork("main", "try-1").mount(driver=driver) as ws:
        log = (ws.path / "log").open("w")
        log.write("first\n")
        log.flush()
        os.fsync(log.fileno())
        ws.commit()
        assert store.read("try-1", "log") == b"first\n"
        log.write("second\n")
        log.close()
        ws.commit()
        assert store.read("try-1", "log") == b"first\nsecond\n"


def test_threads_commit_to_their_own_workspaces(store: atoll.Store, driver: str) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with store.fork("main", f"t{number}").mount(driver=driver) as ws:
                for turn in range(3):
                    (ws.path / "turn").write_text(f"{number} {turn}\n")
                    assert ws.commit().changed
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    for number in range(6):
        assert store.read(f"t{number}", "turn") == f"{number} 2\n".encode()
        assert len(list(store.log(f"t{number}"))) == 4


def test_names_that_are_not_utf8(store: atoll.Store, driver: str) -> None:
    name = b"caf\xe9 \n"
    with store.fork("main", "try-1").mount(driver=driver) as ws:
        with open(os.fsencode(ws.path) + b"/" + name, "w") as file:
            file.write("x")
        ws.commit()
        (change,) = store.diff("main", "try-1")
        assert change.path_bytes == name and os.fsencode(change.path) == name
        assert store.read("try-1", name) == b"x"


def test_a_sparse_file_stays_sparse(store: atoll.Store, driver: str) -> None:
    with store.fork("main", "try-1").mount(driver=driver) as ws:
        with (ws.path / "sparse").open("wb") as file:
            file.truncate(1 << 30)
            file.seek(1 << 29)
            file.write(b"middle")
        result = ws.commit()
        assert result.stored_bytes < 1 << 16
        assert store.stat("try-1", "sparse").size == 1 << 30
        assert store.read("try-1", "sparse", 1 << 29, 6) == b"middle"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_what_only_root_can_make(store: atoll.Store, home: Path, driver: str) -> None:
    with store.fork("main", "try-1").mount(driver=driver) as ws:
        (ws.path / "setuid").write_text("x")
        os.chown(ws.path / "setuid", 1234, 5678)
        (ws.path / "setuid").chmod(0o4755)
        os.mknod(ws.path / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.setxattr(ws.path / "a.txt", "user.note", b"hello")
        ws.commit()
        entry = store.stat("try-1", "setuid")
        assert (entry.uid, entry.gid, entry.mode) == (1234, 5678, 0o4755)
        assert store.stat("try-1", "null").type == "char"
    store.export("try-1", home / "out")
    assert os.getxattr(home / "out" / "a.txt", "user.note") == b"hello"
    assert (home / "out" / "setuid").stat().st_uid == 1234


def test_after_a_reboot_mount_all_brings_everything_back(store: atoll.Store, driver: str) -> None:
    from atoll import _native
    from tests.conftest import Cli

    ws = store.fork("main", "try-1").mount(driver=driver)
    (ws.path / "a.txt").write_text("uncommitted\n")
    kept = store.fork("main", "try-2").mount(driver=driver)
    (kept.path / "x").touch()
    kept.umount()
    if driver == "overlay":
        # The mount goes and nobody notes it: what a reboot does.
        _native.overlay_umount(store.native, ws.id, ws.folder, ws.path)
    elif driver == "fuse":
        _native.live_umount(ws.folder, ws.path, False)
    assert ws.mounted == (driver == "copy")
    cli = Cli(store.path)
    printed = cli("mount", "--all", "--store", store.path)
    assert printed == ("" if driver == "copy" else f"{ws.path}\n")
    assert (ws.path / "a.txt").read_text() == "uncommitted\n"
    assert not kept.mounted
    assert ws.commit().changed and not ws.umount().kept


def test_what_was_not_durable_is_set_aside_after_a_crash(store: atoll.Store, driver: str) -> None:
    if driver != "overlay":
        pytest.skip("only overlay has --fsync=commit")
    said: list[str] = []
    ws = store.fork("main", "try-1").mount(driver=driver, fsync="commit")
    (ws.path / "committed").write_text("1")
    ws.commit()
    (ws.path / "lost").write_text("2")
    ws.umount()
    # The marker that the kernel leaves when it was not unmounted.
    (ws.folder / "work" / "work" / "incompat" / "volatile").mkdir(parents=True)
    again = store.mount("try-1", note=said.append)
    assert any("set aside" in each or "kept in" in each for each in said)
    assert (again.path / "committed").exists() and not (again.path / "lost").exists()
    assert list(again.folder.glob("upper.aside-*/lost"))
    again.umount()
    assert list(again.folder.glob("upper.aside-*/lost"))


def test_a_scratch_in_memory(store: atoll.Store, driver: str) -> None:
    if driver == "copy":
        with pytest.raises(errors.Unsupported, match="memory"):
            store.fork("main", "try-1").mount(driver=driver, scratch="memory")
        return
    with store.fork("main", "try-1").mount(driver=driver, scratch="memory:64M") as ws:
        (ws.path / "x").write_text("1")
        with pytest.raises(OSError, match="No space"):
            (ws.path / "big").write_bytes(bytes(100 << 20))
        # Before the commit: it moves the folder's mtime, and what is not committed outlives an unmount.
        (ws.path / "big").unlink()
        assert ws.commit().changed
    assert store.read("try-1", "x") == b"1" and store.workspaces() == []
    with pytest.raises(errors.Usage, match="scratch"):
        store.mount("try-1", scratch="floppy")
