"""`fs-bench`: everyday jobs of a shell."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from atoll.lab.git import GIT_TOOL, SHELL_GIT
from atoll.lab.model import Options, Row, Scenario, Suite, Summary, Tool
from atoll.lab.work import Work

__all__ = ["FsBench"]

NPM = Tool("npm", "Debian's package npm")
GO = Tool("go", "Debian's package golang-go", version=("version",))


_GO_ENV = "export GOCACHE=$LAB_INPUTS/go GOTOOLCHAIN=local GOFLAGS=-mod=mod GOPATH=$LAB_INPUTS/gopath"
_GO_SOURCE = (
    """printf 'package main\\n\\nimport "fmt"\\n\\nfunc main() { fmt.Println("hello") }\\n' >main.go"""
)


class FsBench(Suite):
    """Fifteen jobs, and twins of those that measure something else than the file system."""

    name = "fs-bench"
    title = "fifteen everyday jobs of a shell"
    about = (
        "The fifteen scenarios of the fs-bench of Cloudflare Computer (commit de87919) in the same shape: a "
        "shell snippet in a fresh folder, by the wall clock, the shell's start included. Three rows start a "
        "program for each file and are dominated by that (group forks); beside each stands the work with "
        "the same system calls and no forks. Rows of 64 MiB write zeros; beside each stands one with bytes "
        "that cannot be compressed, copied from a cached file on the disk. A clone is of a repository on the "
        "same target; npm installs a package from a folder and asks no registry; go builds a small program "
        "with a warm build cache on the disk."
    )
    summaries = (
        Summary(name="nine rows without forks", kind="geometric mean", groups=("plain",)),
        Summary(name="sum of twelve", kind="sum", groups=("plain", "forks")),
    )

    def prepare(self, options: Options, scratch: Path) -> None:
        own = scratch / "fs-bench"
        own.mkdir(exist_ok=True)
        with (own / "random").open("wb") as file:
            for _ in range(options.count(64, 4)):
                file.write(os.urandom(1 << 20))
        if shutil.which("go"):
            warm = own / "warm"
            warm.mkdir()
            script = f"{_GO_ENV}; {_GO_SOURCE}; go mod init lab 2>/dev/null; go build -o hello ."
            environment = {**os.environ, "LAB_INPUTS": os.fspath(own)}
            subprocess.run(["bash", "-ec", script], cwd=warm, env=environment, check=True)

    def scenarios(self, options: Options) -> Sequence[Scenario]:
        files = options.count(1000, 50)
        # Its files are the cube of it.
        breadth = 3 if options.quick else max(3, round(10 * options.scale ** (1 / 3)))
        size = options.count(64, 4)
        made = [*_small_files(files), *_trees(breadth)]
        for source, group in (("zeros", "plain"), ("random", "incompressible")):
            made += _large(size, source, group)
        return [*made, *_tools(options.count(100, 10))]


def _small_files(files: int) -> list[Scenario]:
    create = f"for ((i = 1; i <= {files}; i++)); do echo $i >f$i; done"

    def numbered(work: Work) -> None:
        found = os.listdir(work.folder)
        work.check(len(found) == files, f"{len(found)} files instead of {files}")
        work.check((work.folder / "f7").read_text() == "7\n", "f7 does not hold what was written")

    def direct_stat(work: Work) -> None:
        for number in range(1, files + 1):
            _write(f"f{number}", b"%d\n" % number)
        for number in range(1, files + 1):
            os.stat(f"f{number}")

    stat = f"{create}; for ((i = 1; i <= {files}; i++)); do stat f$i; done"
    return [
        _shell(f"create {files} files", create, check=numbered, files=files),
        _shell(f"stat {files} files", stat, group="forks", check=numbered, files=files),
        _python(f"stat {files} files, no forks", direct_stat, check=numbered, files=files),
        _shell(f"rm {files} files", f"{create}; rm f*", check=_is_empty, files=files),
    ]


def _trees(breadth: int) -> list[Scenario]:
    files = breadth**3
    shape = "x".join([str(breadth)] * 3)
    script = (
        f"for a in {{1..{breadth}}}; do for b in {{1..{breadth}}}; do mkdir -p $a/$b; "
        f"for c in {{1..{breadth}}}; do touch $a/$b/$c; done; done; done"
    )

    def count(work: Work) -> None:
        found = sum(len(names) for _, _, names in os.walk(work.folder))
        work.check(found == files, f"{found} files instead of {files}")

    def make(work: Work) -> None:
        for a in range(1, breadth + 1):
            os.mkdir(str(a))
            for b in range(1, breadth + 1):
                os.mkdir(f"{a}/{b}")
                for c in range(1, breadth + 1):
                    _write(f"{a}/{b}/{c}", b"")

    def make_and_walk(work: Work) -> None:
        make(work)
        count(work)

    return [
        _shell(f"mkdir tree {shape}", script, group="forks", check=count, files=files),
        _python(f"mkdir tree {shape}, no forks", make, check=count, files=files),
        _shell("find tree", f"{script}; find . -type f | wc -l", group="forks", check=count, files=files),
        _python("find tree, no forks", make_and_walk, check=count, files=files),
    ]


def _large(size: int, source: str, group: str) -> list[Scenario]:
    """The six jobs on one large file. Random bytes are copied from a file in memory: making them would be
    timed."""
    inputs = "/dev/zero" if source == "zeros" else "$LAB_INPUTS/random"
    write = f"dd if={inputs} of=big bs=1M count={size} status=none"
    bytes_ = size << 20
    suffix = "" if source == "zeros" else ", incompressible"

    def whole(*names: str) -> Callable[[Work], None]:
        def check(work: Work) -> None:
            for name in names:
                found = (work.folder / name).stat().st_size
                work.check(found == bytes_, f"{name} has {found} bytes instead of {bytes_}")
            work.shell(f"cmp -n {bytes_} {inputs} {names[-1]}")

        return check

    def job(name: str, script: str, *names: str, before: str = "", durable: bool = True) -> Scenario:
        return _shell(
            f"{name} {size} MiB{suffix}",
            script,
            group=group,
            before=before,
            check=whole(*names),
            durable=durable,
            size=2 * bytes_,
        )

    return [
        job("write", write, "big"),
        job("copy", f"{write}; cp big big2", "big", "big2"),
        job("read", f"{write}; cat big >/dev/null", "big"),
        job("pure read", "cat big >/dev/null", "big", before=write, durable=False),
        job("pure copy", "cp big big2", "big", "big2", before=write),
        job("overwrite", f"{write} conv=notrunc", "big", before=write),
    ]


def _tools(files: int) -> list[Scenario]:
    fill = f"for ((i = 1; i <= {files}; i++)); do echo $i >f$i; done"
    commit = f"git init -q . && {fill}; git add . && {SHELL_GIT} commit -q -m all"
    package = (
        'mkdir -p tiny && echo \'{"name":"tiny","version":"1.0.0"}\' >tiny/package.json && '
        "echo 'module.exports = 1' >tiny/index.js"
    )
    npm = "npm init -y >/dev/null && npm install --offline --no-audit --no-fund ./tiny >/dev/null"
    go = f"{_GO_ENV}; go mod init lab >/dev/null 2>&1; go build -o hello .; ./hello >/dev/null"
    return [
        _shell(
            f"git init + commit {files} files",
            commit,
            check=lambda work: _fsck(work, files),
            tools=(GIT_TOOL,),
            files=3 * files,
        ),
        _shell(
            f"git clone (local, {files} files)",
            "git clone -q source copy",
            group="tools",
            before=f"mkdir source && cd source && {commit}",
            check=lambda work: _fsck(work, files, "copy"),
            tools=(GIT_TOOL,),
            files=6 * files,
        ),
        _shell(
            "npm init + tiny install",
            npm,
            group="tools",
            before=package,
            check=lambda work: work.check(
                os.path.exists("node_modules/tiny/index.js"), "tiny is not installed"
            ),
            tools=(NPM,),
            files=20,
        ),
        _shell(
            "go mod init + build",
            go,
            group="tools",
            before=_GO_SOURCE,
            check=lambda work: work.check(work.shell("./hello") == "hello\n", "the program does not run"),
            tools=(GO,),
            files=10,
            size=20 << 20,
        ),
    ]


def _fsck(work: Work, files: int, below: str = ".") -> None:
    listed = work.shell(f"cd {below} && git fsck --full && git ls-files | wc -l").split()[-1]
    work.check(listed == str(files), f"git has {listed} files instead of {files}")
    work.check(work.shell(f"cd {below} && git status --porcelain") == "", "git status is not clean")


def _is_empty(work: Work) -> None:
    found = os.listdir(work.folder)
    work.check(not found, f"{len(found)} files are left")


def _write(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    if data:
        os.write(descriptor, data)
    os.close(descriptor)


def _shell(
    name: str,
    script: str,
    *,
    group: str = "plain",
    before: str = "",
    check: Callable[[Work], None],
    durable: bool = True,
    tools: tuple[Tool, ...] = (),
    files: int = 4,
    size: int = 0,
) -> Scenario:
    def run(work: Work) -> None:
        os.environ["LAB_INPUTS"] = os.fspath(work.scratch / "fs-bench")
        if before:
            work.shell(before)
        with work.timed(name):
            done = subprocess.run(["bash", "-ec", script], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        said = done.stderr.decode(errors="replace").strip()
        work.check(done.returncode == 0, f"ended with {done.returncode}: {said[-200:]}")
        check(work)

    row = Row(name, durable=durable, group=group, cache="warm" if before else "new")
    return Scenario(name, (row,), run, tools=tools, bytes=size or files * 8192, files=files)


def _python(
    name: str, body: Callable[[Work], None], *, check: Callable[[Work], None], files: int
) -> Scenario:
    def run(work: Work) -> None:
        with work.timed(name):
            body(work)
        check(work)

    return Scenario(
        name, (Row(name, group="no forks", cache="new"),), run, bytes=files * 8192, files=2 * files
    )
