"""Topicwright answers as Kafka 4.4 does while one of three brokers is down, except for the placement of new replicas.

It has its own table, because the broker must stop after the topics of the cases are created.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.conftest import TABLE_SETTINGS
from tests.reference.cases import Case, Row, assigned, case, topic
from tests.reference.differences import Difference, agrees, expected
from tests.reference.table import Answers, send_all
from tests.support.reference_kafka import ReferenceKafka
from tests.support.topicwright import topicwright

DOWN = 3
SPREAD = topic("{t}", -1, -1, {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]})


def cases() -> Iterator[Case]:
    def create(name: str, wanted: dict[str, object], replicas: bool = False) -> Case:
        body = {"topics": [wanted], "timeout_ms": 30_000, "validate_only": False}
        return case("CreateTopics", name, body, replicas=replicas)

    def grow(name: str, *replicas: list[int]) -> Case:
        assignments = [{"broker_ids": each} for each in replicas] or None
        wanted = {"name": "{t}", "count": 4, "assignments": assignments}
        body = {"topics": [wanted], "timeout_ms": 30_000, "validate_only": False}
        return case("CreatePartitions", name, body, before=[SPREAD])

    yield create("down: factor 2", topic(partitions=3, factor=2))
    yield create("down: factor 3", topic(factor=3))
    yield create("down: factor 4", topic(factor=4))
    yield create("down: assigned to the live", assigned({0: [2, 1]}), replicas=True)
    yield create("down: assigned to live and fenced", assigned({0: [1, 3]}), replicas=True)
    yield create("down: assigned to fenced first", assigned({0: [3, 1]}), replicas=True)
    yield create("down: assigned to fenced alone", assigned({0: [3]}), replicas=True)
    yield grow("down: factor 3")
    yield grow("down: assigned to fenced first", [3, 1, 2])
    yield case("Metadata", "down: all", {"topics": None}, before=[SPREAD], versions=range(1, 14))
    yield case("Metadata", "down: one", {"topics": [{"name": "{t}"}]}, before=[SPREAD])
    yield case("DescribeTopicPartitions", "down", {"topics": [{"name": "{t}"}]}, before=[SPREAD])
    yield case("DescribeCluster", "down", {}, watch=())
    yield case("DescribeCluster", "down, fenced too", {"include_fenced_brokers": True}, versions=(2,), watch=())


CASES = tuple(cases())


def _refused(rows: tuple[Row, ...], case: Case, version: int) -> tuple[Row, ...]:
    after = Row("after {t}", "UNKNOWN_TOPIC_OR_PARTITION")
    if case.before:
        after = Row("after {t}", "NONE", None, ("partitions=3", "replicas=[3, 3, 3]", "all led", "configs=[]"))
    words = "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached"
    return (Row("{t}", "INVALID_REPLICATION_FACTOR", words), after)


def _all_replicas(rows: tuple[Row, ...], case: Case, version: int) -> tuple[Row, ...]:
    def whole(fact: str) -> str:
        return fact.replace("replicas=2", "replicas=3").replace(" REPLICA_NOT_AVAILABLE", "")

    return tuple(replace(row, facts=tuple(map(whole, row.facts))) for row in rows)


def _fewer_words(rows: tuple[Row, ...], case: Case, version: int) -> tuple[Row, ...]:
    words = "Unable to replicate the partition 4 time(s): The target replication factor of 4 cannot be reached"
    return (replace(rows[0], message=words), *rows[1:])


DIFFERENCES = (
    Difference(
        "Kafka gives replicas to registered brokers that are down; KIP-409 asks for live ones, or placeholders",
        "Create(Topics|Partitions): down: factor 3",
        _refused,
    ),
    Difference("only live brokers are counted, and the message says so", "CreateTopics: down: factor 4", _fewer_words),
    Difference(
        "version 0 of Metadata shows replicas on brokers that are down, as newer versions do",
        "Metadata: down: one",
        _all_replicas,
        range(1),
    ),
)


def answers_of_kafka(kafka: ReferenceKafka) -> Answers:
    """The responses of Kafka to this table, after the main table."""
    live = {node: address for node, address in kafka.brokers.items() if node != DOWN}
    return send_all(live, CASES, prepared=lambda: kafka.stop_broker(DOWN))


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    with topicwright(tmp_path_factory.mktemp("fenced"), TABLE_SETTINGS) as server:
        return send_all({1: server.kafka}, CASES, prepared=lambda: server.stop_broker(DOWN))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_responses_with_a_fenced_broker_equal_kafkas(case: Case, kafka_answers: Answers, ours: Answers) -> None:
    for version in case.versions:
        wanted = expected(kafka_answers[case.id, version], case, version, "simulated")
        for each in DIFFERENCES:
            if each.touches(case, version, "simulated"):
                wanted = each.change(wanted, case, version)
        assert agrees(ours[case.id, version], wanted), f"v{version}: got\n{ours[case.id, version]}\nwanted\n{wanted}"
