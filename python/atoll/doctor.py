"""What this machine offers to atoll, and the command that mends what is missing.

Every check looks at one thing and says in one sentence what it found. A `Machine` is where the checks look,
so that tests can show them another one."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from atoll.machine import Machine

__all__ = ["Check", "Machine", "apply", "docker_command", "examine"]

Level = Literal["required", "recommended", "optional"]

# : The first kernels with what is needed: `lowerdir+` of overlayfs, FUSE over io_uring, the new mount
# interface.
OVERLAY_KERNEL = (6, 7)
URING_KERNEL = (6, 14)
OLDEST_KERNEL = (5, 12)
CAP_SYS_ADMIN = 21
FREE_BYTES = 1 << 30
WATCHES = 524_288
INSTANCES = 512
#: File systems that cannot hold an overlay's upper, or not safely.
UNFIT = {
    "overlay": "is an overlay itself (a container's own root)",
    "nfs": "is on NFS",
    "nfs4": "is on NFS",
    "cifs": "is on SMB",
    "9p": "is on a host's folder (9p, DrvFs)",
    "virtiofs": "is on a host's folder (virtiofs)",
    "drvfs": "is on a Windows drive",
    "fuse.grpcfuse": "is on a host's folder",
    "vfat": "is on FAT",
    "exfat": "is on exFAT",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    level: Level
    """`required`: nothing works without. `recommended`: the best driver or a promise needs it. `optional`:
    faster, or for special cases."""
    ok: bool
    detail: str
    """What was found, in a sentence."""
    gives: str
    """What it is needed for."""
    fix: str | None = None
    """The command (or the step) that mends it; None when it is fine or nothing does."""
    safe: bool = False
    """Whether `apply` runs the fix."""


def examine(machine: Machine | None = None) -> list[Check]:
    """All checks, the most important first."""
    where = machine or Machine()
    if sys.platform != "linux":
        return [_other_system(), *_drop_none(_space(where), _xattrs(where))]
    found = _drop_none(*(check(where) for check in _CHECKS))
    return [replace(check, fix=None, safe=False) if check.ok else check for check in found]


def _drop_none(*checks: Check | None) -> list[Check]:
    return [check for check in checks if check is not None]


def _other_system() -> Check:
    detail = f"{sys.platform}: workspaces are copies (the copy driver); mounts and `run` need Linux."
    return Check("system", "recommended", False, detail, "overlay driver, history mount, run")


def _kernel(machine: Machine) -> Check:
    need = ".".join(map(str, OVERLAY_KERNEL))
    level: Level = "required" if machine.kernel < OLDEST_KERNEL else "recommended"
    ok = machine.kernel >= OVERLAY_KERNEL
    tail = "." if ok else f"; the overlay driver needs {need}."
    fix = f"start a kernel of version {need} or newer"
    return Check("kernel", level, ok, f"Linux {machine.release}{tail}", "overlay driver", fix)


def _overlayfs(machine: Machine) -> Check:
    ok = bool(re.search(r"\boverlay$", machine.read("/proc/filesystems") or "", re.MULTILINE))
    detail = "overlayfs is there." if ok else "overlayfs is not loaded."
    fix = machine.sudo("modprobe overlay")
    return Check("overlayfs", "recommended", ok, detail, "overlay driver", fix, machine.container is None)


def _mount_right(machine: Machine) -> Check:
    ok = machine.capable(CAP_SYS_ADMIN)
    detail = "This process may mount." if ok else "This process may not mount (CAP_SYS_ADMIN)."
    fix = "run atoll as root" if machine.container is None else "add --cap-add SYS_ADMIN to the container"
    return Check("mount right", "recommended", ok, detail, "overlay driver", fix)


def _fuse_device(machine: Machine) -> Check:
    gives = "history mount, overlay driver, fuse driver"
    device = machine.path("/dev/fuse")
    if not device.exists():
        fix = (
            machine.sudo("modprobe fuse")
            if machine.container is None
            else "add --device /dev/fuse to the container"
        )
        safe = machine.container is None
        return Check("/dev/fuse", "recommended", False, "/dev/fuse is not there.", gives, fix, safe)
    mode = device.stat().st_mode & 0o777
    if machine.as_root or os.access(device, os.R_OK | os.W_OK):
        # Root opens it whatever its mode; for others the mode counts.
        closed = mode & 0o006 != 0o006
        note = " (root only)" if closed and machine.as_root else ""
        return Check(
            "/dev/fuse", "recommended", True, f"/dev/fuse can be opened; mode {mode:04o}{note}.", gives
        )
    detail = f"/dev/fuse cannot be opened by this user; mode {mode:04o}, elsewhere it is 0666."
    return Check("/dev/fuse", "recommended", False, detail, gives, machine.sudo("chmod 0666 /dev/fuse"))


def _fuse_mode(machine: Machine) -> Check | None:
    device = machine.path("/dev/fuse")
    if not machine.as_root or not device.exists():
        return None
    mode = device.stat().st_mode & 0o777
    ok = mode & 0o006 == 0o006
    detail = f"/dev/fuse has mode {mode:04o}" + (
        "."
        if ok
        else ": only root can open it; 0666 is what udev gives it, opening it mounts nothing by itself."
    )
    fix = "chmod 0666 /dev/fuse"
    return Check("/dev/fuse for others", "optional", ok, detail, "mounts of ordinary users", fix, True)


def _fusermount(machine: Machine) -> Check | None:
    if machine.capable(CAP_SYS_ADMIN):
        return None
    found = shutil.which("fusermount3")
    ok = found is not None and bool(os.stat(found).st_mode & 0o4000)
    detail = f"{found} is there." if ok else "fusermount3 is not there, or not set-user-id."
    return Check(
        "fusermount3", "optional", ok, detail, "history mount of an ordinary user", machine.install("fuse3")
    )


def _user_allow_other(machine: Machine) -> Check | None:
    if machine.as_root:
        return None
    ok = bool(re.search(r"^\s*user_allow_other\s*$", machine.read("/etc/fuse.conf") or "", re.MULTILINE))
    detail = f"user_allow_other is {'set' if ok else 'not set'} in /etc/fuse.conf."
    fix = "echo user_allow_other | sudo tee -a /etc/fuse.conf"
    return Check("user_allow_other", "optional", ok, detail, "letting other users read a history mount", fix)


def _uring(machine: Machine) -> Check:
    setting = machine.read("/sys/module/fuse/parameters/enable_uring")
    gives = "ATOLL_TRANSPORT=uring (faster cold reads on a busy machine)"
    if setting is None:
        need = ".".join(map(str, URING_KERNEL))
        detail = f"FUSE over io_uring is not there (Linux {need})."
        fix = f"start a kernel of version {need} or newer"
        return Check("enable_uring", "optional", False, detail, gives, fix)
    ok = setting in ("Y", "1")
    detail = f"FUSE over io_uring is {'on' if ok else 'off'}."
    fix = "echo 1 | sudo tee /sys/module/fuse/parameters/enable_uring"
    if machine.as_root:
        fix = "echo 1 > /sys/module/fuse/parameters/enable_uring"
    return Check("enable_uring", "optional", ok, detail, gives, fix, True)


def _user_namespaces(machine: Machine) -> Check | None:
    if machine.capable(CAP_SYS_ADMIN):
        return None
    gives = "the same path in `run` and `exec`"
    for path, bad, command in (
        ("/proc/sys/user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=15000"),
        ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ):
        if machine.read(path) == bad:
            name = path.removeprefix("/proc/sys/").replace("/", ".")
            detail = f"Ordinary users may have no user namespaces ({name} is {bad})."
            return Check("user namespaces", "recommended", False, detail, gives, machine.sudo(command))
    return Check("user namespaces", "recommended", True, "Ordinary users may have user namespaces.", gives)


def _same_path(machine: Machine) -> Check | None:
    """Tries it: the settings do not tell what seccomp or AppArmor refuse."""
    if machine.root != Path("/"):
        return None
    from atoll.errors import AtollError
    from atoll.run.launcher import NoNamespace, Spec, launch

    gives = "the same path in `run` and `exec`"
    with tempfile.TemporaryDirectory(prefix="atoll-doctor-") as folder:
        shown = Path(folder, "shown")
        shown.mkdir()
        try:
            ended = launch(Spec(["true"], Path(folder), shown, shown, {}))
        except NoNamespace as refused:
            fix = _container_fix(machine)
            return Check("same path", "recommended", False, refused.message, gives, fix)
        except AtollError as error:
            return Check("same path", "recommended", False, error.message, gives)
    kind = ended.events.get("started", {}).get("namespace")
    ok = ended.returncode == 0
    detail = f"A command can be shown a workspace at another path ({kind} namespace)."
    return Check("same path", "recommended", ok, detail, gives)


def _cgroup(machine: Machine) -> Check | None:
    if machine.root != Path("/"):
        return None
    from atoll.errors import AtollError
    from atoll.run.launcher import Limits, Spec, launch

    gives = "`run --memory --cpus --pids`, freezing at capture"
    here = Path(tempfile.gettempdir())
    limits = Limits(memory=1 << 30, cpus=1.0, pids=1000)
    fix = "run atoll as root, or in `systemd-run --user --scope -p Delegate=yes`"
    if machine.container is not None:
        fix = "add --cgroupns private and a writable /sys/fs/cgroup to the container"
    try:
        launch(Spec(["true"], here, None, here, {}, limits=limits))
    except AtollError:
        detail = "Limits cannot be kept: no cgroup with controllers can be made."
        return Check("cgroup limits", "optional", False, detail, gives, fix)
    return Check(
        "cgroup limits", "optional", True, "Commands can be limited, frozen and ended by cgroup.", gives
    )


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


def _store_place(machine: Machine) -> Check:
    place = _existing(machine.store)
    ok = os.access(place, os.W_OK)
    detail = f"Stores live in {machine.store}, which {'can' if ok else 'cannot'} be written."
    fix = "choose a folder that you can write with --store or XDG_DATA_HOME"
    return Check("store", "required", ok, detail, "everything", fix)


def _space(machine: Machine) -> Check:
    place = _existing(machine.store)
    free = shutil.disk_usage(place).free
    ok = free >= FREE_BYTES
    detail = f"{free / 1e9:,.1f} GB free at {place}."
    fix = "free some space (`atoll gc`, `atoll drop`), or choose another place with --store"
    return Check("free space", "required", ok, detail, "everything", fix)


def _file_system(machine: Machine) -> Check:
    """The kind of the file system that the store is on: of the mounts above it, the last and deepest."""
    place = os.path.realpath(_existing(machine.store))
    best, kind = "", ""
    for line in (machine.read("/proc/self/mountinfo") or "").splitlines():
        front, _, back = line.partition(" - ")
        point = front.split(" ")[4].replace("\\040", " ")
        inside = place == point or place.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, back.split(" ")[0]
    reason = UNFIT.get(kind)
    gives = "overlay driver with scratch on disk"
    if reason is None:
        return Check(
            "store's file system", "recommended", True, f"The store is on {kind or 'a local disk'}.", gives
        )
    fix = "keep stores on a local disk: --store DIR, or XDG_DATA_HOME"
    if machine.container is not None:
        fix = f"add a volume to the container: -v atoll-data:{machine.store}"
    if machine.wsl:
        fix = "keep stores inside of the Linux file system (~), not below /mnt"
    detail = f"{machine.store} {reason}: an overlay's changes cannot live there."
    return Check("store's file system", "recommended", False, detail, gives, fix)


def _xattrs(machine: Machine) -> Check | None:
    place = _existing(machine.store)
    if not os.access(place, os.W_OK) or not hasattr(os, "setxattr"):
        return None
    missing = []
    for name in ("user.atoll", *(["trusted.atoll"] if machine.as_root else [])):
        try:
            with tempfile.NamedTemporaryFile(dir=place, prefix=".atoll-doctor-") as file:
                os.setxattr(file.fileno(), name, b"1")
        except OSError:
            missing.append(name.split(".")[0])
    ok = not missing
    detail = "Extended attributes are kept." if ok else f"No {' or '.join(missing)} attributes at {place}."
    fix = "keep stores on ext4, xfs or btrfs: --store DIR"
    return Check("xattrs", "recommended", ok, detail, "overlay driver, attributes of files in copies", fix)


def _inotify(machine: Machine) -> Check:
    watches = int(machine.read("/proc/sys/fs/inotify/max_user_watches") or 0)
    instances = int(machine.read("/proc/sys/fs/inotify/max_user_instances") or 0)
    ok = watches >= WATCHES and instances >= INSTANCES
    detail = f"{watches:,} inotify watches and {instances:,} instances for each user."
    settings = f"fs.inotify.max_user_watches={max(watches, WATCHES)} "
    settings += f"fs.inotify.max_user_instances={max(instances, INSTANCES)}"
    gives = "file watchers in many workspaces"
    return Check("inotify limits", "optional", ok, detail, gives, machine.sudo(f"sysctl {settings}"), True)


def _container_fix(machine: Machine) -> str | None:
    if machine.container is None:
        return None
    return f"start the container with: {docker_command(machine)}"


def docker_command(machine: Machine) -> str:
    """The `docker run` (or `podman run`) with everything that the overlay driver needs."""
    program = "podman" if machine.container == "podman" else "docker"
    return (
        f"{program} run --cap-add SYS_ADMIN --device /dev/fuse --security-opt apparmor=unconfined "
        f"-v atoll-data:{machine.store} IMAGE"
    )


def _container(machine: Machine) -> Check | None:
    if machine.container is None:
        return None
    ok = machine.capable(CAP_SYS_ADMIN) and machine.path("/dev/fuse").exists()
    detail = f"This is a container ({machine.container})."
    return Check("container", "recommended", ok, detail, "overlay driver", _container_fix(machine))


def _driver(machine: Machine) -> Check | None:
    if machine.root != Path("/"):
        return None
    from atoll import drivers
    from atoll.drivers.base import MountOptions
    from atoll.errors import AtollError

    try:
        chosen, reasons = drivers.choose("auto", _existing(machine.store), MountOptions())
    except AtollError as error:
        return Check("driver", "required", False, error.message, "workspaces")
    detail = f"--driver auto takes {chosen.name}."
    return Check("driver", "required", True, " ".join([detail, *reasons]), "workspaces")


_CHECKS: tuple[Callable[[Machine], Check | None], ...] = (
    _driver,
    _store_place,
    _space,
    _kernel,
    _overlayfs,
    _mount_right,
    _fuse_device,
    _file_system,
    _xattrs,
    _user_namespaces,
    _same_path,
    _container,
    _cgroup,
    _fuse_mode,
    _fusermount,
    _user_allow_other,
    _uring,
    _inotify,
)


def apply(checks: list[Check], run: Callable[[str], int]) -> Iterator[tuple[Check, int]]:
    """Runs the safe fixes of what is missing (`run` takes a shell's line and returns its exit code)."""
    for check in checks:
        if not check.ok and check.safe and check.fix is not None:
            yield check, run(check.fix)
