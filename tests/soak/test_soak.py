"""A short soak: a voter of ours beside two of Kafka's controllers, and a broker. `make soak` is half an hour of all."""

from __future__ import annotations

from pathlib import Path

from tests.soak.soak import Plan, soak


def test_nothing_is_lost_in_a_short_soak(tmp_path: Path) -> None:
    outcome = soak(tmp_path, Plan(minutes=1, seed=3, brokers=1, workers=0), print)
    print(outcome.table)
    assert outcome.wrong == [], "\n".join(outcome.wrong)
    assert outcome.faults > 0
    assert outcome.answers > 0
