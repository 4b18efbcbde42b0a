"""Real tools under `atoll run`, as root and as an ordinary user (a copy, shown in a user namespace)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.run.conftest import Person

SETUP = """
set -e
git init -q -b main
git config user.name t; git config user.email t@example.invalid; git config gc.auto 0
for n in $(seq 50); do mkdir -p d$((n % 5)); echo "line $n" > d$((n % 5))/f$n; done
sqlite3 app.db 'PRAGMA journal_mode=wal; CREATE TABLE t (n INTEGER); INSERT INTO t VALUES (0)' > /dev/null
printf '*.db*\\nbuilt\\n*.tar\\nlinks\\n' > .gitignore
find . -path ./.git -prune -o -type f -exec touch -d 2001-02-03 {} +
git add -A; git commit -qm one; git gc -q
"""
WORK = """
set -e
test -z "$(git status --porcelain)"
for n in $(seq 20); do sqlite3 app.db "PRAGMA synchronous=full; INSERT INTO t VALUES ($n)"; done
echo changed > d1/f1; git mv d2 moved; git add -A; git commit -qm two
git switch -q -c topic HEAD~1; echo topic > topic; git add topic; git commit -qm topic; git rebase -q main
git gc -q --prune=now; git switch -q main; git merge -q topic
tar -cf tree.tar d3 d4; mkdir built; tar -xpf tree.tar -C built; tar -df tree.tar -C built
cp -al d3 links; test d3/f3 -ef links/f3
mkfifo pipe; ln -s /no/where dangling; chmod 4711 d4/f4; touch -d '2003-04-05 06:07:08.123456789Z' d4/f9
"""
CHECK = """
set -e
test "$(git fsck --full --strict)" = ""
test -z "$(git status --porcelain | grep -v 'f4\\|f9\\|pipe\\|dangling')"
test "$(git log --format=%s | paste -sd,)" = topic,two,one
test "$(sqlite3 app.db 'PRAGMA integrity_check; SELECT count(*), sum(n) FROM t' | paste -sd,)" = 'ok,21|210'
tar -df tree.tar -C built
test d3/f3 -ef links/f3; test "$(stat -c %h d3/f3)" = 2
test -p pipe; test "$(readlink dangling)" = /no/where
test "$(stat -c '%a' d4/f4)" = 4711
test "$(TZ=UTC stat -c %y d4/f9)" = '2003-04-05 06:07:08.123456789 +0000'
"""


def test_tools_in_runs(person: Person) -> None:
    """git, sqlite3, tar and cp in a run; their own checks hold in a run on the result and in one on its fork;
    the folder that was imported is as it was."""
    for name in ("git", "sqlite3", "tar"):
        if shutil.which(name, path=person.env["PATH"]) is None:
            pytest.skip(f"{name} is not installed; scripts/setup.sh test installs it")
    folder = person.home / "src" / "app"
    folder.mkdir(parents=True)
    if person.uid != os.geteuid():
        person.own(person.home / "src")

    def here(script: str, where: Path = folder) -> None:
        done = person.do("sh", "-c", script, cwd=where)
        assert done.returncode == 0, done.stderr

    here(SETUP)
    before = person.do("sh", "-c", "find . -type f | sort | xargs sha256sum", cwd=folder).stdout
    person.atoll("import", cwd=folder)
    for base, name, script in (("main", "a", WORK), ("a", "b", CHECK), ("b", "c", CHECK)):
        person.atoll("run", base, "--name", name, "--", "sh", "-ec", script, cwd=folder, timeout=110)
    person.atoll("run", "--on", "a", "--", "sh", "-ec", CHECK, cwd=folder, timeout=110)
    person.atoll("export", "c", person.home / "out", cwd=folder)
    here(CHECK, person.home / "out")
    after = person.do("sh", "-c", "find . -type f | sort | xargs sha256sum", cwd=folder).stdout
    assert after == before
