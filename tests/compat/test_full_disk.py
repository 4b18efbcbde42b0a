"""A full disk below a store, at every stage: said where it happens, nothing lost, on it goes afterwards."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import atoll
from atoll import _native, errors
from tests.compat.conftest import Tools
from tests.drivers.picture import differences, take

SIZE = 64 << 20
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def small(home: Path) -> Iterator[Path]:
    """A disk of 64 MB in memory."""
    place = home / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "small", place], check=True, timeout=60)
    yield place
    gc.collect()  # the traceback of an expected failure still holds the core's store, whose files are open
    subprocess.run(["umount", place], check=True, timeout=60)


def fill(path: Path, chunk: int = 1 << 20) -> int:
    """Writes until the disk is full; what was written."""
    written = 0
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    with pytest.raises(OSError) as failure:
        while True:
            written += os.write(file, os.urandom(chunk))
    os.close(file)
    assert failure.value.errno in (errno.ENOSPC, errno.EDQUOT)
    return written


def test_a_full_store(small: Path, home: Path, driver: str, tools: Tools) -> None:
    """Case 11: the disk of the store and its workspaces fills up by a write, by a map, during a commit: the
    error is ENOSPC where it happens, `rm` works, what was committed stays whole, and everything goes on once
    there is room, without a restart."""
    project = home / "app"
    project.mkdir()
    data = os.urandom(4 << 20)
    (project / "base").write_bytes(data)
    (project / "small").write_text("small\n")
    with closing(atoll.create(small / "store")) as store:
        store.import_folder(project, branch="main")
        ws = store.fork("main", "a").mount(small / "ws", driver=driver)
        (ws.path / "kept").write_text("kept\n")
        ws.commit("before")
        committed = store.commit("a")

        # By a write: of a new file, to an inherited file, of a folder.
        assert fill(ws.path / "filler") > 30 << 20
        assert (ws.path / "base").read_bytes() == data
        with pytest.raises(OSError) as failure:
            (ws.path / "another").write_bytes(b"x" * 100_000)
        assert failure.value.errno == errno.ENOSPC
        if driver == "overlay":
            with pytest.raises(OSError) as failure:
                os.truncate(ws.path / "base", 4_000_000)  # has to be copied up first
            assert failure.value.errno == errno.ENOSPC
            assert (ws.path / "base").read_bytes() == data

        # A commit of what has no room: said, and the branch is where it was.
        with pytest.raises(errors.NoSpace):
            ws.commit("too much")
        assert store.commit("a") == committed and store.read("a", "kept") == b"kept\n"
        assert not [path for path in (small / "store" / "packs").iterdir() if path.stat().st_size > 20 << 20]

        # Removing works when it is full, and then everything does.
        (ws.path / "filler").unlink()
        (ws.path / "another").unlink(missing_ok=True)
        (ws.path / "after").write_text("after\n")
        assert ws.commit("after").changed
        assert {entry.path for entry in store.ls("a")} == {"after", "base", "kept", "small"}

        # By a map over a hole: the process that stores into it gets a signal (with fuse, where the kernel
        # asks for no room beforehand, an error of its msync); the file system stays whole.
        with open(ws.path / "hole", "wb") as file:
            file.truncate(2 * SIZE)
        code = (
            "import mmap, os, sys\n"
            "file = open(sys.argv[1], 'r+b')\n"
            "mapped = mmap.mmap(file.fileno(), 0)\n"
            "for at in range(0, len(mapped), 4096): mapped[at] = 1\n"
            "mapped.flush()\n"
        )
        done = tools.raw("python3", "-c", code, ws.path / "hole", cwd=home)
        if driver == "fuse":
            assert done.returncode == 1 and "No space left" in str(done.stderr), done
        else:
            assert done.returncode == -7, done  # SIGBUS
        assert (ws.path / "hole").read_bytes()[:1] == b"\1"
        (ws.path / "hole").unlink()
        ws.commit("and on")

        # gc with nothing to spare does no harm, and frees what was dropped.
        with store.fork("a", "big").mount(small / "big", driver=driver) as big:
            (big.path / "blob").write_bytes(os.urandom(8 << 20))
            big.commit("blob")
        store.drop("big")
        fill(small / "filler")
        try:
            store.gc(expire_days=0)
        except errors.NoSpace:
            (small / "filler").unlink()
            store.gc(expire_days=0)
        (small / "filler").unlink(missing_ok=True)
        assert store.check()["problems"] == []
        shown = take(ws)
        assert not ws.umount().kept
        with store.mount("a", small / "ws", driver=driver) as ws:
            assert differences(take(ws), shown) == []
            assert (ws.path / "base").read_bytes() == data
        _native.stop_server(store.native)


def test_an_import_that_does_not_fit(small: Path, home: Path) -> None:
    """Case 11: an import that fills the disk leaves the store as it was, and no room taken."""
    project = home / "app"
    project.mkdir()
    (project / "f").write_text("one\n")
    with closing(atoll.create(small / "store")) as store:
        store.import_folder(project, branch="main")
        before = store.resolve("main")
        (project / "big").write_bytes(os.urandom(SIZE))
        with pytest.raises(errors.NoSpace):
            store.import_folder(project, branch="main")
        assert store.resolve("main") == before and store.check()["problems"] == []
        (project / "big").unlink()
        (project / "f").write_text("two\n")
        assert store.import_folder(project, branch="main").changed
        store.gc(expire_days=0)
        used = SIZE - os.statvfs(small).f_bavail * os.statvfs(small).f_frsize
        assert used < 8 << 20
