"""`xfstests`: the kernel developers' own suite."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from atoll.lab.host import mount_of
from atoll.lab.model import Tool, Unavailable
from atoll.lab.suites.conformance import ConformanceSuite
from atoll.lab.work import Work

__all__ = ["XfsTests", "find_check", "parse"]

_PLACES = ("/var/lib/xfstests", "/opt/xfstests", "/usr/lib/xfstests")
_HOW = "build xfstests and name its folder in XFSTESTS_DIR (or install it to /var/lib/xfstests)"
# A result is a number of seconds, "[not run] why", "[expunged]", or says what was wrong.
_LINE = re.compile(r"^([a-z0-9]+/[0-9]{3})\s+(.*)$")


class XfsTests(ConformanceSuite):
    """An adapter: the suite itself has to be built."""

    name = "xfstests"
    title = "the generic quick group of xfstests"
    about = (
        "The real xfstests, tests of the groups quick and auto in generic/, without a scratch device "
        "(tests that need one are skipped). It wants a mount of its own whose kind it knows: a tmpfs, a "
        "loop mount, a FUSE mount. It mounts overlayfs itself, so a workspace of the overlay driver "
        "cannot be given to it."
    )
    tool = Tool("bash", "Debian's package bash")
    limit = 4 * 3600.0

    def work(self, work: Work) -> Mapping[str, str]:
        check = find_check()
        if check is None:
            raise Unavailable(f"xfstests is missing: {_HOW}")
        mount = mount_of(work.folder)
        if os.path.realpath(work.handle.root) != mount.point:
            raise Unavailable("xfstests needs a mount of its own, not a folder of one")
        kind = "fuse" if mount.kind.startswith("fuse") else mount.kind
        if kind == "overlay":
            raise Unavailable(
                "xfstests mounts overlayfs itself; a workspace that is mounted cannot be given to it"
            )
        environment = {
            **os.environ,
            "FSTYP": kind,
            "TEST_DEV": mount.source,
            "TEST_DIR": mount.point,
            "RESULT_BASE": os.fspath(work.scratch / f"xfstests-{os.getpid()}"),
            "HOST_OPTIONS": "/dev/null",
        }
        wanted = (
            ["generic/001", "generic/002", "generic/005"]
            if work.options.quick
            else ["-g", "quick", "generic"]
        )
        os.chdir("/")  # it unmounts and mounts the target now and then
        done = subprocess.run(
            [os.fspath(check), *wanted],
            cwd=check.parent,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        found = parse(done.stdout)
        if not found:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["no message"]
            work.check(False, f"check ended with {done.returncode} and ran nothing: {said[0]}")
        return found


def find_check() -> Path | None:
    """The suite's main script."""
    named = os.environ.get("XFSTESTS_DIR")
    for place in (named,) if named else _PLACES:
        check = Path(place) / "check"
        if check.is_file() and os.access(check, os.X_OK):
            return check
    return None


def parse(text: str) -> dict[str, str]:
    """What its main script prints while it runs: a test's name and how it went."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        name, said = match[1], match[2].strip()
        if said.startswith(("[not run]", "[expunged]")):
            found[name] = f"skip: {said.partition(']')[2].strip()}"
        elif re.search(r"output mismatch|\[failed|inconsistent|_check_", said):
            found[name] = f"fail: {said[:200]}"
        elif re.fullmatch(r"(\S+ \.\.\. )?\s*\d+s( \.\.\.)?\s*(\d+s)?", said):
            found[name] = "pass"
        else:
            found[name] = f"fail: {said[:200]}"
    return found
