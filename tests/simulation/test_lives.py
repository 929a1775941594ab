"""For a failing seed, the simulation reports a smaller plan of faults and requests that also fails."""

import re
from collections import Counter
from itertools import combinations

import pytest

from tests.simulation.lives import Outcome, live_through
from tests.simulation.plan import FAULTS, Item, Plan, from_words, in_words, plan_of, shrink

ALL: list[Item] = [(FAULTS, number) for number in range(30)] + [("c0", number) for number in range(50)]


@pytest.mark.parametrize("needed", [[], ALL[:1], ALL[-1:], [ALL[3], ALL[29], ALL[70]], ALL[10:14], ALL])
def test_shrink_removes_unneeded_items(needed: list[Item]) -> None:
    assert shrink(ALL, lambda items: set(needed) <= set(items), tries_max=10_000) == needed


def test_shrink_reaches_a_minimal_cause_of_several() -> None:
    causes = [set(each) for each in combinations(ALL[::9], 3)]
    left = shrink(ALL, lambda items: any(cause <= set(items) for cause in causes), tries_max=10_000)
    assert set(left) in causes, left


def test_shrink_returns_a_failing_plan_at_its_limit_of_tries() -> None:
    tried: list[list[Item]] = []

    def fails(items: list[Item]) -> bool:
        tried.append(items)
        return ALL[7] in items

    left = shrink(ALL, fails, tries_max=4)
    assert len(tried) == 4, "exactly the limit of tries"
    assert ALL[7] in left, left
    assert len(left) < len(ALL), left


@pytest.mark.parametrize("words", ["-", "faults:0", "c0:1,3-5 faults:0-2,7"])
def test_simulation_plans_round_trip_through_text(words: str) -> None:
    plan = from_words(words)
    happened = [(kind, number) for number in range(9) for kind in ("c0", FAULTS) if plan.happens(kind)]
    assert in_words(happened) == words


def test_a_failing_seed_reports_a_smaller_reproduction(capsys: pytest.CaptureFixture[str]) -> None:
    """Fault 5 fails if a request with number 2 came before it."""

    def simulate(seed: int, plan: Plan) -> Outcome:
        requests = {number for number in range(20) if plan.happens("c0")}
        faults = {number for number in range(10) if plan.happens(FAULTS)}
        if seed == 7 and 5 in faults and 2 in requests:
            raise AssertionError(f"broken with {len(faults)} faults")
        return Outcome(Counter(seed=seed))

    lived: list[Outcome | None] = []
    live_through(range(6, 9), simulate, lived.append, module="tests.simulation.this")
    assert [None if each is None else each.counts["seed"] for each in lived] == [6, None, 8]
    shown = capsys.readouterr().out
    assert re.search(r"seed 7, commit \S+: AssertionError: broken with N faults", shown), shown
    assert "with 1 of 10 faults and 1 of 20 requests: python -m tests.simulation.this 7 --only 'c0:2 faults:5'" in shown
    with pytest.raises(AssertionError, match="broken with 1 faults"):
        simulate(7, plan_of([("c0", 2), (FAULTS, 5)]))
