"""Adapters of foreign test programs: what they print is read right; the real ones run where there are any."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from atoll.lab import registry, runner
from atoll.lab.host import find_program
from atoll.lab.model import CheckFailed, Options
from atoll.lab.record import SuiteRecord
from atoll.lab.suites import fsstress, pjdfstest, xfstests
from atoll.lab.suites.fsx import shapes


def _run(name: str, folder: Path) -> SuiteRecord:
    work = folder / "target"
    work.mkdir()
    record = runner.run(
        [registry.suite(name)],
        [registry.parse_target(f"disk={work}/")],
        Options(quick=True, reps=1),
        place=folder,
    )
    assert not any(work.iterdir())
    return record.suites[0]


def test_what_pjdfstest_prints() -> None:
    text = (
        "unlink::remove_type::block                                                    ok\n"
        "unlink::erofs_named                                                      skipped\n"
        "\tRemounts (allow_remount) are not allowed in the configuration file\n"
        "unlink::enotdir_component::char                                           FAILED\n"
        "\tcalled `Result::unwrap()` on an `Err` value: EPERM\n"
        "Backtrace:\n   0: pjdfstest::main\n\n"
        "Summary: 1 failed, 1 skipped, 1 passed, 0 expected failures, 3 total\n"
    )
    assert pjdfstest.parse(text) == {
        "unlink::remove_type::block": "pass",
        "unlink::erofs_named": "skip: Remounts (allow_remount) are not allowed in the configuration file",
        "unlink::enotdir_component::char": "fail: called `Result::unwrap()` on an `Err` value: EPERM",
    }


def test_what_xfstests_prints() -> None:
    text = (
        "FSTYP         -- tmpfs\nPLATFORM      -- Linux/x86_64 host 6.18.0 #1 SMP\n\n"
        "generic/001         5s\n"
        "generic/002  2s ...  1s\n"
        "generic/003        [not run] this test requires a valid $SCRATCH_MNT\n"
        "generic/004        - output mismatch (see results/generic/004.out.bad)\n"
        "    --- tests/generic/004.out\n"
        "generic/006        [failed, exit status 1]\n"
        "Ran: generic/001 generic/002 generic/003 generic/004 generic/006\n"
    )
    assert xfstests.parse(text) == {
        "generic/001": "pass",
        "generic/002": "pass",
        "generic/003": "skip: this test requires a valid $SCRATCH_MNT",
        "generic/004": "fail: - output mismatch (see results/generic/004.out.bad)",
        "generic/006": "fail: [failed, exit status 1]",
    }


def test_a_survey_reads_everything(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_bytes(b"abc")
    (tmp_path / "l").symlink_to("d")
    os.mkfifo(tmp_path / "p")
    found = fsstress.survey(tmp_path)
    assert sorted(found) == ["d", "d/f", "l", "p"]
    assert found["d/f"][1] == 3 and found["l"][2] == "d"
    before = found["d/f"]
    (tmp_path / "d" / "f").write_bytes(b"abd")
    assert fsstress.survey(tmp_path)["d/f"] != before


def test_a_program_that_runs_nothing_has_failed() -> None:
    from atoll.lab.suites.conformance import report

    class Nothing:
        def check(self, holds: bool, sentence: str) -> None:
            if not holds:
                raise CheckFailed(sentence)

    with pytest.raises(CheckFailed, match="ran no test"):
        report(Nothing(), {})  # type: ignore[arg-type]


def _let_others_in(folder: Path) -> None:
    """pytest's own folders are for their owner alone, and some programs act as other users."""
    for each in (folder, *folder.parents):
        if each.stat().st_uid == os.geteuid() and each.stat().st_mode & 0o001 == 0:
            each.chmod(each.stat().st_mode | 0o001)


@pytest.mark.parametrize("name", ["pjdfstest", "fsx", "fsstress"])
def test_the_real_program(name: str, home: Path) -> None:
    if find_program(name) is None:
        pytest.skip(f"{name} is not installed")
    _let_others_in(home)
    made = _run(name, home)
    assert made.unavailable is None
    passed, failed, _skipped = made.rows
    assert not passed.failures and not passed.unavailable, (passed.failures, passed.unavailable)
    (count,) = passed.samples["disk"]
    assert count.value == sum(result == "pass" for result in made.outcomes["disk"].values()) > 0
    assert failed.samples["disk"][0].value == 0, made.outcomes


def test_a_missing_program_is_not_zero(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.path.dirname(shutil.which("stat") or "/usr/bin/stat"))
    if find_program("fsx") is not None:
        pytest.skip("fsx is installed for everybody here")
    made = _run("fsx", home)
    for row in made.rows:
        assert not row.samples and not row.failures
        assert row.unavailable["disk"] == "fsx is missing: `cargo install fsx`"


def test_fsx_has_one_run_for_each_shape_and_seed() -> None:
    found = list(shapes(Options(seed=7)))
    assert len({name for name, *_ in found}) == len(found) == 12
    assert {seed for *_, seed in found} == {7, 8, 9, 10}
    assert all(largest < length for _, length, largest, _ in found)


def test_pjdfstest_wants_a_way_for_other_users(tmp_path: Path) -> None:
    inner = tmp_path / "closed" / "open"
    inner.mkdir(parents=True)
    _let_others_in(tmp_path)
    assert pjdfstest.closed(inner) is None
    (tmp_path / "closed").chmod(0o700)
    assert pjdfstest.closed(inner) == tmp_path / "closed"
