"""Real SQLite in a workspace: every acknowledged row, in every journal mode, through kills and remounts."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import atoll
from atoll import _native
from tests.compat.conftest import Bench, Tools, standing_still

MODES = ("delete", "truncate", "persist", "memory", "wal", "off")


@contextmanager
def opened(path: Path, *pragmas: str) -> Iterator[sqlite3.Connection]:
    """A connection in autocommit mode, closed at the end."""
    with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as connection:
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}").fetchall()
        yield connection


def rows(path: Path) -> list[int]:
    """All numbers in the table, of a database that SQLite finds whole."""
    with opened(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [number for (number,) in connection.execute("SELECT n FROM t ORDER BY n")]


def fill(path: Path, numbers: range, *pragmas: str) -> None:
    """Inserts each number in a transaction of its own."""
    with opened(path, *pragmas) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS t (n INTEGER, body BLOB)")
        for number in numbers:
            connection.execute("INSERT INTO t VALUES (?, randomblob(300))", (number,))


def test_every_acknowledged_row_of_every_journal_mode(bench: Bench, tools: Tools) -> None:
    """Case 1: autocommits in all six journal modes on an inherited database; a commit of the workspace in the
    middle, with a reader open; the shell's verdict after a remount and in a fork."""
    for mode in MODES:
        fill(bench.project / f"{mode}.db", range(20), f"journal_mode={mode}")
    bench.imported()
    ws = bench.fork("a")
    for mode in MODES:
        path = ws.path / f"{mode}.db"
        fill(path, range(20, 40), f"journal_mode={mode}", "synchronous=full")
        with opened(path) as reader:
            reader.execute("BEGIN").execute("SELECT count(*) FROM t").fetchall()
            if mode == "wal":
                fill(path, range(40, 50), "synchronous=full")
            ws.commit(f"while {mode} is read")
            # What a reader began with stays, and goes on.
            assert reader.execute("SELECT count(*) FROM t").fetchone() == (40,)
        if mode != "wal":
            fill(path, range(40, 50), f"journal_mode={mode}")
        with opened(path) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            connection.execute("VACUUM")
    ws = bench.remounted(ws)
    with bench.fork("b", "a") as fork, ws:
        for folder in (ws.path, fork.path):
            for mode in MODES:
                assert rows(folder / f"{mode}.db") == list(range(50))
                said = tools("sqlite3", folder / f"{mode}.db", "PRAGMA integrity_check", cwd=folder)
                assert said == "ok\n"
        with opened(fork.path / "wal.db") as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
connection.execute("PRAGMA journal_mode=wal").fetchall()
connection.execute("PRAGMA synchronous=full")
connection.execute("PRAGMA wal_autocheckpoint=0").fetchall()
connection.execute("CREATE TABLE IF NOT EXISTS t (n INTEGER, body BLOB)")
for number in range(int(sys.argv[2]), 1 << 30):
    connection.execute("INSERT INTO t VALUES (?, randomblob(300))", (number,))
    print(number, flush=True)
"""


@contextmanager
def writing(path: Path, first: int) -> Iterator[subprocess.Popen[str]]:
    """A process that inserts and prints each number that was acknowledged; killed at the end."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, os.fspath(path), str(first)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_killed_writer_and_a_killed_server_lose_no_row(bench: Bench) -> None:
    """Case 1: kill -9 of the writer between acknowledged commits, and of the history server under it: every
    acknowledged row is there, at once, in the commits made meanwhile, and after a remount."""
    fill(bench.project / "app.db", range(50), "journal_mode=wal")
    bench.imported()
    ws = bench.fork("a")
    path = ws.path / "app.db"
    acknowledged = list(range(50))
    for turn in range(3):
        with writing(path, acknowledged[-1] + 1) as process:
            assert process.stdout is not None
            for _ in range(100):
                acknowledged.append(int(process.stdout.readline()))
            if bench.overlay:
                (server,) = [one for one in _native.servers() if one["store_id"] == bench.store.id]
                os.kill(server["pid"], signal.SIGKILL)
            at_commit = acknowledged[-1]
            with standing_still(process):
                ws.commit(f"turn {turn}")
            for _ in range(20):
                acknowledged.append(int(process.stdout.readline()))
            process.kill()
            acknowledged += [int(line) for line in process.stdout.read().splitlines() if line]
        # The last row may have been committed and not printed.
        now = rows(path)
        assert now[: len(acknowledged)] == acknowledged and len(now) <= len(acknowledged) + 1
        acknowledged = now
        # The commit was made in the middle of the writer's work: what it holds is whole, and has what was
        # acknowledged before.
        assert at_commit in committed(bench.store, ws.path.parent / f"turn{turn}")
    with bench.remounted(ws) as ws:
        assert rows(ws.path / "app.db") == acknowledged


