"""Limits of rules over Kafka partitions: a gateway adds the counts of the other partitions to its commands."""

import asyncio
import time
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from controller.machine.commands.access import ApplyRules
from controller.machine.commands.commands import CreatePartitions, CreateTopic, DeleteTopic
from controller.machine.errors import ErrorCode
from controller.stream.log.codec import decode_command, partition_of
from events.names import RequestId, TopicName, shard_key
from tests.simulation.virtual_time import on_virtual_time
from tests.stream.gateway.stage import PARTITIONS, Rig
from tests.stream.log.records import BORN_MS, create

LIMIT = 10


def begin(folder: Path, limit: str) -> Rig:
    rig = Rig(folder)
    rig.begin()
    text = f"[[rule]]\nname = 'few'\nlimit = {{ {limit} }}\n"
    rig.request(ApplyRules(request_id=RequestId("r"), at_ms=BORN_MS, text=text))
    rig.work()
    rig.node.heartbeat()
    rig.node.heartbeat()  # copies the rules to the other partition
    rig.work()
    return rig


def creates(prefix: str, count: int, **more: Any) -> list[Any]:
    """The commands of one request for topics of one partition each, in turn in each partition."""
    return [
        replace(create(f"{prefix}{number}", num_partitions=1, timeout_ms=0, **more), request_id=RequestId(prefix))
        for number in range(count)
    ]


def topics_in(rig: Rig) -> int:
    return sum(worker.partition.state.topics.counts("").topics for worker in rig.workers)


@on_virtual_time
async def test_the_creates_of_one_request_count_for_each_other_in_all_partitions(tmp_path: Path) -> None:
    rig = begin(tmp_path, f"topics = {LIMIT}, per = 'principal'")
    reply = await rig.answers(*creates("a", 3 * LIMIT))
    refused = [one for one in reply.answers if one.code == ErrorCode.POLICY_VIOLATION]
    assert topics_in(rig) == LIMIT == 3 * LIMIT - len(refused)
    assert {partition_of(shard_key(f"a{number}"), PARTITIONS) for number in range(LIMIT)} == {0, 1}
    assert "User:ANONYMOUS has 10 topics, and 1 more would exceed the limit of 10" in refused[-1].message
    gone = DeleteTopic(request_id=RequestId("d"), at_ms=BORN_MS, topic=TopicName("a0"))
    assert (await rig.answers(gone)).answers[0].code == 0
    reply = await rig.answers(*creates("b", 4))
    assert topics_in(rig) == LIMIT
    assert not rig.node._undecided._counts, "all are decided"
    assert not rig.node._undecided._sent
    rig.close()


@on_virtual_time
async def test_requests_that_are_not_decided_count_for_later_requests(tmp_path: Path) -> None:
    rig = begin(tmp_path, f"partitions = {LIMIT}")
    for number in range(2 * LIMIT):
        rig.request(*creates(f"a{number}-", 1))
    rig.request(*(CreatePartitions(request_id=RequestId("g"), at_ms=BORN_MS, topic=TopicName("a0-0"), count=5),))
    rig.work()
    assert topics_in(rig) == LIMIT
    rig.close()


@on_virtual_time
async def test_a_create_that_kafka_does_not_take_is_not_counted(tmp_path: Path) -> None:
    rig = begin(tmp_path, f"topics = {LIMIT}")
    rig.full = True
    await rig.request(*creates("a", LIMIT))
    rig.full = False
    assert not rig.node._undecided._sent
    await rig.answers(*creates("b", LIMIT))
    assert topics_in(rig) == LIMIT
    rig.close()


@on_virtual_time
async def test_another_gateway_exceeds_a_limit_by_its_undecided_requests_at_most(tmp_path: Path) -> None:
    rig = begin(tmp_path / "a", f"topics = {LIMIT}")
    other = Rig(tmp_path / "b")
    own, other.workers = other.workers, rig.workers
    other.read(ended=True)
    other.on_heartbeat(other.members.own)
    for each in (rig, other):  # both send before either has read what the other sent
        each.request(*creates("ab"[each is other], LIMIT))
    for each in (rig, other):
        each.work()
    over = topics_in(rig) - LIMIT
    assert 0 < over < LIMIT
    before = topics_in(rig)
    for each in (rig, other):
        each.read()
        await each.answers(*creates("cd"[each is other], 1))
    assert topics_in(rig) == before, "once each has read the result, nothing more is created"
    print(f"limit {LIMIT}, exceeded by {over} of {LIMIT} requests at the same moment")
    for worker in own:
        worker.partition.close()
    rig.close()
    other.node.close()


async def test_a_request_for_many_topics_under_many_rules_lets_the_event_loop_run(tmp_path: Path) -> None:
    """CPU time between two turns of the event loop, because other processes share the machine."""
    rig = Rig(tmp_path)
    rig.begin()
    rules = "".join(
        f"[[rule]]\nname = 'r{number}'\ncheck = 'partitions < 1000 + {number}'\n"
        "limit = { topics = 100000, per = 'principal' }\n"
        for number in range(50)
    )
    rig.request(ApplyRules(request_id=RequestId("r"), at_ms=BORN_MS, text=rules))
    rig.work()
    rig.put.clear()
    count, turns = 10_000, [time.thread_time()]
    pending = rig.request(*creates("many", count), timeout_ms=3_600_000)
    while len(rig.put) < count:
        assert not pending.done(), "nobody decides the creates"
        turns.append(time.thread_time())
        await asyncio.sleep(0)
    turns.append(time.thread_time())
    assert max(map(float.__sub__, turns[1:], turns)) < 0.1
    sent = [decode_command(value) for _, _, _, value, _ in rig.put]
    assert [command.topic for command in sent if isinstance(command, CreateTopic)] == [f"many{n}" for n in range(count)]
    rig.close()
