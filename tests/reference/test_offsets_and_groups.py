"""Simulated brokers answer requests for offsets, groups and transactions, and others that consoles send, like a Kafka
without records and groups, in each version."""

import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any

from msgspec import to_builtins

from controller.kafka.codec.codec import decode_response, encode_request
from controller.kafka.messages import ApiKey, clients
from tests.reference.cases import assigned
from tests.support.real_brokers import until
from tests.support.reference_kafka import ReferenceKafka
from tests.support.topicwright import Topicwright
from tests.support.wire import Body, Wire

LATEST_EARLIEST_MAX = (-1, -2, -3)
TIMESTAMPS = (0, 1_700_000_000_000, *LATEST_EARLIEST_MAX, -4, -5, -7)


def list_offsets(wire: Wire, topic: str) -> Iterator[tuple[object, Body]]:
    """One response for each timestamp in each version, and for missing topics and partitions."""
    for version in range(1, 12):
        for timestamp in TIMESTAMPS:
            yield (version, timestamp), _offsets(wire, version, topic, 0, timestamp)
        yield (version, "no partition"), _offsets(wire, version, topic, 7, -1)
        yield (version, "no topic"), _offsets(wire, version, f"{topic}-missing", 0, -1)
    for epoch in (0, 5):
        yield ("epoch", epoch), _offsets(wire, 9, topic, 0, -1, epoch)


def _offsets(wire: Wire, version: int, topic: str, index: int, timestamp: int, epoch: int = -1) -> Body:
    partition = {"partition_index": index, "current_leader_epoch": epoch, "timestamp": timestamp}
    topics = [{"name": topic, "partitions": [partition]}]
    return wire.call("ListOffsets", version, replica_id=-1, isolation_level=0, topics=topics, timeout_ms=9000)


def groups(wire: Wire, topic: str) -> Iterator[tuple[object, Body]]:
    """The responses of a group's coordinator."""
    wanted = [{"name": topic, "partition_indexes": [0, 1]}, {"name": "missing", "partition_indexes": [0]}]
    for version in range(1, 8):
        yield ("OffsetFetch", version), wire.call("OffsetFetch", version, group_id="g", topics=wanted)
    for version in range(2, 8):
        yield ("OffsetFetch of all", version), wire.call("OffsetFetch", version, group_id="g", topics=None)
    for version in range(7):
        yield ("DescribeGroups", version), wire.call("DescribeGroups", version, groups=["g", "h"])
    for version in range(6):
        answer = wire.call("ListGroups", version)
        others = [each for each in answer["groups"] if each["group_id"] not in ("g", "h")]  # groups of other tests
        yield ("ListGroups", version), {**answer, "groups": [each for each in answer["groups"] if each not in others]}


