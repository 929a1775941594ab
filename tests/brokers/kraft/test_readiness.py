"""Confirmations of brokers, which are submitted together, and broker probes."""

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from controller.brokers.kraft import readiness
from controller.brokers.kraft.readiness import BrokerProbes, Confirmations, ProbeDenied, Readiness
from controller.brokers.port import CommandSink
from controller.kafka.connections import Address, ClusterUnreachable
from controller.kafka.handling import Answer, RequestContext
from controller.kafka.messages import ApiKey
from controller.kafka.messages.clients import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from controller.kafka.messages.topics import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from controller.machine.commands.commands import ConfirmMetadata
from controller.machine.errors import ErrorCode
from controller.quorum.node import QuorumNode
from events.catalog import Cause, Endpoint, Recorded, TopicCreated
from events.names import BrokerId, Offset, RequestId, TopicId, TopicName
from tests.kafka.server.listener import serving

LIVE = tuple(BrokerId(each) for each in (1, 2, 3))


class Put:
    """A controller that stores the submitted confirmations: brokers, offset, after."""

    def __init__(self, live: tuple[BrokerId, ...] = LIVE, end: int = 0, offset: int = -1) -> None:
        self.commands: list[tuple[tuple[int, ...], int, int]] = []
        self.store = SimpleNamespace(durable_cluster=SimpleNamespace(live=live))
        self.last_offset = Offset(offset)
        self.gathered = Confirmations(cast("CommandSink", self), end)

    def has_pending_creates(self) -> bool:
        return True

    def new_request_id(self, origin: str = "") -> RequestId:
        return RequestId(origin)

    def now_ms(self) -> int:
        return 0

    def submit_internal(self, command: ConfirmMetadata) -> None:
        self.commands.append((command.brokers, command.offset, command.after))

    def take(self, broker_id: int, offset: int) -> None:
        self.gathered.confirm(BrokerId(broker_id), Offset(offset))


def test_confirmations_of_all_live_brokers_are_one_command() -> None:
    put = Put()
    for broker_id, offset in ((1, 5), (2, 9), (3, 7)):
        assert put.commands == []
        put.take(broker_id, offset)
    assert put.commands == [((1, 2, 3), 5, -1)]
    put.take(1, 8)
    assert put.commands[1:] == [((1, 2, 3), 7, 5)]


def test_confirmed_offsets_are_not_submitted_again() -> None:
    put = Put(LIVE[:1])
    for offset in (5, 5, 4, 6):
        put.take(1, offset)
    assert put.commands == [((1,), 5, -1), ((1,), 6, 5)]


def test_a_restarted_broker_confirms_again() -> None:
    put = Put(LIVE[:1])
    put.take(1, 5)
    put.gathered.forget(BrokerId(1))
    put.take(1, 5)
    assert put.commands == [((1,), 5, -1), ((1,), 5, -1)]


def test_confirmations_do_not_wait_for_a_slow_broker() -> None:
    put = Put()
    put.take(1, 5)
    put.take(2, 6)
    put.gathered.submit_gathered()
    assert put.commands == [((1,), 5, -1), ((2,), 6, -1)]
    put.take(3, 7)
    assert put.commands[2:] == [((3,), 5, -1)], "all brokers have now confirmed this offset"
    put.gathered.submit_gathered()
    assert put.commands[3:] == [((3,), 7, 5)]


def test_confirmations_of_an_earlier_leadership_are_not_submitted() -> None:
    put = Put()
    put.take(1, 5)
    put.gathered.restart(0)
    put.gathered.submit_gathered()
    assert put.commands == []


def test_applied_metadata_offsets_confirm_event_offsets() -> None:
    for end, confirmed in ((9, []), (10, [3]), (14, [3]), (15, [9]), (19, [9]), (20, [12]), (99, [12])):
        put = Put(LIVE[:1], end=10, offset=3)
        for each in ((15, 7), (15, 9), (20, 12)):
            put.gathered.record(each[0], Offset(each[1]))
        put.gathered.confirm_applied(BrokerId(1), end)
        assert [offset for _, offset, _ in put.commands] == confirmed


