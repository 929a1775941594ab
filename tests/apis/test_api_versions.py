"""ApiVersions: the APIs advertised to each kind of client; and Produce, which is advertised but rejected."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from confluent_kafka import Producer
from msgspec.structs import replace

from controller.apis.cluster import with_api_versions
from controller.apis.records import PRODUCE_REJECTED, PRODUCE_ROW, reject_produce
from controller.apis.tables import HandlerTable
from controller.kafka.handling import ApiHandler, ClientConnection, Disconnect, RequestContext
from controller.kafka.messages import ApiKey, cluster, topics
from controller.kafka.messages.clients import NodeEndpoint, PartitionProduceData, ProduceRequest, TopicProduceData
from controller.kafka.server.server import KafkaServer
from tests.apis.rig import ENDPOINT, Rig, rig


def metadata(context: RequestContext, request: topics.MetadataRequest) -> topics.MetadataResponse:
    return topics.MetadataResponse()


TABLE = {int(ApiKey.METADATA): ApiHandler(0, 3, metadata), int(ApiKey.PRODUCE): PRODUCE_ROW}
SPOKEN = (
    cluster.ApiVersion(api_key=0, min_version=0, max_version=13),
    cluster.ApiVersion(api_key=3, min_version=0, max_version=3),
    cluster.ApiVersion(api_key=18, min_version=0, max_version=5),
)


def call(
    table: HandlerTable, version: int, name: str = "me", software: str = "1.0", **expected: Any
) -> tuple[Any, ClientConnection]:
    connection = ClientConnection()
    context = RequestContext(18, version, connection=connection)
    request = cluster.ApiVersionsRequest(client_software_name=name, client_software_version=software, **expected)
    return table[18].handle(context, request), connection


@pytest.mark.parametrize("version", range(6))
def test_api_versions_are_those_of_the_table(version: int) -> None:
    response, _ = call(with_api_versions(TABLE), version)
    assert response == cluster.ApiVersionsResponse(api_keys=SPOKEN)


@pytest.mark.parametrize(
    ("name", "software", "taken"),
    [
        ("apache-kafka-java", "4.4.0", True),
        ("librdkafka", "2.16.1-rc.1", True),
        ("a", "1", True),
        ("", "1.0", False),
        ("me", "", False),
        ("a b", "1.0", False),
        ("-me", "1.0", False),
        ("me", "1.0.", False),
        ("me\n", "1.0", False),
        ("mé", "1.0", False),
    ],
)
def test_invalid_client_software_name_is_rejected_from_version_3(name: str, software: str, taken: bool) -> None:
    for version in (3, 4, 5):
        response, connection = call(with_api_versions(TABLE), version, name, software)
        seen = connection.software
        if taken:
            assert (response.error_code, seen) == (0, f"{name} {software}")
        else:
            assert (response, seen) == (cluster.ApiVersionsResponse(error_code=42), "unknown unknown")
    response, connection = call(with_api_versions(TABLE), 2, name, software)
    assert (response.error_code, connection.software) == (0, "unknown unknown")


def test_features_with_min_level_0_require_version_4() -> None:
    old = cluster.SupportedFeatureKey(name="metadata.version", min_version=1, max_version=29)
    new = cluster.SupportedFeatureKey(name="group.version", min_version=0, max_version=1)
    level = cluster.FinalizedFeatureKey(name="metadata.version", min_version_level=29, max_version_level=29)
    table = with_api_versions(TABLE, supported_features=(old, new), finalized=lambda: (5, (level,)))
    for version, supported in ((3, (old,)), (4, (old, new))):
        response, _ = call(table, version)
        assert response.supported_features == supported
        assert (response.finalized_features, response.finalized_features_epoch) == ((level,), 5)


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "code"),
    [("c", 1, 0), (None, -1, 0), ("c", 2, 129), ("other", 1, 129), ("c", -1, 42), (None, 1, 42)],
)
def test_wrong_cluster_or_node_gets_rebootstrap_required(cluster_id: str | None, node_id: int, code: int) -> None:
    table = with_api_versions(TABLE, is_expected_node=lambda *found: found == ("c", 1))
    response, _ = call(table, 5, cluster_id=cluster_id, node_id=node_id)
    assert (response.error_code, response.api_keys) == (code, () if code else SPOKEN)


@pytest.mark.parametrize("broker_listeners", [False, True])
async def test_api_versions_checks_the_node_id_per_listener(broker_listeners: bool) -> None:
    async with rig(broker_listeners=broker_listeners) as served:
        if broker_listeners:  # brokers have their own ports
            served.api.advertised = replace(ENDPOINT, port=9099)
        nodes = {0} if broker_listeners else {0, 1, 2, 3}

        def expected(table: HandlerTable, cluster_id: str) -> set[int]:
            answers = {each: call(table, 5, cluster_id=cluster_id, node_id=each)[0] for each in range(6)}
            return {each for each, answer in answers.items() if answer.error_code == 0}

        assert expected(served.listener, served.api.cluster_id) == nodes
        assert expected(served.listener, "another") == set()
        assert expected(served.broker, served.api.cluster_id) == {1}


async def test_finalized_features_of_simulated_brokers(served: Rig) -> None:
    for table in (served.listener, served.broker):
        answer, _ = call(table, 4)
        supported = {each.name: each.max_version for each in answer.supported_features}
        assert answer.finalized_features_epoch >= 0
        finalized = {each.name: each.max_version_level for each in answer.finalized_features}
        assert finalized == {name: level for name, level in supported.items() if name != "kraft.version"}
        assert (finalized["metadata.version"], finalized["share.version"]) == (33, 2)


def test_with_api_versions_does_not_modify_the_table() -> None:
    with_api_versions(TABLE)
    assert set(TABLE) == {0, 3}


REQUEST = ProduceRequest(
    acks=-1,
    topic_data=(
        TopicProduceData(name="t", topic_id=bytes(range(16)), partition_data=(PartitionProduceData(index=3),)),
        TopicProduceData(name="u", partition_data=(PartitionProduceData(index=0), PartitionProduceData(index=1))),
    ),
)


def test_produce_is_rejected_for_every_partition() -> None:
    response = reject_produce(RequestContext(0, 13), REQUEST)
    results = [
        (topic.name, topic.topic_id, partition.index, partition.error_code, partition.error_message)
        for topic in response.responses
        for partition in topic.partition_responses
    ]
    assert results == [
        ("t", bytes(range(16)), 3, 42, PRODUCE_REJECTED),
        ("u", bytes(16), 0, 42, PRODUCE_REJECTED),
        ("u", bytes(16), 1, 42, PRODUCE_REJECTED),
    ]


def test_produce_with_acks_0_disconnects() -> None:
    with pytest.raises(Disconnect, match="stores no records"):
        reject_produce(RequestContext(0, 9), ProduceRequest(acks=0, topic_data=REQUEST.topic_data))


@asynccontextmanager
async def one_topic() -> AsyncIterator[KafkaServer]:
    """The listener of the only broker, which leads the only partition of topic `t`."""

    def metadata(context: RequestContext, request: topics.MetadataRequest) -> topics.MetadataResponse:
        partition = topics.MetadataResponsePartition(leader_id=1, replica_nodes=(1,), isr_nodes=(1,))
        return topics.MetadataResponse(
            brokers=(NodeEndpoint(node_id=1, host="127.0.0.1", port=server.port),),
            controller_id=1,
            topics=(topics.MetadataResponseTopic(name="t", topic_id=bytes(range(16)), partitions=(partition,)),),
        )

    table = with_api_versions({ApiKey.METADATA: ApiHandler(0, 13, metadata), ApiKey.PRODUCE: PRODUCE_ROW})
    server = KafkaServer("127.0.0.1", 0, table)
    await server.start()
    try:
        yield server
    finally:
        await server.stop(0.1)


def produced(port: int) -> list[Any]:
    """librdkafka's errors for one record; it would retry a retriable error for a minute."""
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "message.timeout.ms": 60_000})
    producer.produce("t", b"x", on_delivery=lambda error, _: errors.append(error and error.code()))
    producer.flush(30)
    return errors


async def test_librdkafka_producer_fails_at_once() -> None:
    async with one_topic() as server:
        assert await asyncio.to_thread(produced, server.port) == [42]
