"""Workers that are killed, that join and leave, and that wake as zombies, under load, on a real Kafka.

A little of what `python -m tests.stream.chaos` does at length.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stream.chaos import Chaos, Plan
from tests.support.reference_kafka import ReferenceKafka


@pytest.mark.parametrize("driver", ["plain", "faust"])
def test_no_ask_is_lost_and_none_is_decided_twice(stream_kafka: ReferenceKafka, tmp_path: Path, driver: str) -> None:
    plan = Plan(kills=1, rebalances=1, zombies=1, rate=100)
    told = Chaos(tmp_path, stream_kafka, driver, plan).run()
    print(told.summary())
    counts = told.found.counts
    assert counts["lost"] == counts["decided twice"] == counts["out of order"] == 0, told.summary()
    assert not told.found.wrong, told.summary()
    assert counts["commands"] > told.put, "workers' own commands are among them"
    assert (counts["faults"], counts["caches"] > 0) == (told.poisons, True)
