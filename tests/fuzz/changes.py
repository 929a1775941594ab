"""Requests that are carried out, with as many changes as one may have: what costs most is not always refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from controller.kafka.codec import codec
from controller.kafka.messages import ApiKey, Message, access, configs
from controller.kafka.messages import topics as topics_messages

CHANGES = 4990
"""What each comes to is at most two records a change: Kafka takes 10,000 together."""


def largest_changes() -> Iterator[tuple[str, bytes]]:
    """Frames with what they do. They belong together: those after others change what is there by then."""
    for what, (key, version, make) in _CHANGES.items():
        yield what, codec.encode_request(int(key), version, 1, "fuzz", make(range(CHANGES)))


def _users(numbers: range) -> Message:
    return access.AlterUserScramCredentialsRequest(
        upsertions=tuple(
            access.ScramCredentialUpsertion(
                name=f"u{n}", mechanism=1, iterations=4096, salt=b"s" * 16, salted_password=b"p" * 32
            )
            for n in numbers
        )
    )


def _users_removed(numbers: range) -> Message:
    gone = tuple(access.ScramCredentialDeletion(name=f"u{n}", mechanism=1) for n in numbers)
    return access.AlterUserScramCredentialsRequest(deletions=gone)


def _quotas(numbers: range) -> Message:
    op = access.OpData(key="controller_mutation_rate", value=1e9)
    return access.AlterClientQuotasRequest(
        entries=tuple(
            access.EntryData(entity=(access.EntityData(entity_type="user", entity_name=f"u{n}"),), ops=(op,))
            for n in numbers
        )
    )


def _topics(numbers: range) -> Message:
    topics = (topics_messages.CreatableTopic(name=f"t{n}", num_partitions=1, replication_factor=1) for n in numbers)
    return topics_messages.CreateTopicsRequest(topics=tuple(topics), timeout_ms=60_000)


def _configs(numbers: range) -> Message:
    op = configs.AlterableConfig(name="retention.ms", config_operation=0, value="45000")
    resources = (configs.AlterConfigsResource(resource_type=2, resource_name=f"t{n}", configs=(op,)) for n in numbers)
    return configs.IncrementalAlterConfigsRequest(resources=tuple(resources))


def _partitions(numbers: range) -> Message:
    topics = (topics_messages.CreatePartitionsTopic(name=f"t{n}", count=3) for n in numbers)
    return topics_messages.CreatePartitionsRequest(topics=tuple(topics), timeout_ms=60_000)


def _described(numbers: range) -> Message:
    resources = (configs.DescribeConfigsResource(resource_type=2, resource_name=f"t{n}") for n in numbers)
    return configs.DescribeConfigsRequest(resources=tuple(resources))


def _deleted(numbers: range) -> Message:
    topics = (topics_messages.DeleteTopicState(name=f"t{n}") for n in numbers)
    return topics_messages.DeleteTopicsRequest(topics=tuple(topics), timeout_ms=60_000)


def _large_topic(_: range) -> Message:
    topic = topics_messages.CreatableTopic(name="large", num_partitions=9000, replication_factor=3)
    return topics_messages.CreateTopicsRequest(topics=(topic,), timeout_ms=60_000)


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
