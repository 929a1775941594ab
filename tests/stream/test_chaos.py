"""Workers that are killed, that join and leave, and that wake as zombies, under load, on a real Kafka.

A little of what `python -m tests.stream.chaos` does at length.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stream.chaos import Chaos, Plan
from tests.support.reference_kafka import ReferenceKafka


@pytest.mark.parametrize("driver", ["plain", "faust"])
def test_no_request_is_lost_and_none_is_decided_twice(kafka44: ReferenceKafka, tmp_path: Path, driver: str) -> None:
    plan = Plan(kills=1, rebalances=1, zombies=1, gateway_kills=1, rate=50)
    chaos = Chaos(tmp_path, kafka44, driver, plan)
    outcome = chaos.run()
    if driver == "plain":  # the same engine writes for both: once through Spark will do
        chaos.replay(outcome)
    print(outcome.summary())
    assert outcome.bad == 0, outcome.summary()
    counts = outcome.found.counts
    assert counts["commands"] > outcome.put, "workers' own commands and those of gateways are among them"
    assert counts["copies"] > 0, outcome.summary()
    assert (counts["faults"], counts["caches"] > 0) == (outcome.poisons, True)
    assert all(one.answers for one in outcome.clients), outcome.summary()
