"""What a machine says about itself: kernel, rights, container, distribution."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["Machine", "boot_id", "same_boot"]


def boot_id() -> str | None:
    """What tells this start of the machine from every other; None where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def same_boot(settings: Mapping[str, Any]) -> bool:
    """Whether a workspace with these settings was mounted since the machine was started (or none can say)."""
    return settings.get("boot") in (None, boot_id())


class Machine:
    """Where the checks look. `root` is `/`, or a folder that stands for it in tests."""

    def __init__(self, root: Path = Path("/"), store: Path | None = None) -> None:
        from atoll.places import data_home

        self.root = root
        self.store = store or data_home()
        self.release = os.uname().release
        self.uid = os.geteuid()

    def path(self, path: str) -> Path:
        """Where an absolute path is."""
        return self.root / path.lstrip("/")

    def read(self, path: str) -> str | None:
        """A small file's text without its last newline; None when it cannot be read."""
        try:
            return self.path(path).read_text(errors="replace").strip()
        except OSError:
            return None

    @property
    def kernel(self) -> tuple[int, int]:
        """Major and minor number."""
        match = re.match(r"(\d+)\.(\d+)", self.release)
        return (int(match[1]), int(match[2])) if match else (0, 0)

    @property
    def as_root(self) -> bool:
        """Whether this is the super-user."""
        return self.uid == 0

    def sudo(self, command: str) -> str:
        """The command as this user has to type it."""
        return command if self.as_root else f"sudo {command}"

    def capable(self, capability: int) -> bool:
        """Whether this process has a capability."""
        match = re.search(r"^CapEff:\s*([0-9a-f]+)", self.read("/proc/self/status") or "", re.MULTILINE)
        return bool(match and int(match[1], 16) >> capability & 1)

    @property
    def container(self) -> str | None:
        """The kind of container that this is, if any."""
        if self.path("/.dockerenv").exists():
            return "docker"
        if self.path("/run/.containerenv").exists():
            return "podman"
        if "KUBERNETES_SERVICE_HOST" in os.environ and self.path("/var/run/secrets/kubernetes.io").exists():
            return "kubernetes"
        named = self.read("/run/systemd/container")
        if named:
            return named
        if (self.read("/proc/1/cgroup") or "").find("/lxc") >= 0:
            return "lxc"
        return None

    @property
    def wsl(self) -> bool:
        """Whether this is Windows' subsystem for Linux."""
        return "microsoft" in self.release.lower()

    def install(self, package: str) -> str:
        """How this distribution installs a package."""
        text = self.read("/etc/os-release") or ""
        names = " ".join(re.findall(r"^ID(?:_LIKE)?=\"?([^\"\n]*)", text, re.MULTILINE))
        for like, command in (
            ("debian", "apt-get install -y"),
            ("ubuntu", "apt-get install -y"),
            ("fedora", "dnf install -y"),
            ("rhel", "dnf install -y"),
            ("suse", "zypper install -y"),
            ("arch", "pacman -S --noconfirm"),
            ("alpine", "apk add"),
        ):
            if like in names:
                return self.sudo(f"{command} {package}")
        return f"install the package {package}"
