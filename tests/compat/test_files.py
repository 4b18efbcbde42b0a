"""What programs ask of a file system by system calls, on inherited and new files: the kernel's answers."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from atoll import _native
from tests.compat.conftest import Bench, Tools, tool

NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
_libc = ctypes.CDLL(None, use_errno=True)


def renameat2(old: Path, new: Path, flags: int) -> int:
    """rename with flags; the error, or 0."""
    if _libc.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags) == 0:
        return 0
    return ctypes.get_errno()


def names(folder: Path) -> dict[str, str]:
    """Every file's text by its path."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {os.fspath(path.relative_to(folder)): path.read_text() for path in files}


def test_rename_flags(bench: Bench) -> None:
    """Case 5: EXCHANGE, NOREPLACE, both and WHITEOUT, on files and folders, inherited and new, in one folder
    and across: done whole, or refused with nothing changed; never a plain rename."""
    for name in ("d/f", "d/g", "e/f", "e/deep/x"):
        (bench.project / name).parent.mkdir(parents=True, exist_ok=True)
        (bench.project / name).write_text(name)
    bench.imported()
    ws = bench.fork("a")
    top = ws.path
    (top / "new").write_text("new")
    for flags, code in ((NOREPLACE, errno.EEXIST), (NOREPLACE | EXCHANGE, errno.EINVAL)):
        before = names(top)
        for old, new in (("d/f", "d/g"), ("d/f", "e/f"), ("new", "d/f"), ("d", "e"), ("d/f", "new")):
            assert renameat2(top / old, top / new, flags) == code, (old, new, flags)
        assert names(top) == before
    assert renameat2(top / "new", top / "d" / "newer", NOREPLACE) == 0
    for old, new in (("d/f", "d/g"), ("d/f", "e/f"), ("d/newer", "e/f"), ("d", "e")):
        assert renameat2(top / old, top / new, EXCHANGE) == 0, (old, new)
    # A file against a folder.
    assert renameat2(top / "d" / "f", top / "e", EXCHANGE) == 0
    expected = {
        "d/deep/x": "e/deep/x",
        "d/f/f": "e/f",
        "d/f/g": "d/f",
        "d/f/newer": "d/g",
        "e": "new",
    }
    assert names(top) == expected
    whiteout = renameat2(top / "e", top / "moved", WHITEOUT)
    assert whiteout in (0, errno.EINVAL, errno.EPERM)
    if whiteout == 0:
        assert stat.S_ISCHR((top / "e").lstat().st_mode)
        (top / "e").unlink()
    else:
        (top / "e").rename(top / "moved")
    expected["moved"] = expected.pop("e")
    assert names(top) == expected
    with bench.remounted(ws) as ws:
        assert names(ws.path) == expected


def test_unlinked_open_files(bench: Bench) -> None:
    """Case 6: a file without a name goes on: write, truncate, link count 0, read; inherited, new, replaced; a
    commit meanwhile does not have it, and neither has the next mount."""
    for name in ("old", "over", "mapped"):
        (bench.project / name).write_bytes(name.encode() * 3000)
    bench.imported()
    ws = bench.fork("a")
    (ws.path / "new").write_bytes(b"new" * 3000)
    (ws.path / "replacement").write_text("replacement")
    files = {name: open(ws.path / name, "r+b") for name in ("old", "over", "mapped", "new")}  # noqa: SIM115
    with mmap.mmap(files["mapped"].fileno(), 4096) as mapped:
        for name in ("old", "mapped", "new"):
            (ws.path / name).unlink()
        (ws.path / "replacement").rename(ws.path / "over")
        mapped[:3] = b"MAP"
        for file in files.values():
            os.pwrite(file.fileno(), b"after", 100)
        ws.commit("meanwhile")
        assert [entry.path for entry in bench.store.ls("a")] == ["over"]
        for name, file in files.items():
            number = file.fileno()
            assert os.fstat(number).st_nlink == 0
            assert os.pread(number, 5, 100) == b"after"
            os.ftruncate(number, 50)
            os.ftruncate(number, 10_000)
            assert os.fstat(number).st_size == 10_000
            start = b"MAP" if name == "mapped" else name.encode()[:3]
            assert os.pread(number, 3, 0) == start and os.pread(number, 3, 60) == b"\0\0\0"
    for file in files.values():
        file.close()
    with bench.remounted(ws) as ws:
        assert names(ws.path) == {"over": "replacement"}