def committed(store: atoll.Store, folder: Path) -> list[int]:
    """The rows of the database as the branch's newest commit holds it."""
    store.export("a", folder)
    return rows(folder / "app.db")


MIXED = """
import random, sqlite3, sys
path, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
dice = random.Random(seed)
connection = sqlite3.connect(path, isolation_level=None, timeout=60)
connection.execute("PRAGMA mmap_size=268435456").fetchall()
assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
for number in range(count):
    if dice.random() < 0.5:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE counter SET n = n + 1")
        connection.execute("INSERT INTO t VALUES (?, randomblob(300))", (seed * 1000 + number,))
        connection.execute("COMMIT")
        print(1, flush=True)
    else:
        connection.execute("BEGIN")
        total = connection.execute("SELECT n FROM counter").fetchone()[0]
        assert connection.execute("SELECT count(*) FROM t WHERE n >= 0").fetchone()[0] == total
        connection.execute("COMMIT")
assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
"""


def test_four_processes_share_one_database(bench: Bench) -> None:
    """Case 2: four processes read and write one WAL database with a map of it; none sees a protocol error,
    the mode stays, and no write is lost. The workspace is committed meanwhile."""
    with opened(bench.project / "app.db", "journal_mode=wal") as connection:
        connection.execute("CREATE TABLE t (n INTEGER, body BLOB)")
        connection.execute("CREATE TABLE counter (n INTEGER)")
        connection.execute("INSERT INTO counter VALUES (0)")
    bench.imported()
    ws = bench.fork("a")
    path = ws.path / "app.db"
    words = [sys.executable, "-c", MIXED, os.fspath(path)]
    processes = [
        subprocess.Popen(
            [*words, str(seed), "200"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for seed in range(4)
    ]
    for turn in range(3):
        with standing_still(*processes):
            ws.commit("meanwhile")
        place = ws.path.parent / f"turn{turn}"
        bench.store.export("a", place)
        with opened(place / "app.db") as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            number = connection.execute("SELECT n FROM counter").fetchone()
            assert connection.execute("SELECT count(*) FROM t").fetchone() == number
    said = [process.communicate(timeout=100) for process in processes]
    assert [errors for _, errors in said] == [""] * 4
    assert [process.returncode for process in processes] == [0] * 4
    written = sum(len(out.split()) for out, _ in said)
    with bench.remounted(ws) as ws, opened(ws.path / "app.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("SELECT n FROM counter").fetchone() == (written,)
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (written,)


HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
connection.execute("INSERT INTO t VALUES (-1, NULL)")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_killed_holder_frees_its_lock_at_once(bench: Bench, mode: str) -> None:
    """Case 2: kill -9 of the process that holds the write lock: the next writer gets it without waiting, and
    the dead one's half transaction is rolled back."""
    fill(bench.project / "app.db", range(10), f"journal_mode={mode}")
    bench.imported()
    with bench.fork("a") as ws:
        path = ws.path / "app.db"
        with subprocess.Popen(
            [sys.executable, "-c", HOLDER, os.fspath(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as holder:
            assert holder.stdout is not None and holder.stdout.readline() == "held\n"
            with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
                with pytest.raises(sqlite3.OperationalError, match="locked"):
                    other.execute("INSERT INTO t VALUES (10, NULL)")
                holder.kill()
                holder.wait()
                other.execute("INSERT INTO t VALUES (10, NULL)")
        assert rows(path) == list(range(11))


def test_one_large_transaction(bench: Bench) -> None:
    """Case 1: a transaction of 128 MiB through the WAL and its checkpoint, on an inherited database."""
    fill(bench.project / "app.db", range(5), "journal_mode=wal")
    bench.imported()
    ws = bench.fork("a")
    with opened(ws.path / "app.db", "synchronous=full") as connection:
        connection.execute("BEGIN")
        for number in range(5, 133):
            connection.execute("INSERT INTO t VALUES (?, zeroblob(1048576))", (number,))
        connection.execute("COMMIT")
        assert (ws.path / "app.db-wal").stat().st_size > 128 << 20
        assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        assert (ws.path / "app.db-wal").stat().st_size == 0
    with bench.remounted(ws) as ws:
        assert rows(ws.path / "app.db") == list(range(133))
        assert (ws.path / "app.db").stat().st_size > 128 << 20
