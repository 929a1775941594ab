"""Topics as rows: the fold, story by story."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from controller.machine.apply import CannotApply
from events.catalog import (
    Cause,
    ChangeAsked,
    Partition,
    PartitionChanged,
    PartitionsAdded,
    PartitionsWanted,
    Recorded,
    TopicReady,
)
from events.names import BrokerId, Offset, RequestId, TopicName
from projections.views.rows import NO_PAST, TopicPast, fold_topic, fold_topics
from projections.views.topics import health, offline_replicas
from tests.machine.tables import command, given

# given | steps, separated by `;` | the row of topic t: status, partitions as LEADER:ISR/REPLICAS, and what else is so
TABLE = """
1 2 3          | create t 1x3 id=q                             | pending 3:3.1.2/3.1.2 by=q
1 2 3          | create t 1x3 id=q; confirm 1 2 3              | ready 3:3.1.2/3.1.2 by=q
1 2 3 fewer    | create t 1x4; confirm 1 2 3                   | under-replicated 3:3.1.2/3.1.2.-1 by=q holes=1
1 2 3          | has:t; fence 3; reconcile t                      | offline -1:3/3 by=w-t policy=allowed
1 2 3          | has:t:1x3; fence 3; reconcile t                  | under-replicated 1:1.2/3.1.2 by=w-t policy=allowed
1 2 3          | has:t:1x3; fence 3; reconcile t; unfence 3; sync t | ready 1:3.1.2/3.1.2 by=w-t policy=allowed
1 2 3          | has:t; partitions t to=2                      | ready 3:3/3 1:1/1 by=w-t policy=allowed
1 2 3          | has:t; alter t set:retention.ms=5             | ready 3:3/3 by=w-t retention.ms=5 policy=allowed
1 2 3          | create t on=0:2.1 id=mine; confirm 1 2 3      | ready 2:2.1/2.1 by=mine
1 2 3          | create t 1x1 verdict=allowed; confirm 1 2 3   | ready 3:3/3 by=q policy=allowed
1 2 3          | create t 1x1 timeout=0; confirm 1 2 3         | ready 3:3/3 by=q
1 2 3          | has:t; create t 5x1 id=again                  | ready 3:3/3 by=w-t policy=allowed
1 2 3          | has:t; delete t                               | deleted by User:alice
1 2 3          | has:t; delete t; create t 1x2 id=second       | pending 3:3.1/3.1 by=second
1 2 3          | create t 0x1                                  | nothing
1 2 3          | create t_x 1x1                                | nothing
1 2 3 fewer    | create t 1x4; register 4; unfence 4; reconcile t | pending 3:3.1.2/3.1.2.4 by=q
"""


def _shown(past: TopicPast, live: tuple[BrokerId, ...]) -> str:
    row = past.row
    if row is None:
        return "nothing" if past.deletion is None else f"deleted by {past.deletion.principal}"
    stands = health(row, live)
    words: list[str] = [stands.status]
    words += [f"{one.leader}:{_ids(one.isr)}/{_ids(one.replicas)}" for one in row.partitions]
    assert row.created_by is not None, "the request stands before the creation"
    words.append(f"by={row.created_by.request_id}")
    words += [f"{name}={value}" for name, value in row.configs]
    words += [f"holes={stands.placeholders}"] if stands.placeholders else []
    words += [f"policy={row.verdict.outcome}"] if row.verdict is not None else []
    return " ".join(words)


def _ids(brokers: tuple[BrokerId, ...]) -> str:
    return ".".join(map(str, brokers))


@pytest.mark.parametrize("line", TABLE.strip().splitlines())
def test_a_topic_is_what_its_events_say(line: str) -> None:
    begin, steps, expected = (column.strip() for column in line.split("|"))
    first, *rest = (step.strip() for step in steps.split(";"))
    has, todo = (f" {first}", rest) if first.startswith("has:") else ("", [first, *rest])
    rig = given(begin + has)
    for step in todo:
        rig.put(command(rig, step))
    past = NO_PAST
    for record in rig.log:
        if getattr(record.event, "topic", None) == "t":
            past = fold_topic(past, record)
    assert _shown(past, rig.state.cluster.live) == expected


def test_replicas_that_do_not_serve_are_those_on_brokers_that_are_not_live_and_the_missing_ones() -> None:
    rig = given("1 2 3 fewer")
    rig.put(command(rig, "create t 1x4"))
    partition = rig.topic("t").partitions[0]
    assert partition.replicas == (3, 1, 2, -1)
    assert offline_replicas(partition, (BrokerId(1), BrokerId(2))) == (3, -1)


NAME = TopicName("t")
REQUESTED = ChangeAsked("CreatePartitions", 3, PartitionsWanted(6, None))
ONE = Partition((BrokerId(1),), (BrokerId(1),), BrokerId(1))
MISFITS = (
    TopicReady(NAME),
    PartitionChanged(NAME, 7, ONE, replace(ONE, partition_epoch=1), "why"),
    PartitionsAdded(RequestId("q"), NAME, 5, (), "User:alice", None, (), REQUESTED),
)


@pytest.mark.parametrize("event", MISFITS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("exists", [False, True])
def test_an_event_that_does_not_fit_stops_the_fold_and_says_where(event: object, exists: bool) -> None:
    past = NO_PAST
    for record in given("1 2 3 has:t").log if exists else ():
        if getattr(record.event, "topic", None) == "t":
            past = fold_topic(past, record)
    record = Recorded(Offset(99), 0, Cause("X", RequestId("x")), event)  # type: ignore[arg-type]
    with pytest.raises(CannotApply, match="at offset 99 cannot be applied"):
        fold_topic(past, record)
    with pytest.raises(CannotApply, match="at offset 99 cannot be applied"):
        fold_topics(past, [record])
