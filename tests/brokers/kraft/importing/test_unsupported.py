"""Unsupported records are named, everything else of their batch is imported, and following never stops."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from controller.brokers.kraft.log import metadata_records as kinds
from controller.brokers.kraft.log.metadata_records import MetadataRecord
from events.catalog import TopicConfigsChanged
from tests.brokers.kraft.importing.following import Follower
from tests.brokers.kraft.importing.story import ENTRY, ORDERS, PAY, batches, change, config, level, partition

UNSUPPORTED: dict[str, tuple[tuple[MetadataRecord, ...], str]] = {
    "a newer record": (
        (kinds.UnknownRecord(value=b"\x01\x78\x02\x00"),),
        "a record of type 120, version 2 at offset 37",
    ),
    "no record": ((kinds.UnknownRecord(value=b""),), "an invalid record at offset 37"),
    "a newer metadata.version": (
        (level("metadata.version", 99),),
        "feature metadata.version has level 99, which is not supported; allowed: 17 to 33",
    ),
    "an older metadata.version": ((level("metadata.version", 16),), "metadata.version is 16; it must be 17 (3.7)"),
    "a new feature": ((level("new.version", 1),), "feature new.version has level 1, which is unknown"),
    "a migration": ((kinds.ZkMigrationStateRecord(zk_migration_state=2),), "ZkMigrationStateRecord at offset 37"),
    "a login of a new kind": (
        (kinds.UserScramCredentialRecord(name="eve", mechanism=9),),
        "a SCRAM credential of user 'eve' with mechanism 9",
    ),
    "an entry twice": ((ENTRY, replace(ENTRY, id=b"\x55" * 16)), "an ACL with two ids"),
    "no such entry": (
        (kinds.RemoveAccessControlEntryRecord(id=b"\x55" * 16),),
        f"removal of the unknown ACL {'55' * 16}",
    ),
    "a name that collides": (
        (kinds.TopicRecord(name="pay.eu", topic_id=PAY), partition(PAY, 0, 2)),
        "topic 'pay.eu' is created although 'pay_eu' exists",
    ),
    "an id that is taken": ((kinds.TopicRecord(name="new", topic_id=ORDERS),), "topic 'new' has the id of 'orders'"),
    "no partitions": ((kinds.TopicRecord(name="new", topic_id=b"\x66" * 16),), "topic 'new' has no partitions"),
    "gaps in new partitions": (
        (kinds.TopicRecord(name="new", topic_id=b"\x66" * 16), partition(b"\x66" * 16, 1, 2)),
        "topic 'new' has gaps in them",
    ),
    "gaps in more partitions": ((partition(ORDERS, 9, 2),), "the partitions of topic 'orders' have gaps"),
    "configs of nothing": ((config(2, "nothing", "retention.ms", "1"),), "configs of the unknown topic 'nothing'"),
    "a change of no topic": (
        (change(b"\x66" * 16, 0, isr=(2,)),),
        "PartitionChangeRecord at offset 37: PartitionChangeRecord",
    ),
    "a change of no partition": ((change(ORDERS, 7, isr=(2,)),), "PartitionChangeRecord at offset 37: "),
    "an end of no topic": ((kinds.RemoveTopicRecord(topic_id=b"\x66" * 16),), "RemoveTopicRecord at offset 37: "),
    "an old epoch": (
        (kinds.UnregisterBrokerRecord(broker_id=1, broker_epoch=3),),
        "UnregisterBrokerRecord at offset 37: ",
    ),
    "a transaction that is not complete": ((kinds.BeginTransactionRecord(),), "BeginTransactionRecord at offset"),
}


def follower() -> Follower:
    one = Follower()
    for batch in batches():
        one.take(*batch)
    assert one.unsupported is None
    assert one.offset == 37
    return one


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_an_unsupported_record_is_named_and_everything_else_is_imported(name: str) -> None:
    records, why = UNSUPPORTED[name]
    one = follower()
    events = one.take(*records, config(2, "orders", "retention.ms", "5"))
    assert one.unsupported is not None
    assert one.unsupported.startswith(why)
    assert any(isinstance(event, TopicConfigsChanged) for event in events), "the rest of the batch is imported"
    assert one.state.cluster.brokers


def test_the_name_of_an_unsupported_record_is_bounded() -> None:
    one = follower()
    one.take(config(2, "x" * 32_000, "retention.ms", "1"))
    assert one.unsupported is not None
    assert len(one.unsupported) <= 300
