"""Records that become no events: those that the machine need not know, and those that this release does not."""

from __future__ import annotations

from typing import Final

from controller.brokers.kraft.log import metadata_records as kinds
from controller.brokers.kraft.log.metadata_records import MetadataRecord, UnknownRecord
from controller.kafka.codec.primitives import read_uvarint
from controller.kafka.codec.reader import READ_FAILURES

_NOT_THE_MACHINES: Final = (
    kinds.NoOpRecord,
    kinds.RegisterControllerRecord,
    kinds.UnregisterControllerRecord,
    kinds.DelegationTokenRecord,
    kinds.RemoveDelegationTokenRecord,
)
"""What the machine knows nothing of: the metadata log alone keeps it, and snapshots of that."""
_MIGRATING: Final = (1, 2)
"""States of a migration from ZooKeeper that is not over (KIP-866)."""


def is_passed_over(record: MetadataRecord) -> bool:
    """Whether a record says nothing that decisions depend on."""
    if isinstance(record, kinds.ZkMigrationStateRecord):
        return record.zk_migration_state not in _MIGRATING
    return isinstance(record, _NOT_THE_MACHINES)


def record_in_words(record: MetadataRecord) -> str:
    """Which record it is."""
    if not isinstance(record, UnknownRecord):
        return type(record).__name__
    try:
        _, at = read_uvarint(record.value, 0)
        key, at = read_uvarint(record.value, at)
        version, _ = read_uvarint(record.value, at)
    except READ_FAILURES:
        return "a record that is none of Kafka's"
    return f"a record of type {key}, version {version}"
