"""Limits on the changes of one request and on the size of one response. Long work yields to the event loop."""

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from controller.access.authorizer import StandardAuthorizer
from controller.apis import access as access_api
from controller.apis import limits
from controller.apis.limits import CHANGES
from controller.apis.metadata import CREATED_AT_ONCE_MAX
from controller.kafka.handling import Disconnect
from controller.kafka.messages import ApiKey, Message, access, configs
from controller.kafka.messages import topics as topics_messages
from controller.kafka.messages.clients import PartitionProduceData, ProduceRequest, TopicProduceData
from controller.kafka.messages.topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from controller.machine.access.acls import Acls
from controller.machine.errors import ErrorCode
from controller.machine.validation import RECORDS_PER_REQUEST_MAX
from events.catalog import CreateRejected
from tests.apis.rig import Rig, read_back, rig

POLICY_VIOLATION = 44
BATCH = "Unable to perform excessively large batch operation."
PARTITIONS = "Excessively large number of partitions per request."
MORE_PARTITIONS = "Excessively large number of additional partitions per request."
MANY = RECORDS_PER_REQUEST_MAX + 1


def topics(count: int, **more: Any) -> tuple[CreatableTopic, ...]:
    """Topics, by default of one partition and one replica."""
    each = {"num_partitions": 1, "replication_factor": 1, **more}
    return tuple(CreatableTopic(name=f"t{number}", **each) for number in range(count))


def asked(names: Iterable[str]) -> tuple[topics_messages.MetadataRequestTopic, ...]:
    return tuple(topics_messages.MetadataRequestTopic(name=name) for name in names)


def resources(kind: int, names: Iterable[str]) -> tuple[configs.AlterConfigsResource, ...]:
    """Resources of an AlterConfigs request, without a config."""
    return tuple(configs.AlterConfigsResource(resource_type=kind, resource_name=name) for name in names)


def described(names: Iterable[str]) -> tuple[configs.DescribeConfigsResource, ...]:
    return tuple(configs.DescribeConfigsResource(resource_type=2, resource_name=name) for name in names)


CONFIG = topics_messages.CreatableTopicConfig(name="retention.ms", value="1")
NUMBERS = tuple(map(str, range(MANY)))
GROWN = tuple(topics_messages.CreatePartitionsTopic(name=name, count=5100) for name in ("there", "there.too"))
OF_ONE = configs.AlterConfigsResource(
    resource_type=2, resource_name="t", configs=(configs.AlterableConfig(name="a"),) * MANY
)
ACL = access.AclCreation(resource_type=2, operation=3, permission_type=3, resource_pattern_type=3)
EVERY_ACL = access.DeleteAclsFilter(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
QUOTAS = access.EntryData(ops=(access.OpData(key="k"),) * MANY)
SCRAM = tuple(access.ScramCredentialDeletion(name=number, mechanism=1) for number in NUMBERS)
TOO_LARGE: list[tuple[ApiKey, int, Message, str]] = [
    (ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics(5001)), BATCH),
    (ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics(2, configs=(CONFIG,) * 5000)), BATCH),
    (ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics(2, num_partitions=5001)), PARTITIONS),
    (ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics(5001, num_partitions=-1)), PARTITIONS),
    (ApiKey.DELETE_TOPICS, 5, topics_messages.DeleteTopicsRequest(topic_names=NUMBERS), BATCH),
    (ApiKey.CREATE_PARTITIONS, 3, topics_messages.CreatePartitionsRequest(topics=GROWN), MORE_PARTITIONS),
    (ApiKey.ALTER_CONFIGS, 2, configs.AlterConfigsRequest(resources=resources(2, NUMBERS)), BATCH),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, configs.IncrementalAlterConfigsRequest(resources=(OF_ONE,)), BATCH),
    (ApiKey.CREATE_ACLS, 3, access.CreateAclsRequest(creations=(ACL,) * MANY), BATCH),
    (ApiKey.DELETE_ACLS, 3, access.DeleteAclsRequest(filters=(EVERY_ACL,) * MANY), BATCH),
    (ApiKey.ALTER_CLIENT_QUOTAS, 1, access.AlterClientQuotasRequest(entries=(QUOTAS,)), BATCH),
    (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, access.AlterUserScramCredentialsRequest(deletions=SCRAM), BATCH),
]


