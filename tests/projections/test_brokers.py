"""Rows of brokers and settings: the fold of each scenario, and compared with the machine's state at every offset."""

from __future__ import annotations

import pytest

from controller.machine.apply import CannotApply, concerns_topic
from events.catalog import BrokerFenced, BrokerUnregistered, Cause, Recorded, TopicReady
from events.names import BrokerId, Offset, RequestId, TopicName
from projections.views.brokers import NO_CLUSTER, ClusterRow, fold_cluster
from tests.machine.tables import command, given

# steps | broker 1: live or fenced, epoch, incarnation, rack, reason, offset of the last change; and the settings
TABLE = """
                                 | none; settings of 1.0
register 1 rack=x                | fenced e1 first x registered @1; settings of 1.0
register 1; unfence 1            | live e1 first None why @2; settings of 1.0
register 1; unfence 1; fence 1   | fenced e1 first None why @3; settings of 1.0
register 1; register 1 as=second | fenced e2 second None registered @2; settings of 1.0
register 1; unregister 1         | none; settings of 1.0
settings 2.0 count=3             | none; settings of 2.0 num.partitions=3
"""


def _folded(records: list[Recorded]) -> ClusterRow:
    row = NO_CLUSTER
    for record in records:
        row = row if concerns_topic(record.event) else fold_cluster(row, record)
    return row


@pytest.mark.parametrize("line", TABLE.strip("\n").splitlines())
def test_broker_rows_equal_their_events(line: str) -> None:
    steps, _, expected = line.partition("|")
    rig = given("")
    for step in filter(None, (one.strip() for one in steps.split(";"))):
        rig.put(command(rig, step))
    row = _folded(rig.log)
    one = row.brokers.get(BrokerId(1))
    shown = "none"
    if one is not None:
        life = "fenced" if one.fenced else "live"
        shown = f"{life} e{one.broker_epoch} {one.incarnation} {one.rack} {one.reason} @{one.changed_offset}"
    pairs = "".join(f" {name}={value}" for name, value in row.settings)
    assert f"{shown}; settings of {row.release}{pairs}" == expected.strip()


def test_broker_rows_have_the_time_of_the_last_state_change() -> None:
    rig = given("1")
    at_ms = rig.log[-1].at_ms
    rig.put(command(rig, "fence 1"))
    one = _folded(rig.log).brokers[BrokerId(1)]
    assert one.registered_at_ms < at_ms < one.changed_at_ms == rig.now_ms


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
