"""What clients read of offsets and groups from simulated brokers, which keep no records."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from tests.support import tools
from tests.support.topicwright import Topicwright

WITHIN_S = 60
"""An answer comes at once; this is for a machine that is busy."""


def test_kafkajs(topicwright_server: Topicwright, topic: str) -> None:
    node, modules = tools.program("node"), tools.cached("kafkajs/node_modules")
    script = tools.ROOT / "tests/clients/kafkajs/offsets.js"
    done = tools.run_quietly([node, script, topicwright_server.kafka, topic], NODE_PATH=str(modules))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    offsets = sorted(found["offsets"], key=lambda one: one["partition"])
    assert offsets == [{"partition": n, "offset": "0", "high": "0", "low": "0"} for n in range(2)]
    assert sorted(one["offset"] for one in found["at"]) == ["0", "0"], "kafkajs takes the end where there is none"
    (committed,) = found["committed"]
    assert [one["offset"] for one in committed["partitions"]] == ["-1", "-1"]
    assert found["listed"] == []
    assert found["described"] == [{"groupId": "nobody", "state": "Dead"}]


def test_librdkafka_offsets(topicwright_server: Topicwright, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": topicwright_server.kafka})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(WITHIN_S)
    one = TopicPartition(topic, 0)
    of: Any = OffsetSpec  # its functions have no types
    specs = [of.latest(), of.earliest(), of.max_timestamp(), of.for_timestamp(1)]
    found = [admin.list_offsets({one: spec})[one].result(WITHIN_S) for spec in specs]
    assert [each.offset for each in found] == [0, 0, -1, -1]
    assert [each.leader_epoch for each in found[:2]] == [0, 0]


def test_librdkafka_groups(topicwright_server: Topicwright, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": topicwright_server.kafka})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(WITHIN_S)
    listed = admin.list_consumer_groups().result(WITHIN_S)
    assert (listed.valid, listed.errors) == ([], [])
    (described,) = admin.describe_consumer_groups(["nobody"]).values()
    assert described.result(WITHIN_S).state.name == "DEAD"
    asked = ConsumerGroupTopicPartitions("nobody", [TopicPartition(topic, 0)])
    (offsets,) = admin.list_consumer_group_offsets([asked]).values()
    assert [each.offset for each in offsets.result(WITHIN_S).topic_partitions] == [-1001]
    consumer = Consumer({"bootstrap.servers": topicwright_server.kafka, "group.id": "nobody"})
    try:
        assert [each.offset for each in consumer.committed([TopicPartition(topic, 0)], WITHIN_S)] == [-1001]
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), WITHIN_S) == (0, 0)
    finally:
        consumer.close()
