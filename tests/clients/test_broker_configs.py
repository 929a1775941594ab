"""What consoles request first: the configs of brokers, read and changed by real clients."""

from __future__ import annotations

import time
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

KEY = "log.cleaner.backoff.ms"
"""Nobody else's tests depend on it."""


def described(admin: AdminClient, name: str) -> dict[str, Any]:
    (future,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, name)]).values()
    found: dict[str, Any] = future.result(60)
    return found


def altered(admin: AdminClient, name: str, key: str, value: str | None) -> None:
    kind = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(key, value or "", incremental_operation=kind)
    resource = ConfigResource(ResourceType.BROKER, name, incremental_configs=[entry])
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(60)


@pytest.mark.parametrize("bootstrap", ["kafka", "topicwright", "gateway"], indirect=True)
def test_confluent_reads_and_changes_them(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    of_one = described(admin, "1")
    assert len(of_one) >= 340
    assert (of_one["num.partitions"].value, of_one["num.partitions"].is_read_only) == ("2", True)
    assert of_one["num.partitions"].source == ConfigSource.STATIC_BROKER_CONFIG.value
    with pytest.raises(KafkaException, match="Cannot update these configs dynamically"):
        altered(admin, "1", "num.partitions", "3")
    altered(admin, "1", KEY, "14000")
    until(lambda: described(admin, "1")[KEY].source == ConfigSource.DYNAMIC_BROKER_CONFIG.value)
    assert described(admin, "1")[KEY].value == "14000"
    altered(admin, "1", KEY, None)
    until(lambda: described(admin, "1")[KEY].source == ConfigSource.DEFAULT_CONFIG.value)


def until(seen: Any) -> None:
    """A real Kafka answers before its broker goes by it."""
    deadline = time.monotonic() + 60
    while not seen():
        assert time.monotonic() < deadline, "the broker never went by it"
        time.sleep(0.05)
