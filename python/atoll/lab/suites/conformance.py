"""What the adapters of foreign test programs share: one scenario whose rows count passes, failures and
skips."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from atoll.lab.model import Options, Row, Scenario, Suite, Tool
from atoll.lab.work import Work

__all__ = ["ConformanceSuite", "report"]

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class ConformanceSuite(Suite):
    """A program that says of each of its tests whether it passed. Run once for each target: what it counts
    is no sample of anything. The report lists each test that the reference passes and a target does not."""

    tool: Tool
    limit: float = 900.0

    def work(self, work: Work) -> Mapping[str, str]:
        """Runs the program in `work.folder`; gives each test's name with "pass", "fail: ..." or "skip:
        ..."."""
        raise NotImplementedError

    def scenarios(self, options: Options) -> Sequence[Scenario]:
        rows = (
            # Not every target runs as many: it is the failures that say something.
            Row(PASSED, unit="tests", better="none", durable=False, cache="new", exact=True),
            Row(FAILED, unit="tests", better="lower", durable=False, cache="new", exact=True),
            Row(SKIPPED, unit="tests", better="none", durable=False, cache="new", exact=True),
        )
        run: Callable[[Work], None] = lambda work: report(work, self.work(work))  # noqa: E731
        return [
            Scenario(
                self.name,
                rows,
                run,
                tools=(self.tool,),
                reps=1,
                warm_ups=0,
                limit=self.limit,
                bytes=256 << 20,
                files=10_000,
            )
        ]


def report(work: Work, outcomes: Mapping[str, str]) -> None:
    """Fills the three rows. A program that ran no test at all has failed."""
    work.check(bool(outcomes), "the program ran no test")
    counts = {PASSED: 0, FAILED: 0, SKIPPED: 0}
    kinds = {"pass": PASSED, "fail": FAILED, "skip": SKIPPED}
    for test, result in outcomes.items():
        work.outcome(test, result)
        counts[kinds[result.partition(":")[0]]] += 1
    for name, count in counts.items():
        work.measure(name, count)
