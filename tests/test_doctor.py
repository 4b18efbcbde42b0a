"""What doctor says about this machine, and about others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from atoll.doctor import Check, apply, docker_command, examine
from atoll.machine import Machine

ATOLL = os.path.join(os.path.dirname(sys.executable), "atoll")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A made-up machine on which everything is fine, seen by an ordinary user."""
    files = {
        "/proc/filesystems": "nodev\tproc\nnodev\toverlay\n\text4",
        "/proc/self/status": "Name:\tx\nCapEff:\t0000000000000000",
        "/proc/self/mountinfo": "22 1 8:1 / / rw - ext4 /dev/sda1 rw",
        "/proc/sys/user/max_user_namespaces": "1000",
        "/proc/sys/fs/inotify/max_user_watches": "1048576",
        "/proc/sys/fs/inotify/max_user_instances": "1024",
        "/sys/module/fuse/parameters/enable_uring": "Y",
        "/etc/fuse.conf": "# x\nuser_allow_other\n",
        "/etc/os-release": "ID=debian\n",
        "/dev/fuse": "",
    }
    for path, text in files.items():
        write(tmp_path, path, text)
    (tmp_path / "dev" / "fuse").chmod(0o666)
    store = tmp_path / "store"
    store.mkdir()
    made = Machine(tmp_path, store)
    made.release = "6.18.1"
    made.uid = 1000
    return made


def write(root: Path, path: str, text: str) -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def find(machine: Machine, name: str) -> Check:
    (check,) = [check for check in examine(machine) if check.name == name]
    return check


def test_a_good_machine(machine: Machine) -> None:
    missing = {check.name for check in examine(machine) if not check.ok}
    assert missing <= {"mount right", "fusermount3"}
    assert all(check.fix is None for check in examine(machine) if check.ok)


def test_the_mount_right(machine: Machine) -> None:
    assert find(machine, "mount right").fix == "run atoll as root"
    write(machine.root, "/proc/self/status", "CapEff:\t0000000000200000")
    assert find(machine, "mount right").ok
    assert "user namespaces" not in {check.name for check in examine(machine)}


def test_an_old_kernel(machine: Machine) -> None:
    machine.release = "6.1.0-13-amd64"
    check = find(machine, "kernel")
    assert (check.ok, check.level) == (False, "recommended")
    assert "6.7" in check.detail
    machine.release = "4.19.0"
    assert find(machine, "kernel").level == "required"


@pytest.mark.parametrize(
    ("path", "value", "command"),
    [
        ("/proc/sys/user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=15000"),
        ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ],
)
def test_user_namespaces(machine: Machine, path: str, value: str, command: str) -> None:
    assert find(machine, "user namespaces").ok
    write(machine.root, path, value)
    check = find(machine, "user namespaces")
    assert (check.ok, check.fix, check.safe) == (False, f"sudo {command}", False)


def test_the_fuse_device(machine: Machine) -> None:
    assert find(machine, "/dev/fuse").ok
    (machine.root / "dev" / "fuse").unlink()
    assert find(machine, "/dev/fuse").fix == "sudo modprobe fuse"
    write(machine.root, "/.dockerenv", "")
    assert "--device /dev/fuse" in (find(machine, "/dev/fuse").fix or "")


def test_a_closed_fuse_device_as_root(machine: Machine) -> None:
    machine.uid = 0
    (machine.root / "dev" / "fuse").chmod(0o600)
    check = find(machine, "/dev/fuse for others")
    assert (check.ok, check.fix, check.safe, check.level) == (False, "chmod 0666 /dev/fuse", True, "optional")
    assert "mounts nothing by itself" in check.detail


def test_a_container(machine: Machine) -> None:
    write(machine.root, "/.dockerenv", "")
    check = find(machine, "container")
    command = docker_command(machine)
    assert not check.ok and command in (check.fix or "")
    for flag in ("--cap-add SYS_ADMIN", "--device /dev/fuse", f"-v atoll-data:{machine.store}"):
        assert flag in command


def test_where_the_store_is(machine: Machine) -> None:
    assert find(machine, "store's file system").ok
    lines = f"22 1 8:1 / / rw - ext4 x rw\n23 22 0:50 / {machine.store} rw - nfs4 host:/x rw"
    write(machine.root, "/proc/self/mountinfo", lines)
    check = find(machine, "store's file system")
    assert not check.ok and "NFS" in check.detail
    write(machine.root, "/.dockerenv", "")
    write(machine.root, "/proc/self/mountinfo", "22 1 0:50 / / rw - overlay overlay rw")
    assert f"-v atoll-data:{machine.store}" in (find(machine, "store's file system").fix or "")


def test_only_safe_fixes_are_applied() -> None:
    checks = [
        Check("a", "optional", False, "", "", "fix a", True),
        Check("b", "optional", False, "", "", "fix b", False),
        Check("c", "optional", True, "", "", "fix c", True),
    ]
    ran: list[str] = []

    def run(line: str) -> int:
        ran.append(line)
        return 0

    assert [(check.name, code) for check, code in apply(checks, run)] == [("a", 0)]
    assert ran == ["fix a"]


def test_the_command(tmp_path: Path) -> None:
    env = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data"), "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run([ATOLL, "doctor", "--json"], env=env, capture_output=True, text=True, check=False)
    document = json.loads(done.stdout)
    assert document["schema"] == 1
    failing = [check for check in document["checks"] if not check["ok"] and check["level"] == "required"]
    assert document["ok"] is (not failing)
    assert done.returncode == (1 if failing else 0)
    names = [check["name"] for check in document["checks"]]
    assert {"driver", "kernel", "/dev/fuse", "free space", "same path", "inotify limits"} <= set(names)
    assert all(check["fix"] for check in document["checks"] if not check["ok"])
    text = subprocess.run([ATOLL, "doctor"], env=env, capture_output=True, text=True, check=False).stdout
    assert all(name in text for name in names)
    assert list((tmp_path).iterdir()) == [] or not (tmp_path / "data").exists()