@pytest.mark.parametrize(
    ("key", "version", "request_", "message"), TOO_LARGE, ids=lambda one: one.name if isinstance(one, ApiKey) else None
)
async def test_request_beyond_kafkas_limits_is_rejected_as_a_whole(
    key: ApiKey, version: int, request_: Message, message: str
) -> None:
    async with rig({"num.partitions": "3"}) as served:
        await served.create(*(each.name for each in GROWN), num_partitions=99)
        before = served.log.durable_offset
        answer = await served.call(key, version, request_)
        assert served.log.durable_offset == before, "a rejected request writes no event"
        read = read_back(key, version, answer)
        parts = next(value for name in read.__struct_fields__ if isinstance(value := getattr(read, name), tuple))
        assert {(each.error_code, each.error_message) for each in parts} == {(POLICY_VIOLATION, message)}


@pytest.mark.parametrize(("pattern_type", "code"), [(1, POLICY_VIOLATION), (3, 0)], ids=["wide", "exact"])
async def test_scanned_acls_are_limited(pattern_type: int, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_api, "ACLS_SCANNED_MAX", 1000)
    async with rig(authorizer=StandardAuthorizer(Acls, super_users=["User:ANONYMOUS"])) as served:
        entry = msgspec.structs.replace(ACL, principal="User:a", host="*")
        created = tuple(msgspec.structs.replace(entry, resource_name=f"t{number}") for number in range(100))
        await served.call(ApiKey.CREATE_ACLS, 3, access.CreateAclsRequest(creations=created))
        filters = tuple(
            access.DeleteAclsFilter(
                resource_type_filter=2,
                resource_name_filter=f"t{number}",
                pattern_type_filter=pattern_type,
                operation=1,
                permission_type=1,
            )
            for number in range(11)
        )
        answer = await served.call(ApiKey.DELETE_ACLS, 3, access.DeleteAclsRequest(filters=filters))
        assert {each.error_code for each in answer.filter_results} == {code}
        assert {len(each.matching_acls) for each in answer.filter_results} == {0 if code else 1}


def test_every_mutating_api_has_a_limit() -> None:
    assert {key for key, *_ in TOO_LARGE} == CHANGES


async def test_request_at_kafkas_limit_is_accepted(served: Rig) -> None:
    names = [f"t{number}" for number in range(4000)]
    assert {topic.error_code for topic in await served.create(*names)} == {0}
    wanted = tuple(topics_messages.CreatePartitionsTopic(name=name, count=3) for name in names)
    grown = await served.call(ApiKey.CREATE_PARTITIONS, 3, topics_messages.CreatePartitionsRequest(topics=wanted))
    assert {topic.error_code for topic in grown.results} == {0}


async def test_describe_configs_merges_equal_resources(served: Rig) -> None:
    await served.create("t0")
    request = configs.DescribeConfigsRequest(resources=described(["t0"] * 50_000))
    answer = await served.call(ApiKey.DESCRIBE_CONFIGS, 4, request)
    assert len(answer.results) == 1
    assert len(answer.results[0].configs) > 20


