"""The configs of groups, read and changed by librdkafka's admin client: a real Kafka and Topicwright answer alike."""

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
    ResourceType,
)

KEY = "consumer.session.timeout.ms"
OF_GROUP, DEFAULT = 8, 5
"""Kafka's numbers of where a config comes from."""


def described(admin: AdminClient, group: str) -> dict[str, Any]:
    (future,) = admin.describe_configs([ConfigResource(ResourceType.GROUP, group)]).values()
    found: dict[str, Any] = future.result(60)
    return found


def altered(admin: AdminClient, group: str, value: str | None) -> None:
    kind = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(KEY, value or "", incremental_operation=kind)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(60)


def seen(admin: AdminClient, value: str, source: int) -> None:
    """A real Kafka answers before its broker goes by it."""
    deadline = time.monotonic() + 60
    while ((one := described(admin, "readers")[KEY]).value, one.source) != (value, source):
        assert time.monotonic() < deadline, f"{one.value} {one.source}"
        time.sleep(0.05)


@pytest.mark.parametrize("bootstrap", ["kafka", "topicwright", "gateway"], indirect=True)
def test_librdkafka_reads_and_changes_them(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    assert {KEY, "share.auto.offset.reset", "streams.num.standby.replicas"} <= described(admin, "readers").keys()
    seen(admin, "45000", DEFAULT)
    altered(admin, "readers", "50000")
    seen(admin, "50000", OF_GROUP)
    assert described(admin, "others")[KEY].value == "45000"
    for bad in ("x", "1000"):
        with pytest.raises(KafkaException) as refused:
            altered(admin, "readers", bad)
        assert refused.value.args[0].name() == "INVALID_CONFIG"
    altered(admin, "readers", None)
    seen(admin, "45000", DEFAULT)
