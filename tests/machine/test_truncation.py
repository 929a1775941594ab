"""Refused requests are truncated in the log, and can still be decided again."""

from __future__ import annotations

from typing import Any

import pytest

from controller.machine.commands.commands import AlterTopicConfigs, CreatePartitions, CreateTopic, DeleteTopic
from controller.machine.decide import decide
from controller.machine.recorded_command import recall
from controller.machine.truncation import ENTRIES_MAX, TEXT_MAX, truncated
from events.catalog import Assignment, Cause, ConfigOp, CreateRequested, Recorded
from events.codec import decode_event, encode_event
from events.names import BrokerId, Offset, RequestId, TopicName
from tests.machine.rig import TOPIC_ID
from tests.machine.tables import given

LONG = "x" * 1_000_000


def command_of(kind: type[Any], topic: str = "t", **fields: Any) -> Any:
    return kind(request_id=RequestId("q"), at_ms=1_700_000_000_000, topic=TopicName(topic), **fields)


def create(topic: str = "t", **fields: Any) -> Any:
    return command_of(CreateTopic, topic, topic_id=TOPIC_ID, **{"num_partitions": 1, "replication_factor": 1, **fields})


def assigned(count: int) -> tuple[Assignment, ...]:
    return tuple(Assignment(index, (BrokerId(9),)) for index in range(count))


LARGE = {
    "client id": create(replication_factor=9, client_id=LONG),
    "principal": create(replication_factor=9, principal="User:" + LONG),
    "config value": create(configs=(("retention.ms", LONG),)),
    "config name": create(configs=((LONG, "1"),)),
    "denied": create(configs=(("retention.ms", LONG),), denied=29),
    "twice": create(configs=(("cleanup.policy", LONG),), duplicate=True),
    "there": create("u", configs=(("cleanup.policy", LONG),)),
    "altered": command_of(AlterTopicConfigs, "u", api="AlterConfigs", ops=(ConfigOp("retention.ms", 0, LONG),)),
    "altered name": command_of(AlterTopicConfigs, "u", api="AlterConfigs", ops=(ConfigOp(LONG, 0, None),), denied=29),
    "deletion": command_of(DeleteTopic, "none", api="DeleteTopics", client_id=LONG),
    "partitions": command_of(CreatePartitions, "none", api="CreatePartitions", count=3, client_id=LONG),
}
"""Refused requests, each with one value of a million characters."""


@pytest.mark.parametrize("command", LARGE.values(), ids=LARGE)
def test_a_truncated_rejected_create_is_decided_the_same_again(command: Any) -> None:
    state = given("1 2 3 has:u:1x1").state
    decision = decide(state, command)
    assert decision.refusal is not None
    (answer,) = decision.answers
    assert (answer.topic_name, answer.code) == (command.topic, decision.refusal.code)
    cause = Cause(type(command).__name__, command.request_id)
    values = [encode_event(command.at_ms, cause, event) for event in decision.events]
    text = b"".join(values).decode("utf-8", "replace")
    assert len(text) < 4 * TEXT_MAX * len(values)
    assert "… (10000" in text, "the text has its original length"
    records = [decode_event(offset, value) for offset, value in enumerate(values)]
    again = recall(records)
    assert again is not None
    assert decide(state, again).events == decision.events


MANY = {
    "no topic has such a name": create("x" * 250),
    "a name without end": create(LONG),
    "a name without end, denied": create(LONG, denied=29),
    "configs": create(configs=tuple((f"c{number}", "1") for number in range(ENTRIES_MAX + 1))),
    "assignments": create("u", num_partitions=-1, replication_factor=-1, assignments=assigned(ENTRIES_MAX)),
    "ops": command_of(
        AlterTopicConfigs,
        "none",
        api="AlterConfigs",
        ops=tuple(ConfigOp(str(n), 0, "1") for n in range(ENTRIES_MAX + 1)),
    ),
    "new replicas": command_of(
        CreatePartitions, "none", api="CreatePartitions", count=9, assignments=((BrokerId(1),),) * ENTRIES_MAX
    ),
}


@pytest.mark.parametrize("command", MANY.values(), ids=MANY)
def test_an_oversized_rejected_request_writes_no_event(command: Any) -> None:
    decision = decide(given("1 2 3 has:u:1x1").state, command)
    assert decision.refusal is not None
    assert (decision.events, len(decision.answers)) == ((), 1)


def test_a_rejection_that_truncation_would_change_writes_no_event() -> None:
    spaces = " " * 300 + "x"
    command = create(configs=(("cleanup.policy", "delete"), ("retention.ms", spaces + LONG)))
    whole, short = decide(given("1 2 3").state, command), decide(given("1 2 3").state, create())
    assert whole.refusal is not None
    assert short.refusal is None
    assert all(len(each.configs[1][1] or "") <= TEXT_MAX for each in whole.events if isinstance(each, CreateRequested))


def test_a_small_request_is_not_truncated() -> None:
    command = create(replication_factor=9, configs=tuple((f"c{n}", "v" * TEXT_MAX) for n in range(ENTRIES_MAX)))
    decision = decide(given("1").state, command)
    requested = decision.events[0]
    assert isinstance(requested, CreateRequested)
    assert requested.configs == command.configs


def test_truncation_is_idempotent() -> None:
    for length in (0, TEXT_MAX, TEXT_MAX + 1, 10**7):
        once = truncated("é" * length)
        assert len(once) <= TEXT_MAX
        assert truncated(once) == once


def test_an_untruncated_rejection_in_the_log_is_accepted() -> None:
    event = CreateRequested(
        RequestId("q"), TopicName("t"), TOPIC_ID, 1, 9, (), (("retention.ms", LONG),), 0, 1, "User:a", None, "HTTP", 0
    )
    value = encode_event(1, Cause("CreateTopic", RequestId("q")), event)
    assert decode_event(0, value) == Recorded(Offset(0), 1, Cause("CreateTopic", RequestId("q")), event)