async def test_describe_configs_response_size_is_limited(served: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RESPONSE_BYTES_MAX", 20_000)
    names = [f"t{number}" for number in range(100)]
    await served.create(*names)
    request = configs.DescribeConfigsRequest(resources=described(names))
    answer = await served.call(ApiKey.DESCRIBE_CONFIGS, 4, request)
    results = read_back(ApiKey.DESCRIBE_CONFIGS, 4, answer).results
    assert [each.resource_name for each in results] == names
    count = sum(not each.error_code for each in results)
    assert 0 < count < 30
    assert all("describe fewer resources" in each.error_message for each in results[count:])


async def loop_iterations_during(served: Rig, key: ApiKey, version: int, request: Message) -> int:
    """Counts the loop iterations of another task during a request."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    await served.call(key, version, request)
    beside.cancel()
    return turns


NAMES = tuple(f"n{number}" for number in range(20_000))
PAGES = tuple(topics_messages.TopicRequest(name=name) for name in NAMES)
USERS = tuple(access.UserName(name=name) for name in NAMES)
BROKERS = resources(4, map(str, range(10, RECORDS_PER_REQUEST_MAX)))
LONG: list[tuple[ApiKey, int, Message]] = [
    (ApiKey.METADATA, 12, topics_messages.MetadataRequest(topics=asked(NAMES), allow_auto_topic_creation=False)),
    (ApiKey.DESCRIBE_CONFIGS, 4, configs.DescribeConfigsRequest(resources=described(NAMES))),
    (ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics_messages.DescribeTopicPartitionsRequest(topics=PAGES)),
    (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, access.DescribeUserScramCredentialsRequest(users=USERS)),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, configs.IncrementalAlterConfigsRequest(resources=BROKERS)),
]


@pytest.mark.parametrize(("key", "version", "request_"), LONG, ids=[key.name for key, *_ in LONG])
async def test_long_response_does_not_block_the_loop(served: Rig, key: ApiKey, version: int, request_: Message) -> None:
    assert await loop_iterations_during(served, key, version, request_) > 30


async def test_describe_many_quotas_does_not_block_the_loop(served: Rig) -> None:
    rate = (access.OpData(key="producer_byte_rate", value=1.0),)
    users = [access.EntityData(entity_type="user", entity_name=f"user-{number}") for number in range(5000)]
    entries = tuple(access.EntryData(entity=(user,), ops=rate) for user in users)
    request = access.AlterClientQuotasRequest(entries=entries)
    await served.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, request)
    everything = access.DescribeClientQuotasRequest()
    assert await loop_iterations_during(served, ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, everything) >= 10
    answer = await served.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, everything)
    read = read_back(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, answer)
    assert [each.entity[0].entity_name for each in read.entries] == sorted(str(user.entity_name) for user in users)


async def test_describe_many_acls_does_not_block_the_loop() -> None:
    async with rig(authorizer=StandardAuthorizer(Acls, super_users=["User:ANONYMOUS"])) as served:
        entry = msgspec.structs.replace(ACL, principal="User:a", host="*")
        names = [f"t{number:04}" for number in range(5000)]
        created = tuple(msgspec.structs.replace(entry, resource_name=name) for name in names)
        await served.call(ApiKey.CREATE_ACLS, 3, access.CreateAclsRequest(creations=created))
        everything = access.DescribeAclsRequest(
            resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
        )
        assert await loop_iterations_during(served, ApiKey.DESCRIBE_ACLS, 3, everything) >= 10
        answer = await served.call(ApiKey.DESCRIBE_ACLS, 3, everything)
        read = read_back(ApiKey.DESCRIBE_ACLS, 3, answer)
        assert [(each.resource_name, len(each.acls)) for each in read.resources] == [(name, 1) for name in names]


async def test_describe_topic_partitions_cursor_beyond_the_last_partition(served: Rig) -> None:
    await served.create("t0", "t1", "t2", num_partitions=9)

    async def page(index: int) -> list[tuple[str, int]]:
        cursor = topics_messages.Cursor(topic_name="t0", partition_index=index)
        request = topics_messages.DescribeTopicPartitionsRequest(response_partition_limit=10, cursor=cursor)
        answer = await served.call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request)
        return [(each.name, len(each.partitions)) for each in answer.topics]

    assert await page(8) == [("t0", 1), ("t1", 9)]
    assert await page(2**31 - 1) == [("t0", 0), ("t1", 9), ("t2", 1)]
    assert await page(-1) == [], "a negative index is rejected, as in Kafka"


async def test_metadata_of_a_repeated_topic_is_returned_once(served: Rig) -> None:
    await served.create("t0")
    wanted = asked(f"t{number % 2}" for number in range(1001))
    request = topics_messages.MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    answer = await served.call(ApiKey.METADATA, 12, request)
    shown = {topic.name: topic.error_code for topic in read_back(ApiKey.METADATA, 12, answer).topics}
    assert shown == {"t0": 0, "t1": 3}
    assert len(answer.topics) == 2


async def test_auto_creations_of_one_request_are_limited() -> None:
    async with rig({"auto.create.topics.enable": "true"}) as served:
        wanted = asked(f"auto{number}" for number in range(CREATED_AT_ONCE_MAX + 500))
        await served.call(ApiKey.METADATA, 12, topics_messages.MetadataRequest(topics=wanted))
        await served.controller.decided()
        assert served.controller.store.durable_counts.topics == CREATED_AT_ONCE_MAX
        await served.call(ApiKey.METADATA, 12, topics_messages.MetadataRequest(topics=wanted))
        await served.controller.decided()
        assert served.controller.store.durable_counts.topics == len(wanted)


async def test_produce_of_too_many_partitions_disconnects(served: Rig) -> None:
    data = tuple(PartitionProduceData(index=number) for number in range(10_000))
    request = ProduceRequest(acks=1, topic_data=(TopicProduceData(name="t", partition_data=data),))
    with pytest.raises(Disconnect, match="At most 10000 partitions"):
        await served.call(ApiKey.PRODUCE, 9, request)


async def test_many_scram_users_are_altered_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_api, "PER_SLICE", 10)
    keys: dict[str, Any] = {"mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": b"p"}
    users = [*(f"u{number}" for number in range(35)), "u3"]
    async with rig() as one:
        request = access.AlterUserScramCredentialsRequest(
            deletions=(access.ScramCredentialDeletion(name="u34", mechanism=1),),
            upsertions=tuple(access.ScramCredentialUpsertion(name=user, **keys) for user in users),
        )
        answer = await one.call(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request)
        codes = {each.user: each.error_code for each in answer.results}
        assert list(codes) == ["u34", *users[:34]], "in the order of first mention"
        assert {user: code for user, code in codes.items() if code} == {"u34": 91, "u3": 92}, "in any list"
        assert {user for user, _ in one.api.cluster.scram} == set(users) - {"u3", "u34"}


PLAIN = CreatableTopic(name="plain", num_partitions=1, replication_factor=1)
ASSIGNED_TWICE = CreatableTopic(
    name="both",
    num_partitions=1,
    replication_factor=1,
    assignments=(CreatableReplicaAssignment(partition_index=0, broker_ids=(1,)),),
)


@pytest.mark.parametrize(
    ("topics", "logged"),
    [
        ((PLAIN, PLAIN), [("plain", "validation:duplicate")]),
        ((ASSIGNED_TWICE,), [("both", "validation:counts-and-assignment")]),
        ((PLAIN, ASSIGNED_TWICE), [("both", "validation:counts-and-assignment")]),
    ],
)
async def test_version_0_disconnects_after_an_invalid_request(
    served: Rig, topics: tuple[CreatableTopic, ...], logged: list[tuple[str, str]]
) -> None:
    with pytest.raises(Disconnect, match="InvalidRequest: topic "):
        await served.call(ApiKey.CREATE_TOPICS, 0, CreateTopicsRequest(topics=topics, timeout_ms=1000))
    assert [(event.topic, event.rule) for event in served.events(CreateRejected)] == logged
    assert served.api.store.durable_named("plain") is None, "the request creates no topic"


async def test_partitions_that_defaults_of_rules_fill_in_count_for_the_limit_of_a_request() -> None:
    text = "[[default]]\nname = 'wide'\nprincipals = 'User:ANON*'\ntopics = 'w*'\npartitions = 4000\n"
    async with rig() as one:
        one.controller.apply_rules_file(text)
        await one.controller.decided()

        async def codes(*names: str) -> set[int]:
            wanted = tuple(topics_messages.CreatableTopic(name=name, num_partitions=-1) for name in names)
            answer = await one.call(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=wanted, validate_only=True))
            return {each.error_code for each in answer.topics}

        assert await codes("w1", "w2", "w3") == {ErrorCode.POLICY_VIOLATION}
        assert ErrorCode.POLICY_VIOLATION not in await codes("w1", "w2", "a", "b")