def test_shared_maps(bench: Bench) -> None:
    """Case 14: a shared writable map on inherited and new files: stores are read by descriptor and by another
    process, msync works, and a commit has what was stored, also without msync and while the map is there."""
    (bench.project / "old").write_bytes(bytes(64 << 10))
    bench.imported()
    ws = bench.fork("a")
    (ws.path / "new").write_bytes(bytes(64 << 10))
    for turn in range(1, 4):
        for name in ("old", "new"):
            with open(ws.path / name, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
                mapped[5000 * turn] = turn
                ws.commit("stored")
                assert bench.store.read("a", name, 5000 * turn, 1) == bytes([turn])
                mapped[40_000 + turn] = turn
                if turn == 2:
                    mapped.flush()
                assert os.pread(file.fileno(), 1, 40_000 + turn) == bytes([turn])
                code = f"import sys; sys.stdout.write(str(open('{name}', 'rb').read()[{40_000 + turn}]))"
                said = subprocess.check_output([sys.executable, "-c", code], cwd=ws.path, timeout=60)
                assert said == b"%d" % turn
                # The page is dirty already: nothing but the map itself tells of this store.
                mapped[40_010 + turn] = turn
                ws.commit("stored again")
                assert bench.store.read("a", name, 40_010 + turn, 1) == bytes([turn])
    with bench.remounted(ws) as ws:
        for name in ("old", "new"):
            data = (ws.path / name).read_bytes()
            for turn in range(1, 4):
                assert data[5000 * turn] == data[40_000 + turn] == data[40_010 + turn] == turn


@root_only
def test_a_write_clears_set_id(bench: Bench, tools: Tools) -> None:
    """Case 29: a write by an ordinary user takes set-id bits and capabilities away, on inherited files
    as anywhere; the commit has it thus."""
    capability = bytes.fromhex("0100000200200000000000000000000000000000")
    for name in ("suid", "cap", "kept"):
        (bench.project / name).write_text("program")
        (bench.project / name).chmod(0o6777 if name != "cap" else 0o777)
        if name != "suid":
            os.setxattr(bench.project / name, "security.capability", capability)
    bench.imported()
    ws = bench.fork("a")
    folder = ws.path
    # The managed place is the user's own; the files are reached through descriptors that are handed over.
    code = "import os, sys\nfor at in sys.argv[1:]: os.write(int(at), b'x')"
    files = [os.open(folder / name, os.O_WRONLY) for name in ("suid", "cap")]
    words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--"]
    tool("setpriv")
    subprocess.run(
        [*words, "/usr/bin/env", "python3", "-c", code, *map(str, files)],
        pass_fds=files,
        check=True,
        timeout=60,
        env={"PATH": "/usr/bin:/bin"},
    )
    for file in files:
        os.close(file)
    (folder / "chowned").write_text("x")
    (folder / "chowned").chmod(0o6755)
    os.chown(folder / "chowned", 5, 5)

    def check(folder: Path) -> None:
        assert stat.S_IMODE((folder / "suid").stat().st_mode) == 0o777
        assert stat.S_IMODE((folder / "chowned").stat().st_mode) == 0o755
        assert "security.capability" not in os.listxattr(folder / "cap")
        assert os.getxattr(folder / "kept", "security.capability") == capability
        assert stat.S_IMODE((folder / "kept").stat().st_mode) == 0o6777

    check(folder)
    with bench.remounted(ws) as ws:
        check(ws.path)


def requests(bench: Bench) -> dict[str, int]:
    """What the history server was asked for so far, by kind."""
    (server,) = [one for one in _native.servers() if one["store_id"] == bench.store.id]
    return server["requests"]


def test_writes_ask_the_server_nothing(bench: Bench) -> None:
    """Case 29: 4 KiB writes to an inherited file ask for no `security.capability`: once it is copied up, and
    before that for a tree without attributes, the server is not asked at all."""
    if not bench.overlay:
        pytest.skip("copy has no server")
    (bench.project / "file").write_bytes(bytes(1 << 20))
    bench.imported()
    with bench.fork("a") as ws, open(ws.path / "file", "r+b", buffering=0) as file:
        file.write(b"x" * 4096)
        before = requests(bench)
        for _ in range(200):
            file.write(b"x" * 4096)
        assert requests(bench) == before


def test_free_space_is_that_of_the_disk(bench: Bench, tools: Tools) -> None:
    """Case 32: statvfs and `df` show the disk that holds the store, in bytes and files, also below inherited
    folders, and what is written is seen there."""
    (bench.project / "sub").mkdir()
    (bench.project / "sub" / "f").write_text("x")
    bench.imported()
    with bench.fork("a") as ws:
        disk = os.statvfs(bench.store.path)
        for place in (ws.path, ws.path / "sub", ws.path / "sub" / "f"):
            seen = os.statvfs(place)
            assert (seen.f_blocks, seen.f_frsize) == (disk.f_blocks, disk.f_frsize)
            assert seen.f_files == disk.f_files and 0 < seen.f_bavail <= disk.f_blocks
            assert seen.f_namemax == disk.f_namemax == 255
        for flag in ("--output=size", "--output=itotal"):
            ours, theirs = (tools("df", flag, where, cwd=ws) for where in (ws.path, bench.store.path))
            assert ours == theirs


@root_only
def test_modes_umask_and_sticky_folders(bench: Bench, tools: Tools) -> None:
    """Case 37: umask, set-group-id folders hand their group on, sticky folders keep others from removing;
    in inherited folders, and again when it is all history."""
    for name, mode in (("sgid", 0o2777), ("sticky", 0o1777), ("plain", 0o777)):
        (bench.project / name).mkdir()
        os.chown(bench.project / name, 0, 1234)
        (bench.project / name).chmod(mode)
    (bench.project / "sticky" / "roots").write_text("x")
    bench.imported()
    ws = bench.fork("a")
    shell = (
        "umask 027; mkdir sgid/dir; touch sgid/file plain/file; umask 0; mkdir plain/open; touch plain/all"
    )
    tools("sh", "-c", shell, cwd=ws)

    def check(top: Path) -> None:
        def seen(name: str) -> tuple[int, int]:
            info = (top / name).stat()
            return stat.S_IMODE(info.st_mode), info.st_gid

        assert seen("sgid/dir") == (0o2750, 1234) and seen("sgid/file") == (0o640, 1234)
        assert seen("plain/file") == (0o640, 0)
        assert seen("plain/open") == (0o777, 0) and seen("plain/all") == (0o666, 0)
        code = "import os, sys; os.fchdir(int(sys.argv[1])); os.unlink('roots')"
        folder = os.open(top / "sticky", os.O_RDONLY)
        done = subprocess.run(
            [
                "setpriv",
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "--",
                "python3",
                "-c",
                code,
                str(folder),
            ],
            pass_fds=[folder],
            cwd="/",
            env={"PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        os.close(folder)
        assert "PermissionError: [Errno 1]" in done.stderr

    check(ws.path)
    with bench.remounted(ws) as ws:
        check(ws.path)
        tools("sh", "-c", "umask 077; mkdir sgid/dir/deeper", cwd=ws)
        info = (ws.path / "sgid" / "dir" / "deeper").stat()
        assert (stat.S_IMODE(info.st_mode), info.st_gid) == (0o2700, 1234)


def test_access_control_lists(bench: Bench, tools: Tools, home: Path) -> None:
    """Case 37: an ACL either works and is kept, or is refused when it is set: never dropped in silence."""
    if shutil.which("setfacl") is None:
        pytest.skip("setfacl is not installed; scripts/setup.sh test installs it")
    for name in ("old", "dir/f"):
        (bench.project / name).parent.mkdir(exist_ok=True)
        (bench.project / name).write_text("x")
    on_disk = tools.raw("setfacl", "-m", "u:1234:rwx", "old", cwd=bench.project).returncode == 0
    bench.imported()
    ws = bench.fork("a")

    def lists(folder: Path) -> str:
        return tools("getfacl", "-R", "-n", ".", cwd=folder)

    assert lists(ws.path) == lists(bench.project)
    done = tools.raw("setfacl", "-m", "u:4321:r--", "old", cwd=ws)
    if not on_disk or done.returncode != 0:
        assert "not supported" in done.stderr
        ws.umount()
        return
    tools("setfacl", "-d", "-m", "g:77:rwx", "dir", cwd=ws)
    (ws.path / "dir" / "inherits").write_text("x")
    shown = lists(ws.path)
    assert "user:4321:r--" in shown and "default:group:77:rwx" in shown
    with bench.remounted(ws) as ws:
        assert lists(ws.path) == shown
        bench.store.export("a", home / "out")
    assert lists(home / "out") == shown
