"""The three Python clients: confluent-kafka (librdkafka), kafka-python and aiokafka."""

import asyncio
from typing import Any

from tests.brokers.cluster.served import until
from tests.clients.seen import FACTOR, GROWN, PARTITIONS, RETENTION_MS, Seen, check


def test_confluent_kafka_admin_client_manages_topics(bootstrap: str, topic: str) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic  # type: ignore[attr-defined]  # it does not say that it exports these

    admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(name: str, retention_ms: str) -> None:
        new_topic = NewTopic(name, PARTITIONS, FACTOR, config={"retention.ms": retention_ms})
        admin.create_topics([new_topic])[name].result(30)

    def refused(name: str, retention_ms: str) -> tuple[int, str]:
        try:
            create(name, retention_ms)
        except KafkaException as refusal:
            return refusal.args[0].code(), refusal.args[0].str()
        return 0, ""

    def partitions() -> list[list[int]]:
        return [each.replicas for each in admin.list_topics(topic, timeout=10).topics[topic].partitions.values()]

    create(topic, RETENTION_MS)
    described = until(partitions, lambda found: len(found) == PARTITIONS)
    listed = topic in admin.list_topics(timeout=10).topics
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    configs = admin.describe_configs([resource])[resource].result(30)
    again, (bad, bad_message) = refused(topic, RETENTION_MS), refused(f"{topic}-bad", "soon")
    admin.create_partitions([NewPartitions(topic, GROWN)])[topic].result(30)
    grown = until(partitions, lambda found: len(found) == GROWN)
    admin.delete_topics([topic])[topic].result(30)
    gone = until(lambda: topic not in admin.list_topics(timeout=10).topics)
    check(
        Seen(
            listed=listed,
            partitions=len(described),
            factor=len(described[0]),
            retention_ms=configs["retention.ms"].value,
            again=again[0],
            bad=bad,
            bad_message=bad_message,
            grown=len(grown),
            gone=gone,
        )
    )


def test_kafka_python(bootstrap: str, topic: str) -> None:
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewPartitions, NewTopic
    from kafka.errors import BrokerResponseError

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def create(name: str, retention_ms: str) -> None:
        new_topic = NewTopic(name, PARTITIONS, FACTOR, topic_configs={"retention.ms": retention_ms})
        admin.create_topics([new_topic])

    def refused(name: str, retention_ms: str) -> tuple[int, str]:
        try:
            create(name, retention_ms)
        except BrokerResponseError as refusal:
            return refusal.errno, str(refusal)
        return 0, ""

    def partitions() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = admin.describe_topics([topic])[0]["partitions"]
        return found

    try:
        create(topic, RETENTION_MS)
        described = until(partitions, lambda found: len(found) == PARTITIONS)
        listed = topic in admin.list_topics()
        configs = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        again, (bad, bad_message) = refused(topic, RETENTION_MS), refused(f"{topic}-bad", "soon")
        admin.create_partitions({topic: NewPartitions(GROWN)})
        grown = until(partitions, lambda found: len(found) == GROWN)
        admin.delete_topics([topic])
        gone = until(lambda: topic not in admin.list_topics())
    finally:
        admin.close()
    check(
        Seen(
            listed=listed,
            partitions=len(described),
            factor=len(described[0]["replica_nodes"]),
            retention_ms=_retention(configs),
            again=again[0],
            bad=bad,
            bad_message=bad_message,
            grown=len(grown),
            gone=gone,
        )
    )


async def test_aiokafka_admin_client_manages_topics(bootstrap: str, topic: str) -> None:
    from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()

    async def create(name: str, retention_ms: str) -> tuple[int, str]:
        new_topic = NewTopic(name, PARTITIONS, FACTOR, topic_configs={"retention.ms": retention_ms})
        _, code, message = (await admin.create_topics([new_topic])).topic_errors[0]
        return code, message

    async def partitions(wanted: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for _ in range(3000):
            found = (await admin.describe_topics([topic]))[0]["partitions"]
            if len(found) == wanted:
                break
            await asyncio.sleep(0.02)
        return found

    try:
        assert (await create(topic, RETENTION_MS))[0] == 0
        described = await partitions(PARTITIONS)
        listed = topic in await admin.list_topics()
        answers = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        configs = {each[0]: each[1] for each in answers[0].resources[0][4]}
        again, (bad, bad_message) = await create(topic, RETENTION_MS), await create(f"{topic}-bad", "soon")
        await admin.create_partitions({topic: NewPartitions(GROWN)})
        grown = await partitions(GROWN)
        await admin.delete_topics([topic])
        gone = False
        for _ in range(3000):
            gone = gone or topic not in await admin.list_topics()
    finally:
        await admin.close()
    check(
        Seen(
            listed=listed,
            partitions=len(described),
            factor=len(described[0]["replicas"]),
            retention_ms=configs["retention.ms"],
            again=again[0],
            bad=bad,
            bad_message=bad_message,
            grown=len(grown),
            gone=gone,
        )
    )


def _retention(configs: Any) -> str:
    """kafka-python 3 returns configs by type, then resource, then key."""
    ((settings,),) = [list(named.values()) for named in configs.values() if named]
    value: str = settings["retention.ms"]["value"]
    return value
