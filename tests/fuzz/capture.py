"""Rewrites captures.txt with frames that librdkafka and kafka-python send: `python -m tests.fuzz.capture`."""

import contextlib
import importlib
import warnings
from typing import Any

from confluent_kafka import KafkaException, TopicCollection

from controller.kafka.server.protocol import ServerProtocol
from tests.fuzz.frames import CAPTURES
from tests.fuzz.target import target

WITHIN_S = 10
librdkafka: Any = importlib.import_module("confluent_kafka.admin")


def main() -> None:
    """Listen, run the clients, and keep one frame of each API, version and length."""
    seen: dict[tuple[bytes, int], bytes] = {}
    read = ServerProtocol._exchange

    def noted(protocol: ServerProtocol, frame: bytes) -> Any:
        seen.setdefault((frame[:4], len(frame) // 16), frame)
        return read(protocol, frame)

    ServerProtocol._exchange = noted  # type: ignore[assignment,method-assign]
    with target() as served:
        _by_librdkafka(f"127.0.0.1:{served.port}")
        _by_kafka_python(f"127.0.0.1:{served.port}")
    CAPTURES.write_text("".join(f"{frame.hex()}\n" for _, frame in sorted(seen.items())), encoding="ascii")
    print(f"{len(seen)} frames")


def _by_librdkafka(bootstrap: str) -> None:
    client = librdkafka.AdminClient({"bootstrap.servers": bootstrap})
    topics = [librdkafka.NewTopic("captured", 3, 1, config={"cleanup.policy": "compact"})]
    topic = librdkafka.ConfigResource(librdkafka.ConfigResource.Type.TOPIC, "captured")
    entry = librdkafka.ConfigEntry("retention.ms", "1000", incremental_operation=librdkafka.AlterConfigOpType.SET)
    changed = librdkafka.ConfigResource(librdkafka.ConfigResource.Type.TOPIC, "captured", incremental_configs=[entry])
    acl = librdkafka.AclBindingFilter(
        librdkafka.ResourceType.ANY, None, librdkafka.ResourcePatternType.ANY, None, None,
        librdkafka.AclOperation.ANY, librdkafka.AclPermissionType.ANY,
    )  # fmt: skip
    info = librdkafka.ScramCredentialInfo(librdkafka.ScramMechanism.SCRAM_SHA_256, 4096)
    upsert = librdkafka.UserScramCredentialUpsertion("ann", info, b"secret")
    for act in (
        lambda: client.create_topics(topics),
        lambda: client.list_topics(timeout=WITHIN_S),
        lambda: client.list_topics("captured", timeout=WITHIN_S),
        lambda: client.create_partitions([librdkafka.NewPartitions("captured", 5)]),
        lambda: client.describe_configs([topic]),
        lambda: client.incremental_alter_configs([changed]),
        lambda: client.describe_topics(TopicCollection(["captured"])),
        client.describe_cluster,
        lambda: client.describe_acls(acl),
        lambda: client.delete_acls([acl]),
        client.describe_user_scram_credentials,
        lambda: client.alter_user_scram_credentials([upsert]),
        lambda: client.delete_topics(["captured"]),
    ):
        _done(act())


def _done(result: Any) -> None:
    futures = result.values() if isinstance(result, dict) else [result]
    for future in futures:
        if hasattr(future, "result"):
            with contextlib.suppress(KafkaException):
                future.result(WITHIN_S)


def _by_kafka_python(bootstrap: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from kafka import KafkaProducer
        from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic

        client = KafkaAdminClient(bootstrap_servers=bootstrap)
        for act in (
            lambda: client.create_topics([NewTopic(name="python", num_partitions=2, replication_factor=1)]),
            client.list_topics,
            client.describe_cluster,
            lambda: client.describe_topics(["python"]),
            lambda: client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "python")]),
            lambda: client.delete_topics(["python"]),
        ):
            with contextlib.suppress(Exception):  # a client may lack an API
                act()
        client.close()
        producer = KafkaProducer(bootstrap_servers=bootstrap, max_block_ms=3000)
        with contextlib.suppress(Exception):
            producer.send("produced", b"value").get(3)
        producer.close(1)


if __name__ == "__main__":
    main()
