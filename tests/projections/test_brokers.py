"""Rows of brokers and settings. `test_query` compares the other fields with the machine's state at every offset."""

import pytest

from controller.machine.apply import CannotApply, concerns_topic
from events.catalog import BrokerFenced, BrokerUnregistered, Cause, Recorded, TopicReady
from events.names import BrokerId, Offset, RequestId, TopicName
from projections.views.brokers import NO_CLUSTER, fold_cluster
from tests.machine.tables import command, given


@pytest.mark.parametrize(("last", "reason"), [("register 1 as=second", "registered"), ("fence 1", "why")])
def test_broker_rows_have_reason_offset_and_time_of_the_last_state_change(last: str, reason: str) -> None:
    rig, row = given("1"), NO_CLUSTER
    rig.put(command(rig, "create t 1x1"))
    before_ms = rig.now_ms
    rig.put(command(rig, last))
    for record in rig.log:
        row = row if concerns_topic(record.event) else fold_cluster(row, record)
    one = row.brokers[BrokerId(1)]
    assert (one.reason, one.changed_offset, one.changed_at_ms) == (reason, rig.log[-1].offset, rig.now_ms)
    assert (one.registered_at_ms > before_ms) == (last != "fence 1")


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (BrokerFenced(BrokerId(9), 1, "why"), "broker 9 is not registered"),
        (BrokerUnregistered(BrokerId(9), 1, "why"), "broker 9 is not registered"),
        (TopicReady(TopicName("t")), "it concerns no broker and no setting"),
    ],
)
def test_an_inapplicable_broker_event_fails_the_fold(event: BrokerFenced, why: str) -> None:
    with pytest.raises(CannotApply, match=f"at offset 9 cannot be applied: {why}"):
        fold_cluster(NO_CLUSTER, Recorded(Offset(9), 0, Cause("X", RequestId("x")), event))
