"""`store-compare`: the store in process, without any mount."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, cast

import atoll
from atoll.lab.model import Options, Row, Scenario, Suite, Target, Unavailable
from atoll.lab.suites.ways import WayTarget
from atoll.lab.targets.tmpfs import TmpfsTarget
from atoll.lab.work import Work

__all__ = ["StoreCompare"]

Profile = Literal["full", "normal", "off"]
PROFILES: tuple[Profile, ...] = ("full", "normal", "off")


class StoreCompare(Suite):
    """Compares stores, not folders: it has targets of its own."""

    name = "store-compare"
    title = "atoll's store in process, without a mount"
    about = (
        "Through the Python API: files become a commit, single files are committed one after the other, "
        "and are looked at and listed from the store. In memory and on the disk, with each durability "
        "profile. One call of stat resolves the branch and the path; cold means a process that has just "
        "opened the store, with the kernel's caches dropped."
    )

    def contenders(self, options: Options) -> Sequence[Target]:
        memory = TmpfsTarget("memory", "tmpfs")
        return [
            WayTarget("store:memory", "memory, off", memory, {"durability": "off"}),
            *(WayTarget("store:disk", f"disk, {each}", facts={"durability": each}) for each in PROFILES),
        ]

    def scenarios(self, options: Options) -> Sequence[Scenario]:
        files, commits = options.count(2000, 100), options.count(100, 10)
        rows = {
            "create": Row(f"create {files:,} files, one commit", files=files, cache="new"),
            "commits": Row(f"{commits} commits of one file", cache="warm"),
            "cold": Row(f"stat {files:,} files, cold", durable=False, files=files, cache="cold"),
            "warm": Row(f"stat {files:,} files, warm", durable=False, files=files),
            "list": Row("readdir x50", durable=False),
        }

        def run(work: Work) -> None:
            source = work.scratch / f"store-{os.getpid()}"
            source.mkdir()
            names = [f"d{number % 20:02d}/f{number:05d}" for number in range(files)]
            for name in names:
                (source / name).parent.mkdir(exist_ok=True)
                (source / name).write_bytes(work.rng.randbytes(512))
            place = work.folder / "store"
            profile = cast(Profile, work.handle.facts["durability"])
            with atoll.create(place, profile=profile) as store:
                with work.timed(rows["create"].name):
                    store.import_folder(source)
                with work.timed(rows["commits"].name):
                    for number in range(commits):
                        (source / names[number % files]).write_bytes(b"%d\n" % number)
                        store.import_folder(source)
                work.check(len(list(store.log("main"))) == commits + 1, "commits are missing")
            self._read(work, place, names, rows)

        name = f"{files:,} files in a store"
        return [Scenario(name, tuple(rows.values()), run, bytes=64 << 20, files=files)]

    def _read(self, work: Work, place: Path, names: Sequence[str], rows: dict[str, Row]) -> None:
        def stat_all(store: atoll.Store) -> None:
            total = sum(store.stat("main", name).size > 0 for name in names)
            work.check(total == len(names), f"{len(names) - total} files are empty")

        try:
            work.cold(*(path for path in place.rglob("*") if path.is_file()))
        except Unavailable as error:
            work.unavailable(rows["cold"].name, str(error))
        else:
            with atoll.open(store=place) as store, work.timed(rows["cold"].name):
                stat_all(store)
        with atoll.open(store=place) as store:
            stat_all(store)
            with work.timed(rows["warm"].name):
                stat_all(store)
            with work.timed(rows["list"].name):
                for _ in range(50):
                    found = sum(entry.type == "file" for entry in store.ls("main", recursive=True))
                    work.check(found == len(names), f"{found} files are listed instead of {len(names)}")
