"""Requests that are carried out, with as many changes as one may have: what costs most is not always refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from controller.kafka.codec import codec
from controller.kafka.messages import ApiKey, Message
from controller.kafka.messages import alter_client_quotas as quotas
from controller.kafka.messages import alter_user_scram_credentials as scram
from controller.kafka.messages import create_partitions as partitions
from controller.kafka.messages import create_topics as creates
from controller.kafka.messages import delete_topics as deletes
from controller.kafka.messages import describe_configs as describe
from controller.kafka.messages import incremental_alter_configs as configs

CHANGES = 4990
"""What each comes to is at most two records a change: Kafka takes 10,000 together."""


def largest_changes() -> Iterator[tuple[str, bytes]]:
    """Frames with what they do. They belong together: those after others change what is there by then."""
    for what, (key, version, make) in _CHANGES.items():
        yield what, codec.encode_request(int(key), version, 1, "fuzz", make(range(CHANGES)))


def _users(numbers: range) -> Message:
    return scram.AlterUserScramCredentialsRequest(
        upsertions=tuple(
            scram.ScramCredentialUpsertion(
                name=f"u{n}", mechanism=1, iterations=4096, salt=b"s" * 16, salted_password=b"p" * 32
            )
            for n in numbers
        )
    )


def _users_removed(numbers: range) -> Message:
    gone = tuple(scram.ScramCredentialDeletion(name=f"u{n}", mechanism=1) for n in numbers)
    return scram.AlterUserScramCredentialsRequest(deletions=gone)


def _quotas(numbers: range) -> Message:
    op = quotas.OpData(key="controller_mutation_rate", value=1e9)
    return quotas.AlterClientQuotasRequest(
        entries=tuple(
            quotas.EntryData(entity=(quotas.EntityData(entity_type="user", entity_name=f"u{n}"),), ops=(op,))
            for n in numbers
        )
    )


def _topics(numbers: range) -> Message:
    topics = (creates.CreatableTopic(name=f"t{n}", num_partitions=1, replication_factor=1) for n in numbers)
    return creates.CreateTopicsRequest(topics=tuple(topics), timeout_ms=60_000)


def _configs(numbers: range) -> Message:
    op = configs.AlterableConfig(name="retention.ms", config_operation=0, value="45000")
    resources = (configs.AlterConfigsResource(resource_type=2, resource_name=f"t{n}", configs=(op,)) for n in numbers)
    return configs.IncrementalAlterConfigsRequest(resources=tuple(resources))


def _partitions(numbers: range) -> Message:
    topics = (partitions.CreatePartitionsTopic(name=f"t{n}", count=3) for n in numbers)
    return partitions.CreatePartitionsRequest(topics=tuple(topics), timeout_ms=60_000)


def _described(numbers: range) -> Message:
    resources = (describe.DescribeConfigsResource(resource_type=2, resource_name=f"t{n}") for n in numbers)
    return describe.DescribeConfigsRequest(resources=tuple(resources))


def _deleted(numbers: range) -> Message:
    topics = (deletes.DeleteTopicState(name=f"t{n}") for n in numbers)
    return deletes.DeleteTopicsRequest(topics=tuple(topics), timeout_ms=60_000)


def _large_topic(_: range) -> Message:
    topic = creates.CreatableTopic(name="large", num_partitions=9000, replication_factor=3)
    return creates.CreateTopicsRequest(topics=(topic,), timeout_ms=60_000)


_CHANGES: dict[str, tuple[ApiKey, int, Callable[[range], Message]]] = {
    "users are set": (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, _users),
    "quotas are set": (ApiKey.ALTER_CLIENT_QUOTAS, 1, _quotas),
    "topics are created": (ApiKey.CREATE_TOPICS, 7, _topics),
    "configs are set": (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, _configs),
    "partitions are added": (ApiKey.CREATE_PARTITIONS, 3, _partitions),
    "configs are described": (ApiKey.DESCRIBE_CONFIGS, 4, _described),
    "topics are deleted": (ApiKey.DELETE_TOPICS, 6, _deleted),
    "a topic of 9,000 partitions is created": (ApiKey.CREATE_TOPICS, 7, _large_topic),
    "users are removed": (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, _users_removed),
}
