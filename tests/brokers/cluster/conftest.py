"""A Kafka cluster of three brokers for all tests of this folder. Each test uses its own topic names and undoes what it
does to brokers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.reference_kafka import ReferenceKafka, reference_kafka

TRANSACTIONS: dict[str, Any] = {
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
    "transaction_state_log_num_partitions": "1",
}


@pytest.fixture(scope="package")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceKafka]:
    """Three brokers, the first also the controller. Their policy refuses names that begin with `refused`."""
    folder = tmp_path_factory.mktemp("cluster") / "kafka"
    with reference_kafka(folder, broker_session_timeout_ms="6000", **TRANSACTIONS) as running:
        yield running


@pytest.fixture
def name() -> str:
    """A unique topic name."""
    return f"cluster-{uuid.uuid4().hex[:12]}"
