"""What a gateway counts instead of sending it to the workers."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from controller.access.mutation_quotas import MutationQuotas
from controller.access.refusals import RefusalRecords
from controller.engine.replies import Replies
from controller.engine.stamps import Stamps
from controller.machine.commands.access import RecordRefusals
from controller.machine.commands.commands import CreateTopic
from controller.machine.decision import Answer
from controller.stream.gateway.node import GatewayGate
from events.names import RequestId, TopicName
from tests.machine.rig import TOPIC_ID
from tests.machine.tables import given


def create(topic: str = "t", **fields: Any) -> CreateTopic:
    stamps: dict[str, Any] = {"request_id": RequestId("q"), "at_ms": 1, "topic_id": TOPIC_ID}
    return CreateTopic(**stamps, topic=TopicName(topic), num_partitions=1, replication_factor=1, **fields)


def test_a_long_request_that_is_refused_is_counted_and_not_sent() -> None:
    clock = itertools.count(1000)
    counted: list[RecordRefusals] = []
    state = given("1 2 3 has:u:1x1").state

    async def story() -> None:
        refusals = RefusalRecords(Stamps("boot", lambda: next(clock)), counted.append)
        gate = GatewayGate(Replies(), MutationQuotas(), refusals)
        short, long = create("u"), create("u", client_id="x" * 30_000)
        assert gate.passed(state, {}, short) is short, "the workers record it"
        for command, code in ((long, 36), (create("n" * 300), 17), (create(configs=(("a", "v" * 10**6),)), 40)):
            answers = gate.passed(state, {}, command)
            assert isinstance(answers, tuple)
            assert [(type(answer), answer.code, answer.topic_name) for answer in answers] == [
                (Answer, code, command.topic)
            ]
        accepted = create("w", client_id="x" * 30_000)
        assert gate.passed(state, {}, accepted) is accepted, "what is not refused is sent as it is"
        refusals.stop()

    asyncio.run(story())
    assert [event.count for command in counted for event in command.refusals] == [1, 1, 1]
    assert max(len(event.resource) for command in counted for event in command.refusals) <= 256
