"""Requests about very many partitions are decided in portions; the portions become one response."""

import asyncio
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from controller.apis import Call
from controller.apis.kraft.broker_requests import alter_partition, assign_replicas_to_dirs
from controller.apis.partitions import alter_partition_reassignments, elect_leaders
from controller.controller_api import PARTITIONS_PER_PORTION, Reply, in_portions
from controller.kafka.handling import RequestContext
from controller.kafka.messages import ApiKey, cluster, topics
from events.names import BrokerId, TopicName
from tests.machine.rig import Rig, topics_of
from tests.machine.tables import command

MANY = 2 * PARTITIONS_PER_PORTION + 300


@pytest.mark.parametrize(
    "sizes", [(), (0,), (1, 2), (500, 500), (499, 2), (1, 1700, 3), (0, 1000, 0, 1), (0,) * 1200, (300, 300)]
)
def test_request_portions_are_complete_ordered_and_bounded(sizes: Sequence[int]) -> None:
    wanted = [(f"t{number}", tuple(range(size))) for number, size in enumerate(sizes)]
    portions = list(in_portions(wanted))
    again: dict[str, list[int]] = {}
    for portion in portions:
        assert sum(max(1, len(each)) for _, each in portion) <= PARTITIONS_PER_PORTION
        assert len({name for name, _ in portion}) == len(portion), "replies are matched by topic name"
        for name, each in portion:
            again.setdefault(name, []).extend(each)
    assert list(again.items()) == [(name, list(each)) for name, each in wanted]


class ControllerApi:
    """Decides at once, for Kafka brokers (KRaft mode) with one topic of very many partitions."""

    def __init__(self) -> None:
        self.rig = Rig()
        for text in (
            "quorum",
            "join 1",
            "join 2",
            "join 3",
            "unfence 1",
            "unfence 2",
            "unfence 3",
            f"create t {MANY}x3",
        ):
            self.rig.put(command(self.rig, text))
        self.topic = self.rig.topic("t")
        self.controller = SimpleNamespace(new_request_id=lambda _="": "q", now_ms=self.rig.tick)
        self.store = self
        self.sizes: list[int] = []

    def grants(self, *_: object) -> bool:
        return True

    def durable_name_of(self, topic_id: bytes) -> TopicName | None:
        return self.topic.name if topic_id == self.topic.topic_id else None

    def durable_from(self, after: str | None) -> Iterator[Any]:
        return iter([] if after else topics_of(self.rig.state))

    async def submit(self, commands: Sequence[Any]) -> Reply:
        decisions = [self.rig.put(replace(each, at_ms=self.rig.tick())) for each in commands]
        answers = tuple(answer for decision in decisions for answer in decision.answers)
        self.sizes.append(sum(len(answer.partitions) for answer in answers))
        return Reply(answers)


def answer(function: Any, key: ApiKey, version: int, request: Any, api: Any, *parts: Any) -> Any:
    """The response of a function to a request with these parts."""
    return asyncio.run(function(*parts, Call(api, RequestContext(key, version)), request))


def check(api: ControllerApi) -> None:
    assert sum(api.sizes) == MANY
    assert max(api.sizes) <= PARTITIONS_PER_PORTION


def test_alter_partition_is_decided_in_portions() -> None:
    api, epochs = ControllerApi(), Mock(machine_epoch=lambda _, epoch: epoch)
    reports = tuple(
        cluster.AlterPartitionData(partition_index=index, new_isr=(one.leader,), partition_epoch=0)
        for index, one in enumerate(api.topic.partitions)
    )
    topic = cluster.AlterPartitionTopic(topic_id=api.topic.topic_id, partitions=reports)
    epoch = api.rig.state.cluster.brokers[api.topic.partitions[0].leader].broker_epoch
    request = cluster.AlterPartitionRequest(
        broker_id=api.topic.partitions[0].leader, broker_epoch=epoch, topics=(topic,)
    )
    response = answer(alter_partition, ApiKey.ALTER_PARTITION, 2, request, api, epochs)
    check(api)
    assert response.error_code == 0
    (answered,) = response.topics
    assert [one.partition_index for one in answered.partitions] == list(range(MANY))
    mine = [one for one in answered.partitions if one.leader_id == request.broker_id]
    assert {one.isr for one in mine} == {(request.broker_id,)}
    assert len(mine) >= MANY // 3


@pytest.mark.parametrize("everything", [True, False])
def test_elect_leaders_is_decided_in_portions(everything: bool) -> None:
    api = ControllerApi()
    named = (topics.TopicPartitions(topic="t", partitions=tuple(range(MANY))),)
    request = topics.ElectLeadersRequest(topic_partitions=None if everything else named, election_type=0)
    response = answer(elect_leaders, ApiKey.ELECT_LEADERS, 2, request, api)
    check(api)
    (result,) = response.replica_election_results
    assert [one.partition_id for one in result.partition_result] == ([] if everything else list(range(MANY)))


def test_alter_partition_reassignments_is_decided_in_portions() -> None:
    api = ControllerApi()
    wanted = tuple(topics.ReassignablePartition(partition_index=index, replicas=(1, 2)) for index in range(MANY))
    request = topics.AlterPartitionReassignmentsRequest(topics=(topics.ReassignableTopic(name="t", partitions=wanted),))
    response = answer(alter_partition_reassignments, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, request, api)
    check(api)
    (answered,) = response.responses
    assert [one.partition_index for one in answered.partitions] == list(range(MANY))
    assert {one.error_code for one in answered.partitions} == {0}
    assert {one.replicas for one in api.rig.topic("t").partitions} == {(1, 2)}


def test_assign_replicas_to_dirs_is_decided_in_portions() -> None:
    api = ControllerApi()
    epochs = Mock(machine_epoch=lambda _, epoch: epoch, is_unknown_directory=lambda *_: False)
    parts = tuple(cluster.AssignReplicasPartition(partition_index=index) for index in range(MANY))
    topic = cluster.AssignReplicasTopic(topic_id=api.topic.topic_id, partitions=parts)
    directory = cluster.AssignReplicasDirectory(id=b"d" * 16, topics=(topic,))
    request = cluster.AssignReplicasToDirsRequest(
        broker_id=1, broker_epoch=api.rig.state.cluster.brokers[BrokerId(1)].broker_epoch, directories=(directory,)
    )
    response = answer(assign_replicas_to_dirs, ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, request, api, epochs)
    check(api)
    assert response.error_code == 0
    ((answered,),) = (one.topics for one in response.directories)
    assert [one.partition_index for one in answered.partitions] == list(range(MANY))
