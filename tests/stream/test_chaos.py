"""Commands are decided exactly once on a real Kafka while workers are killed, rebalanced, and continue as zombies.

Short runs of `python -m tests.stream.chaos`: one worker of each driver is killed, and each becomes a zombie; workers
are killed while rules are replaced.
"""

from pathlib import Path

from tests.stream.chaos import PARTITIONS, Chaos, Plan
from tests.support.reference_kafka import ReferenceKafka


def test_commands_are_decided_exactly_once_under_kills_and_rebalances(kafka44: ReferenceKafka, tmp_path: Path) -> None:
    plan = Plan(2, rebalances=1, zombies=2, gateway_kills=1, broker_kills=0, outages=0, rate=25, session_s=1.5)
    chaos = Chaos(tmp_path, kafka44, plan)
    outcome = chaos.run()
    chaos.replay(outcome)
    print(outcome.summary())
    assert outcome.bad == 0, outcome.summary()
    counts = outcome.found.counts
    assert counts["commands"] > outcome.put, "commands of workers and gateways are counted too"
    assert counts["copies"] > 0, outcome.summary()
    assert (counts["faults"], counts["caches"] > 0) == (outcome.poisons, True)
    assert all(one.answers for one in outcome.clients), outcome.summary()


def test_decisions_match_the_recorded_rules_while_workers_are_killed(kafka44: ReferenceKafka, tmp_path: Path) -> None:
    plan = Plan(0, 0, 0, gateway_kills=0, broker_kills=0, outages=0, rules=10, rate=25, session_s=1.5)
    chaos = Chaos(tmp_path, kafka44, plan)
    outcome = chaos.run()
    chaos.replay(outcome)
    assert outcome.bad == 0, outcome.summary()
    assert outcome.found.counts["versions of rules"] == plan.rules * PARTITIONS
    assert outcome.found.counts["refused by rules"] > plan.rules
