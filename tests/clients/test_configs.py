"""Configs of brokers, which consoles request first, and of groups, read and changed by librdkafka's admin client."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it does not say that it exports these
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from tests.support.real_brokers import until

CLEANER = "log.cleaner.backoff.ms"
"""Nobody else's tests depend on it."""
SESSION = "consumer.session.timeout.ms"
OF_GROUP, DEFAULT = 8, 5
"""Kafka's numbers of where a config comes from."""


def described(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, Any]:
    (future,) = admin.describe_configs([ConfigResource(kind, name)]).values()
    found: dict[str, Any] = future.result(60)
    return found


def altered(admin: AdminClient, kind: ResourceType, name: str, key: str, value: str | None) -> None:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(key, value or "", incremental_operation=operation)
    (future,) = admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=[entry])]).values()
    future.result(60)


def until_is(admin: AdminClient, kind: ResourceType, name: str, key: str, value: str, source: int) -> None:
    """A real Kafka answers before its broker goes by it."""

    def has_it() -> bool:
        one = described(admin, kind, name)[key]
        return (one.value, one.source) == (value, source)

    until(has_it, 120, f"{key}={value} of {name}, from {source}")


@pytest.mark.parametrize("bootstrap", ["kafka", "topicwright", "gateway"], indirect=True)
def test_configs_of_brokers(bootstrap: str) -> None:
    admin, kind = AdminClient({"bootstrap.servers": bootstrap}), ResourceType.BROKER
    of_one = described(admin, kind, "1")
    assert len(of_one) >= 340
    assert (of_one["num.partitions"].value, of_one["num.partitions"].is_read_only) == ("2", True)
    assert of_one["num.partitions"].source == ConfigSource.STATIC_BROKER_CONFIG.value
    with pytest.raises(KafkaException, match="Cannot update these configs dynamically"):
        altered(admin, kind, "1", "num.partitions", "3")
    altered(admin, kind, "1", CLEANER, "14000")
    until_is(admin, kind, "1", CLEANER, "14000", ConfigSource.DYNAMIC_BROKER_CONFIG.value)
    altered(admin, kind, "1", CLEANER, None)
    until_is(admin, kind, "1", CLEANER, "15000", ConfigSource.DEFAULT_CONFIG.value)


@pytest.mark.parametrize("bootstrap", ["kafka", "topicwright", "gateway"], indirect=True)
def test_configs_of_groups(bootstrap: str) -> None:
    admin, kind = AdminClient({"bootstrap.servers": bootstrap}), ResourceType.GROUP
    assert {SESSION, "share.auto.offset.reset", "streams.num.standby.replicas"} <= described(
        admin, kind, "readers"
    ).keys()
    until_is(admin, kind, "readers", SESSION, "45000", DEFAULT)
    altered(admin, kind, "readers", SESSION, "50000")
    until_is(admin, kind, "readers", SESSION, "50000", OF_GROUP)
    assert described(admin, kind, "others")[SESSION].value == "45000"
    for bad in ("x", "1000"):
        with pytest.raises(KafkaException) as refused:
            altered(admin, kind, "readers", SESSION, bad)
        assert refused.value.args[0].name() == "INVALID_CONFIG"
    altered(admin, kind, "readers", SESSION, None)
    until_is(admin, kind, "readers", SESSION, "45000", DEFAULT)
