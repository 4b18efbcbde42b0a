"""`fsx`: random operations on one file, each checked against a copy in memory."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping

from atoll.lab.host import find_program
from atoll.lab.model import Options, Tool, Unavailable
from atoll.lab.suites.conformance import ConformanceSuite
from atoll.lab.work import Work

__all__ = ["Fsx", "shapes"]

# Everything that Linux can do to a file. The program never unmaps, so: many seeds, no long runs.
_CONFIGURATION = """\
flen = {length}
[opsize]
max = {largest}
min = 0
align = 1
[weights]
close_open = 1
read = 10
write = 10
mapread = 10
mapwrite = 10
invalidate = 1
truncate = 5
fsync = 0.2
fdatasync = 0.2
posix_fallocate = 3
punch_hole = 3
sendfile = 5
posix_fadvise = 1
copy_file_range = 5
"""


def shapes(options: Options) -> Iterator[tuple[str, int, int, int]]:
    """Each run: its name, the file's length, the largest operation (bytes), the seed."""
    sizes = (("256 KiB", 256 << 10, 64 << 10), ("4 MiB", 4 << 20, 256 << 10), ("64 MiB", 64 << 20, 1 << 20))
    seeds = options.count(4, 1)
    for name, length, largest in sizes[: 1 if options.quick else None]:
        for seed in range(options.seed, options.seed + seeds):
            yield f"{name}, seed {seed}", length, largest, seed


class Fsx(ConformanceSuite):
    """An adapter: the program itself has to be installed."""

    name = "fsx"
    title = "random reads, writes, maps, truncates and holes on one file"
    about = (
        "The real fsx (0.3 or later): 10,000 operations for each of several seeds on files of 256 KiB, 4 "
        "MiB and 64 MiB, buffered, mapped and in the kernel (sendfile, copy_file_range, punch_hole), each "
        "checked against a copy in memory. A file system that lacks one of the operations fails."
    )
    tool = Tool("fsx", "`cargo install fsx`")
    limit = 3600.0

    def work(self, work: Work) -> Mapping[str, str]:
        program = find_program("fsx")
        if program is None:
            raise Unavailable("fsx is missing: `cargo install fsx`")
        operations = 1000 if work.options.quick else 10_000
        found: dict[str, str] = {}
        for name, length, largest, seed in shapes(work.options):
            configuration = work.scratch / f"fsx-{os.getpid()}.toml"
            configuration.write_text(_CONFIGURATION.format(length=length, largest=largest))
            file = work.folder / f"file-{seed}"
            command = [program, "-q", "-f", os.fspath(configuration), "-N", str(operations), "-S", str(seed)]
            done = subprocess.run(
                [*command, "-P", os.fspath(work.scratch), os.fspath(file)],
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
            configuration.unlink()
            file.unlink(missing_ok=True)
            said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            found[name] = "pass" if done.returncode == 0 else f"fail: {_reason(said, done.returncode)}"
        return found


def _reason(said: list[str], code: int) -> str:
    """The first line that says what was wrong; the log of operations follows it."""
    telling = [line for line in said if "panicked" in line or "mismatch" in line or "rror" in line]
    return (telling or said or [f"ended with {code}"])[0].strip()[:200]
