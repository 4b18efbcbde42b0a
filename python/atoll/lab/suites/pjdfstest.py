"""`pjdfstest`: POSIX, system call by system call."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from atoll.lab.host import find_program
from atoll.lab.model import Tool, Unavailable
from atoll.lab.suites.conformance import ConformanceSuite
from atoll.lab.work import Work

__all__ = ["PjdFsTest", "closed", "parse"]

# naptime below 0.02 s fails now and then even on tmpfs. Without dummy_auth it looks for a user called tests.
_CONFIGURATION = """\
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.02
allow_remount = false
expected_failures = []
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"""

_LINE = re.compile(r"^(\S+)\s+(ok|skipped|FAILED|failed|expected failure)\s*$")


class PjdFsTest(ConformanceSuite):
    """An adapter: the program itself has to be installed."""

    name = "pjdfstest"
    title = "POSIX conformance, some 400 tests of single calls"
    about = (
        "The real pjdfstest (0.2 or later), on the target and with /dev/shm as its second file system. "
        "The tests that remount the target read-only are skipped: a run among other mounts finds it busy. "
        "It makes its own files, so it says nothing about files that came from a history. As an ordinary "
        "user some 146 tests are skipped."
    )
    tool = Tool("pjdfstest", "`cargo install pjdfstest`")

    def work(self, work: Work) -> Mapping[str, str]:
        program = find_program("pjdfstest")
        if program is None:
            raise Unavailable("pjdfstest is missing: `cargo install pjdfstest`")
        if os.geteuid() == 0 and (barred := closed(work.folder.parent)):
            raise Unavailable(f"it works as other users too, who cannot enter {barred}; take another folder")
        configuration = work.scratch / f"pjdfstest-{os.getpid()}.toml"
        configuration.write_text(_CONFIGURATION)
        work.folder.chmod(0o755)
        # A socket's path may have no more than 107 bytes, and the lab's are long: a link is short.
        link = Path(tempfile.mkdtemp(prefix="pjd.")) / "t"
        link.parent.chmod(0o755)
        link.symlink_to(work.folder)
        command = [program, "-c", os.fspath(configuration), "-p", os.fspath(link), "-s", "/dev/shm"]
        if work.options.quick:
            command.append("rmdir")
        done = subprocess.run(
            command,
            env={**os.environ, "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        configuration.unlink()
        shutil.rmtree(link.parent)
        work.check(
            done.returncode in (0, 1), f"ended with {done.returncode}: {(done.stderr or done.stdout)[-200:]}"
        )
        return parse(done.stdout)


def closed(folder: Path) -> Path | None:
    """The first folder on the way that only its owner may enter."""
    return next(
        (each for each in (*reversed(folder.parents), folder) if not each.stat().st_mode & 0o001), None
    )


def parse(text: str) -> dict[str, str]:
    """Its table: a name and a result on each line, the reason indented below."""
    found: dict[str, str] = {}
    last = ""
    for line in text.splitlines():
        if match := _LINE.match(line):
            last = match[1]
            found[last] = {"ok": "pass", "skipped": "skip"}.get(match[2], "fail")
        elif line.startswith("\t") and last and ":" not in found[last]:
            found[last] += f": {line.strip()[:200]}"
    return found
