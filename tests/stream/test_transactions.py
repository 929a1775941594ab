"""Transactions in the events topic: what others have aborted counts for nobody, and is no loss."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from controller.stream.log.partition import events_in
from events.catalog import EVENT_VERSION
from events.logs.events_topic import Fence, encode_record
from projections.replay.log.kafka_ref import kafka_topic
from projections.replay.log.kafka_scan import scan
from tests.stream.requests import create
from tests.support.reference_kafka import ReferenceKafka
from tests.support.stream import stream

PARTITIONS = 2
IGNORED = encode_record(Fence(0, "somebody", "1.0", EVENT_VERSION))


@contextmanager
def transaction(kafka: str, topic: str, value: bytes) -> Iterator[Producer]:
    """A transaction of somebody else with a record in each partition of a topic; open until the end of the block."""
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": f"somebody-{time.time_ns()}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce(topic, value, partition=partition)
    assert producer.flush(60) == 0
    yield producer


def test_what_was_aborted_is_no_loss(kafka44: ReferenceKafka, tmp_path: Path) -> None:
    """By either driver: they differ in how they read commands."""
    kafka, names = kafka44.bootstrap, f"aborted-{time.time_ns()}"
    settings = {"stream.partitions": str(PARTITIONS)}
    with stream(tmp_path, kafka, names, settings) as one:
        events, gateway = f"{names}.events", one.gateways[0]
        assert create(gateway.kafka, "a", "b", "c", "d") == dict.fromkeys("abcd", 0)
        for value, ends in ((b"not a record", "abort_transaction"), (IGNORED, "commit_transaction")):
            with transaction(kafka, events, value) as producer:
                getattr(producer, ends)(60)
            more = [f"{ends}-{number}" for number in range(4)]
            assert create(gateway.kafka, *more) == dict.fromkeys(more, 0), "those that run go on"
        with transaction(kafka, events, b"not a record") as producer:
            producer.abort_transaction(60)
        assert one.workers[0].stop(within_s=120) == 0
        one.start_worker()  # its folder is empty, and the end of each partition is a marker
        cold = one.start_gateway()
        assert create(cold.kafka, "e", "f", "g", "h") == dict.fromkeys("efgh", 0)
        for process in (gateway.process, cold.process, *one.workers):
            assert process.stop(within_s=120) == 0, process.output[-3000:]
        with transaction(kafka, events, b"not a record") as producer:
            producer.abort_transaction(60)
        found = scan(kafka_topic(f"kafka://{kafka}/{events}"))
        assert sum(each.end for each in found.partitions) == events_in(cold.data) > 30
        warm = one.start_gateway(folder=cold.data.name)
        one.start_worker()
        assert create(warm.kafka, "i") == {"i": 0}


def test_an_open_transaction_holds_up_what_comes_after_it(kafka44: ReferenceKafka, tmp_path: Path) -> None:
    kafka, names = kafka44.bootstrap, f"open-{time.time_ns()}"
    with stream(tmp_path, kafka, names, {"stream.partitions": str(PARTITIONS)}) as one:
        (gateway,) = one.gateways
        with transaction(kafka, f"{names}.events", b"not a record") as producer:
            assert create(gateway.kafka, "a", timeout_ms=1000) == {"a": 7}, "REQUEST_TIMED_OUT: it may be decided later"
            producer.abort_transaction(60)
        assert create(gateway.kafka, "a", "b") in ({"a": 36, "b": 0}, {"a": 0, "b": 0})