def consoles(wire: Wire, topic: str) -> Iterator[tuple[object, Body]]:
    """Responses that consoles read, about groups, transactions and client metrics, none of which exist."""
    of_groups = clients.ConsumerGroupDescribeRequest(group_ids=("g", "h"))
    of_share = clients.DescribeShareGroupOffsetsRequest(
        groups=(clients.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None),)
    )
    for key, request in (
        (ApiKey.CONSUMER_GROUP_DESCRIBE, of_groups),
        (ApiKey.SHARE_GROUP_DESCRIBE, clients.ShareGroupDescribeRequest(group_ids=("g", "h"))),
        (ApiKey.STREAMS_GROUP_DESCRIBE, clients.StreamsGroupDescribeRequest(group_ids=("g", "h"))),
        (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, of_share),
    ):  # kafka-python has none of them
        wire.send_frame(encode_request(key, key.max_version, 1, "test", request)[4:])
        yield key, to_builtins(decode_response(key, key.max_version, wire.receive_frame())[1])
    for version in range(3):
        answer = wire.call("ListTransactions", version, state_filters=["Ongoing", "New"])
        yield ("ListTransactions", version), {**answer, "transaction_states": []}  # some may be of other tests
    wanted = [{"name": topic, "partition_indexes": [7]}, {"name": f"{topic}-missing", "partition_indexes": [0]}]
    for each in wire.call("DescribeProducers", 0, topics=wanted)["topics"]:
        yield ("DescribeProducers", each["name"]), {"error_code": each["partitions"][0]["error_code"]}
    for kinds in ([16], [1], [99]):
        yield ("ListConfigResources", *kinds), wire.call("ListConfigResources", 1, resource_types=kinds)
    yield "ListConfigResources", wire.call("ListConfigResources", 0)
    for kind, name in ((2, topic), (4, "1"), (8, "1")):
        listed = wire.call("ListConfigResources", 1, resource_types=[kind])["config_resources"]
        yield ("ListConfigResources", kind), {"is_listed": {"resource_name": name, "resource_type": kind} in listed}
    for name, value in METRICS:
        config = {"name": name, "config_operation": 0, "value": value}
        resource = {"resource_type": 16, "resource_name": topic, "configs": [config]}
        answer = wire.call("IncrementalAlterConfigs", 1, resources=[resource], validate_only=True)
        yield ("client metrics", name, value), {"error_code": answer["responses"][0]["error_code"]}
    for name in ("", topic):
        resource = {"resource_type": 16, "resource_name": name, "configuration_keys": None}
        yield ("DescribeConfigs", name), wire.call("DescribeConfigs", 4, resources=[resource], include_synonyms=True)


METRICS = (
    *(("interval.ms", value) for value in ("100", "99", "3600001", "x", " 200 ")),
    *(("match", value) for value in ("", "client_id=a.*,client_source_port=1", "client_id", "x=1", "=")),
    *(("metrics", value) for value in ("", "org.apache,*")),
    ("x", "1"),
)


def coordinator(wire: Wire) -> str:
    """The address of group g's coordinator; Kafka creates the offsets topic first."""

    def found() -> Body:
        answer = wire.call("FindCoordinator", 3, key="g", key_type=0)
        return answer if answer["error_code"] == 0 else {}

    node = until(found, 120, "there is a coordinator")
    for version in range(7):
        one = wire.call("FindCoordinator", version, key="g", key_type=0, coordinator_keys=["g"])
        one = one["coordinators"][0] if version >= 4 else one
        assert (one["error_code"], one["node_id"], one["port"]) == (0, node["node_id"], node["port"]), version
    return f"{node['host']}:{node['port']}"


def answers(address: str, topic: str) -> dict[object, Body]:
    """All of these responses, without throttle times."""
    wanted = {**assigned({0: [1], 1: [1]}), "name": topic}
    with Wire(address) as wire:
        wire.call("CreateTopics", 7, topics=[wanted], timeout_ms=60_000, validate_only=False)
        until(lambda: _offsets(wire, 1, topic, 0, -1)["topics"][0]["partitions"][0]["error_code"] == 0, 60, "it is led")
        found = dict(list_offsets(wire, topic))
        with Wire(coordinator(wire)) as of_groups:
            fetch = partial(of_groups.call, "OffsetFetch", 7, group_id="g", topics=None)
            until(lambda: fetch()["error_code"] == 0, 60, "the coordinator has loaded its groups")
            found |= groups(of_groups, topic)
            found |= consoles(of_groups, topic)
    return {key: _without_throttle(body) for key, body in found.items()}


def _without_throttle(body: Body) -> Any:
    return {name: value for name, value in body.items() if name != "throttle_time_ms"}


def test_responses_equal_those_of_an_empty_kafka(kafka44: ReferenceKafka, topicwright_server: Topicwright) -> None:
    topic = f"empty-{uuid.uuid4().hex[:8]}"
    kafka, topicwright = answers(kafka44.bootstrap, topic), answers(topicwright_server.kafka, topic)
    differing = [(key, kafka[key], topicwright[key]) for key in kafka if kafka[key] != topicwright[key]]
    assert not differing, "\n".join(map(str, differing))[:3000]
