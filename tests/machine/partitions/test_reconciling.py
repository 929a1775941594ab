"""Leaders and ISRs: AlterPartition, `Reconciliation`, and the progress of a create."""

import pytest
from hypothesis import given as hypothesis_given
from msgspec.structs import replace

from controller.machine.commands.commands import ChangeSettings
from controller.machine.decide import decide
from controller.machine.errors import ErrorCode
from controller.machine.observing import progress_text
from controller.machine.partitions.changes import Reconciliation
from controller.machine.state import DictTopics, State
from events.catalog import Partition
from events.names import BrokerId, RequestId, shard_key
from tests.machine.audit.planted import ids
from tests.machine.in_short import event_text
from tests.machine.rig import topics_of
from tests.machine.tables import command, given
from tests.machine.walks import Walk, steps, walks

REPORTS = """
# the leader is 3, its epoch 1, the partition's epoch 2; replicas are 3.1.2, in sync are 3 and 1; 2 is fenced
by=3 0:3.1:1:2     | NONE
by=3 0:3:1:2       | changed(0: isr=3 e1/3)
by=3 0:3.1:2:2     | NOT_CONTROLLER
by=3 0:3.1:1:3     | NOT_CONTROLLER
by=3 0:3.1:0:2     | FENCED_LEADER_EPOCH
by=3 0:3.1:0:9     | NOT_CONTROLLER
by=1 0:3.1:1:2     | INVALID_REQUEST
by=1 0:3.1:0:2     | FENCED_LEADER_EPOCH
by=3 0:3.1:1:1     | INVALID_UPDATE_VERSION
by=1 0:3.1:1:1     | INVALID_REQUEST
by=3 0:1:1:2       | INVALID_REQUEST
by=3 0::1:2        | INVALID_REQUEST
by=3 0:3.3:1:2     | INVALID_REQUEST
by=3 0:3.4:1:2     | INVALID_REQUEST
by=3 0:3.-1:1:2    | INVALID_REQUEST
by=3 0:3.2:1:2     | INELIGIBLE_REPLICA
by=3 1:3:1:2       | UNKNOWN_TOPIC_OR_PARTITION
by=3 -1:3:1:2      | UNKNOWN_TOPIC_OR_PARTITION
"""


LED = Partition(ids(3, 1, 2), ids(3, 1), BrokerId(3), leader_epoch=1, partition_epoch=2)


@pytest.mark.parametrize("row", [row for row in REPORTS.strip().splitlines() if row[0] != "#"])
def test_alter_partition_decisions(row: str) -> None:
    report, _, result = (part.strip() for part in row.partition("|"))
    rig = given("1 2! 3 4 has:t")
    rig.state.topics.put(shard_key("t"), replace(rig.topic("t"), partitions=(LED,)))
    request = command(rig, f"isr t {report}")
    known = rig.state.cluster.brokers.get(request.broker_id)  # type: ignore[attr-defined]
    decision = decide(rig.state, replace(request, broker_epoch=known.broker_epoch if known else 0))
    (answer,) = decision.answers[0].partitions
    seen = " ".join(event_text(event) for event in decision.events) or ErrorCode(answer.code).name
    assert seen == result


@hypothesis_given(walks())
def test_is_reconciled_means_reconcile_changes_nothing(walk: Walk) -> None:
    """`is_reconciled` may return False unnecessarily, but returns True only if there is nothing to do."""
    for rig, _ in steps(walk):
        rules = Reconciliation(rig.state.cluster)
        for topic in topics_of(rig.state):
            settled, events = rules.reconcile(topic, "why")
            assert not (events and rules.is_reconciled(topic)), f"{topic} is not reconciled: {events}"
            assert rules.reconcile(settled, "why") == (settled, []), f"a second reconcile changes {settled}"
            assert events or settled is topic, "without changes it returns the same topic"


def test_progress_text_counts_live_brokers_only() -> None:
    rig = given("1 2 3")
    rig.put(command(rig, "create t on=0:2,1:1"))
    rig.confirm(1, 2)
    rig.put(command(rig, "fence 2"))
    text = progress_text(rig.topic("t"), rig.state.cluster)
    assert text == "1 of 2 partitions have a leader and 1 of 2 live brokers have applied it; it waits for broker 3"


def test_malformed_settings_are_an_error_in_decide() -> None:
    rig = given("1")
    with pytest.raises(ValueError, match="Expected `int`"):
        decide(rig.state, command(rig, "settings num.partitions=many"))


def test_first_settings_are_logged_even_if_empty() -> None:
    first = ChangeSettings(request_id=RequestId("s"), at_ms=1, settings=(), release="")
    assert len(decide(State(DictTopics()), first).events) == 1
