"""`make cluster`: the topology of docker-compose.yml as plain processes, from its first word to Ctrl-C."""

from __future__ import annotations

import json
import signal
import sys
import urllib.request

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support import tools
from tests.support.processes import Process
from tests.support.topicwright import command
from tests.support.wire import Wire

STARTED_WITHIN_S = 240


def test_all_of_it_starts_works_together_and_ends() -> None:
    tools.program("java")
    with Process([sys.executable, "-m", "tests.support.cluster"], cwd=tools.ROOT) as process:
        kafka = process.wait_for_line(r"^Kafka clients +(\S+) and (\S+)$", within_s=STARTED_WITHIN_S)
        http = process.wait_for_line(r"^HTTP +(\S+) and (\S+)$", within_s=10)
        process.wait_for_line(r"^Spark +spark://", within_s=120)
        process.wait_for_line(r"^Ctrl-C ends it\.$", within_s=120)
        body = json.dumps({"name": "pay.orders", "num_partitions": 3}).encode()
        request = urllib.request.Request(f"http://{http[1]}/v1/topics", body, method="POST")
        with urllib.request.urlopen(request, timeout=60) as answer:
            made = json.loads(answer.read())
        assert (made["status"], made["replication_factor"]) == ("ready", 3)
        with Wire(kafka[2]) as wire:
            brokers = wire.call("Metadata", 12, topics=[])["brokers"]
            nodes = wire.call("Metadata", 12, topics=[{"name": "pay.orders"}])["brokers"]
        assert [each["node_id"] for each in brokers] == [1, 2, 3]
        assert {kafka[1], kafka[2]} < {f"{each['host']}:{each['port']}" for each in nodes}
        explained = command("explain", made["request_id"], "--http", http[1])
        assert explained.returncode == 0, explained.stderr
        assert "pay.orders created" in explained.stdout
        assert _through_a_topic(kafka[2], "pay.orders", b"one") == b"one", "the Kafka that it runs on keeps records"
        process.popen.send_signal(signal.SIGINT)
        assert process.wait(90) == 0, process.output[-4000:]


def _through_a_topic(bootstrap: str, topic: str, value: bytes) -> bytes | None:
    """What a consumer reads that a producer wrote, both of which know only a gateway."""
    start = {"bootstrap.servers": bootstrap, "log_level": 0}
    producer = Producer(start)
    producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0
    consumer = Consumer({**start, "group.id": "none", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(60)
    finally:
        consumer.close()
    assert message is not None
    assert message.error() is None, message.error()
    return message.value()