CODES = {"known": 0, "unknown": 3, "denied": int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)}


def _metadata(_: RequestContext, request: MetadataRequest) -> Answer:
    name = (request.topics or ())[0].name or ""
    topic = MetadataResponseTopic(error_code=CODES[name], name=name, partitions=(MetadataResponsePartition(),))
    return MetadataResponse(topics=(topic,))


def _offsets(_: RequestContext, request: ListOffsetsRequest) -> Answer:
    parts = tuple(
        ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=6 * (each.partition_index > 1))
        for each in request.topics[0].partitions
    )
    return ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name=request.topics[0].name, partitions=parts),))


async def test_a_broker_probe_checks_metadata_and_leadership() -> None:
    async with serving({ApiKey.METADATA: _metadata, ApiKey.LIST_OFFSETS: _offsets}) as server:
        probe, at = BrokerProbes(), ("127.0.0.1", server.port)
        assert await probe.knows(at, "known")
        assert not await probe.knows(at, "unknown")
        assert await probe.leads(at, {TopicName("known"): (0, 1)})
        assert not await probe.leads(at, {TopicName("known"): (1, 2)})
        with pytest.raises(ProbeDenied, match="denies the probe"):
            await probe.knows(at, "denied")
        probe.close()
        assert await probe.knows(at, "known"), "the probe must use another connection"
    with pytest.raises(ClusterUnreachable, match=f"127.0.0.1:{server.port} (closed the connection|cannot be reached)"):
        await probe.knows(at, "known")
    with pytest.raises(ClusterUnreachable, match=f"127.0.0.1:{server.port} cannot be reached"):
        await probe.knows(at, "known")


@pytest.mark.parametrize("host", ["two..dots", "a" * 64, "null\0"])
async def test_an_invalid_host_name_fails_the_probe(host: str) -> None:
    """A broker chooses its host name, which must not end the controller."""
    with pytest.raises(ClusterUnreachable, match="cannot be reached"):
        await BrokerProbes().knows((host, 9092), "known")


class Probed:
    """Replaces `BrokerProbes`: every broker leads all its partitions. Stores the probed topics."""

    def __init__(self) -> None:
        self.topics: list[set[str]] = []

    async def leads(self, _: Address, partitions: Mapping[TopicName, Sequence[int]]) -> bool:
        self.topics.append(set(partitions))
        return True


async def test_a_create_probes_no_topics_of_earlier_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    probed, me = Probed(), BrokerId(1)
    monkeypatch.setattr(readiness, "BrokerProbes", lambda: probed)
    broker = SimpleNamespace(fenced=False, endpoints=(Endpoint("PLAINTEXT", "h", 1),), security_protocols=(0,))
    put = Put(LIVE[:1])
    put.store.durable_cluster.brokers = {me: broker}
    put.store.durable_named = lambda name: SimpleNamespace(name=name, partitions=(SimpleNamespace(leader=me),))
    tasks: list[asyncio.Task[None]] = []
    controller = SimpleNamespace(store=put.store, background=lambda work: tasks.append(asyncio.ensure_future(work)))
    progress = SimpleNamespace(end_of=lambda _: 99)
    node = SimpleNamespace(quorum=SimpleNamespace(leading=SimpleNamespace(progress=progress)))
    awaited = Readiness(cast("CommandSink", controller), cast("QuorumNode", node), put.gathered)
    for offset, name in enumerate(("one", "two")):
        event = TopicCreated(RequestId(name), TopicName(name), TopicId(bytes(16)), (), 1, (), None, (), 0)
        awaited.await_created([Recorded(Offset(offset), 0, Cause("", RequestId(name)), event)], Offset(offset), offset)
        await asyncio.gather(*tasks)
    assert probed.topics == [{"one"}, {"two"}]
    assert [offset for _, offset, _ in put.commands] == [0, 1]
