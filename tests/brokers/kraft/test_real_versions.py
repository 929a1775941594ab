"""Brokers of several versions, with both ways to find the controller, and one that joins from a snapshot."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from controller.kafka.codec import codec
from controller.kafka.messages import ApiKey, Message, access
from tests.support.churn import QUIET
from tests.support.real_brokers import RealCluster, real_cluster, until
from tests.support.tools import KAFKA_SERVER
from tests.support.wire import Wire

GUARDED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
FEW_BYTES = {"metadata.log.max.record.bytes.between.snapshots": "3000", "metadata.max.retention.bytes": "1"}


@pytest.mark.parametrize(
    ("versions", "kraft_version", "level"),
    [
        (("3.7.2", "3.9.1", KAFKA_SERVER), 0, 19),
        (("4.1.1", "4.3.1", KAFKA_SERVER), 1, 27),
    ],
    ids=["controller.quorum.voters", "controller.quorum.bootstrap.servers"],
)
def test_brokers_of_several_versions_work_together(
    tmp_path: Path, versions: tuple[str, ...], kraft_version: int, level: int
) -> None:
    own = {"controller.quorum.bootstrap.servers": "CONTROLLER"} if kraft_version else {}
    settings = {"kraft.version": str(kraft_version), **FEW_BYTES, **GUARDED}
    with real_cluster(tmp_path, versions=versions, settings=settings, broker_settings={**own, **GUARDED}) as cluster:
        _use(cluster)
        _guard(cluster)
        _settle(cluster, level)
        joined = cluster.add(versions[-1], {**dict.fromkeys(own, cluster.address), **GUARDED})
        cluster.wait_live()
        until(lambda: _guarded(joined.port), 120, "entries, logins and quotas, of a snapshot")
        checkpoints = until(lambda: sorted(joined.metadata.glob("*.checkpoint")), 120, "a snapshot on the new broker")
        assert checkpoints[-1].stat().st_size > 1000, "it fetched one"
        assert not (joined.metadata / f"{0:020d}.log").exists(), "it did not need the log from its beginning"


def _use(cluster: RealCluster) -> None:
    """A topic, records in a transaction, a consumer group; then more topics, for one or two snapshots."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    admin.create_topics([NewTopic("mixed", 3, 3)], request_timeout=30)["mixed"].result(40)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "mixed", "acks": "all", **QUIET})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(30):
        producer.produce("mixed", struct.pack(">i", number), partition=number % 3)
    producer.commit_transaction(60)
    reading = {"group.id": "readers", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **reading, **QUIET})
    consumer.subscribe(["mixed"])
    read: set[bytes | str | None] = set()

    def all_read() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            read.add(message.value())
        return len(read) == 30

    until(all_read, 60, "all records read by the group")
    consumer.commit(asynchronous=False)
    consumer.close()
    for batch in range(4):
        names = [f"more-{batch}-{number}" for number in range(5)]
        for future in admin.create_topics([NewTopic(name, 3, 3) for name in names], request_timeout=30).values():
            future.result(40)


def _guard(cluster: RealCluster) -> None:
    """An ACL, a SCRAM credential and a quota, sent to one broker: brokers of all versions know them."""
    acl = access.AclCreation(
        resource_type=2, resource_name="mixed", principal="User:ann", host="*", operation=3, permission_type=3
    )
    login = access.ScramCredentialUpsertion(
        name="ann", mechanism=2, iterations=4096, salt=b"salt", salted_password=b"p" * 64
    )
    quota = access.EntryData(
        entity=(access.EntityData(entity_type="user", entity_name="ann"),),
        ops=(access.OpData(key="producer_byte_rate", value=5e6),),
    )
    first = cluster.brokers[1].port
    granted = _call(first, ApiKey.CREATE_ACLS, 1, access.CreateAclsRequest(creations=(acl,)))
    wanted = access.AlterUserScramCredentialsRequest(upsertions=(login,))
    known = _call(first, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, wanted)
    bounded = _call(first, ApiKey.ALTER_CLIENT_QUOTAS, 1, access.AlterClientQuotasRequest(entries=(quota,)))
    assert [each.error_code for each in (*granted.results, *known.results, *bounded.entries)] == [0, 0, 0]
    for broker in cluster.brokers.values():
        until(lambda: _guarded(broker.port), 30, f"broker {broker.broker_id} knows them")  # noqa: B023


def _guarded(port: int) -> bool:
    """True if a broker knows the ACL, the credential and the quota."""
    try:
        return _access_of(port) == ([("mixed", ["User:ann"])], [("ann", [2])], [[("producer_byte_rate", 5e6)]])
    except ConnectionError:
        return False  # it is live before it opens its doors


def _access_of(port: int) -> tuple[list[Any], list[Any], list[Any]]:
    every = access.DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
    acls = _call(port, ApiKey.DESCRIBE_ACLS, 1, every).resources
    logins = _call(port, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, access.DescribeUserScramCredentialsRequest())
    strictly = access.DescribeClientQuotasRequest(components=(), strict=False)
    quotas = _call(port, ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, strictly).entries
    return (
        [(each.resource_name, [acl.principal for acl in each.acls]) for each in acls],
        [(each.user, [one.mechanism for one in each.credential_infos]) for each in logins.results],
        [[(value.key, value.value) for value in each.values] for each in quotas],
    )


def _call(port: int, key: ApiKey, version: int, message: Message) -> Any:
    with Wire(f"127.0.0.1:{port}") as wire:
        wire.send_bytes(codec.encode_request(key, version, 1, "test", message))
        return codec.decode_response(key, version, wire.receive_frame())[1]


def _settle(cluster: RealCluster, level: int) -> None:
    """Wait for the shared features and for snapshots."""
    assert cluster.controller is not None
    controller = cluster.controller
    if level > 19:
        until(lambda: f'"metadata.version":{level}' in controller.output, 120, f"metadata.version {level}")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})

    def snapshots() -> bool:
        """Two snapshots, so that the log no longer begins at 0."""
        number = controller.output.count("metadata snapshot")
        name = f"for-snapshot-{number}-{len(controller.output)}"
        admin.create_topics([NewTopic(name, 3, 3)], request_timeout=30)[name].result(40)
        return number >= 3

    until(snapshots, 60, "three snapshots")
