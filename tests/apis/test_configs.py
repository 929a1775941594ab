"""Configs of simulated brokers, of the target cluster's brokers, and of groups."""

import asyncio
import inspect
from typing import Any

import pytest

from controller.apis.forwarding import RESOURCES_PER_REQUEST, to_brokers
from controller.kafka.codec.codec import encode_response, parse_header, read_request
from controller.kafka.connections import ClusterUnreachable
from controller.kafka.handling import ClientConnection, RequestContext, Session
from controller.kafka.messages import ApiKey
from controller.kafka.messages.cluster import ApiVersion
from controller.kafka.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    ListConfigResourcesRequest,
)
from controller.machine.configs.changes import OpType
from controller.machine.configs.groups import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS
from controller.machine.configs.topic_configs import BROKER_SYNONYMS, TOPIC_CONFIGS
from controller.machine.state import CLIENT_METRICS, GROUPS
from events.catalog import PartitionChanged, ResourceConfigsChanged
from tests.apis.rig import Rig, read_back, rig
from tests.apis.test_permissions import BOB, Granted

TOPIC, BROKER, LOGGER = 2, 4, 8
OF_ONE, OF_ALL, STATIC, DEFAULT, OF_LOGGER, OF_CLIENT_METRICS = 2, 3, 4, 5, 6, 7
SET, DELETE, APPEND = OpType.SET, OpType.DELETE, OpType.APPEND


async def shown(a: Rig, name: str, key: str, kind: int = BROKER) -> Any:
    (config,) = (await a.describe_configs(kind, name, key)).configs
    return config


async def until_reconciled(a: Rig) -> None:
    """Wait until every topic is reconciled."""
    await a.controller.decided()
    for _ in range(100):  # a sweep yields to the loop
        await asyncio.sleep(0)
        await a.controller.decided()


def changes(a: Rig) -> list[tuple[str, dict[str, str]]]:
    return [(event.name, dict(event.configs)) for event in a.events(ResourceConfigsChanged)]


async def test_describe_all_configs_of_a_broker() -> None:
    async with rig({"num.partitions": "3", "log.retention.hours": "24"}) as a:
        a.api.static_configs = {"num.partitions": "3", "log.retention.hours": "24", "ssl.key.password": "", "x": "y"}
        for broker in ("1", "2", "3"):
            found = await a.describe_configs(BROKER, broker)
            assert found.error_code == 0
            assert len(found.configs) == 350
            by_name = {each.name: each for each in found.configs}
            assert {each.name for each in found.configs if not each.documentation} == set()
            assert (by_name["node.id"].value, by_name["broker.id"].value) == (broker, broker)
            assert by_name["broker.rack"].value == f"rack-{'abc'[int(broker) - 1]}"
            assert by_name["advertised.listeners"].value == "PLAINTEXT://127.0.0.1:9092"
        partitions = by_name["num.partitions"]
        assert (partitions.value, partitions.config_source, partitions.read_only) == ("3", STATIC, True)
        assert [(each.value, each.source) for each in partitions.synonyms] == [("3", STATIC), ("1", DEFAULT)]
        assert by_name["log.retention.hours"].config_source == STATIC
        assert (by_name["log.retention.ms"].value, by_name["log.retention.ms"].read_only) == (None, False)
        secret = by_name["ssl.key.password"]
        assert (secret.value, secret.is_sensitive, secret.config_source) == (None, True, STATIC)


@pytest.mark.parametrize("name", ["9", "-1", "one", "01", "9" * 5000])
async def test_invalid_broker_ids_are_rejected(served: Rig, name: str) -> None:
    found = await served.describe_configs(BROKER, name)
    assert found.error_code == 42
    is_id = name in ("9", "-1")
    assert found.error_message.startswith("Unexpected broker id, expected 1, 2, 3" if is_id else "Broker id must be")
    code, message = await served.alter_configs(BROKER, name, ("log.retention.ms", SET, "5"))
    assert code == 42
    assert message is not None
    assert message.startswith("Unexpected broker id, expected 1, 2, 3" if is_id else "Node id must be an integer")


async def test_describe_configs_of_a_broker_logger(served: Rig) -> None:
    (root,) = (await served.describe_configs(LOGGER, "1")).configs
    assert (root.name, root.value, root.config_source, root.read_only) == ("root", "INFO", OF_LOGGER, True)
    served.api.static_configs = {"log.level": "warning"}
    assert (await shown(served, "2", "root", LOGGER)).value == "WARN"
    assert (await served.describe_configs(LOGGER, "1", "another")).configs == ()
    refusals = {
        "": "Broker id must not be empty",
        "one": "Broker id must be an integer, but it is: one",
        "9": "Unexpected broker id, expected 1, 2, 3 but received 9",
    }
    for name, why in refusals.items():
        refused = await served.describe_configs(LOGGER, name)
        assert (refused.error_code, refused.error_message, refused.configs) == (42, why, ())


REFUSED = (
    ("", "listeners", SET, "A://:1", 42, "Invalid dynamic configuration: listeners cannot be altered for simulated"),
    (
        "",
        "listener.name.a.max.connections.per.ip",
        SET,
        "1",
        42,
        "Cannot update these configs at default cluster level",
    ),
    ("1", "listener.name.a.ssl.keystore.password", SET, "hush", 42, "ssl.keystore.password is a secret, which simul"),
    ("1", "sasl.jaas.config", SET, "hush", 42, "sasl.jaas.config is a secret, which simulated brokers do not use; i"),
    ("", "principal.builder.class", SET, "x", 42, "Invalid value x for configuration principal.builder.class: Class"),
    ("", "num.io.threads", SET, "3", 42, "Invalid dynamic configuration: Dynamic thread count update validation fail"),
    ("", "nonsense", SET, "x" * 32_768, 40, "The configuration value cannot be added because it exceeds the maximum"),
)
"""tests/reference compares the others, and their errors, with Kafka's."""


@pytest.mark.parametrize(("name", "key", "op", "value", "code", "message"), REFUSED)
async def test_invalid_broker_configs_have_kafkas_message(
    served: Rig, name: str, key: str, op: OpType, value: str | None, code: int, message: str
) -> None:
    got_code, got = await served.alter_configs(BROKER, name, (key, op, value))
    assert (got_code, (got or "")[: len(message)]) == (code, message)
    assert changes(served) == [], "a rejected alteration records no change"


@pytest.mark.parametrize(
    ("name", "key", "op", "value", "after"),
    [
        ("", "log.cleanup.policy", APPEND, "compact", "delete,compact"),
        ("1", "listener.name.a.max.connections.per.ip", SET, "5", "5"),
        ("", "unclean.leader.election.enable", SET, " TRUE ", "true"),
        ("", "log.retention.ms", SET, "+5", "5"),
        ("", "nonsense", SET, "kept, as Kafka keeps it", "kept, as Kafka keeps it"),
    ],
)
async def test_valid_broker_configs_apply(served: Rig, name: str, key: str, op: OpType, value: str, after: str) -> None:
    assert await served.alter_configs(BROKER, name, (key, op, value), dry=True) == (0, None)
    assert changes(served) == []
    assert await served.alter_configs(BROKER, name, (key, op, value)) == (0, None)
    assert changes(served) == [(name, {key: after})]
    (config,) = (await served.describe_configs(BROKER, name or "1", key)).configs
    assert config.is_sensitive == (key == "nonsense")


async def test_broker_configs_require_cluster_permissions() -> None:
    async with rig(authorizer=Granted(("DescribeConfigs", "Cluster", "kafka-cluster"))) as a:
        assert (await a.describe_configs(BROKER, "1", principal=BOB)).error_code == 0
        for key in ("log.retention.ms", "num.partitions"):
            denied = await a.alter_configs(BROKER, "", (key, SET, "5"), principal=BOB)
            assert denied == (31, "Cluster authorization failed.")
    async with rig(authorizer=Granted(("AlterConfigs", "Cluster", "kafka-cluster"))) as a:
        assert await a.alter_configs(BROKER, "", ("log.retention.ms", SET, "5"), principal=BOB) == (0, None)
    async with rig(authorizer=Granted()) as a:
        assert (await a.describe_configs(BROKER, "nine", principal=BOB)).error_code == 31


async def test_enabling_unclean_leader_election_elects_at_once() -> None:
    async with rig(brokers=2) as a:
        assert [each.error_code for each in await a.create("t", replication_factor=2)] == [0]
        for broker in (1, 2):
            a.brokers.stop_broker(broker)
            await until_reconciled(a)
        first = a.api.store.durable_named("t").partitions[0]  # type: ignore[union-attr]
        assert first.leader == -1
        a.brokers.start_broker(next(replica for replica in first.replicas if replica not in first.isr))
        await until_reconciled(a)
        assert await a.alter_configs(BROKER, "", ("unclean.leader.election.enable", SET, "true")) == (0, None)
        await until_reconciled(a)
        assert a.api.store.durable_named("t").partitions[0].leader >= 0  # type: ignore[union-attr]
        elected = [event.reason for event in a.events(PartitionChanged) if event.has_new_leader]
        assert elected[-1].startswith("unclean election")


def test_the_first_synonym_of_each_topic_config_is_dynamic() -> None:
    dynamic = {name for name, row in BROKER_SYNONYMS.items() if row.dynamic}
    assert dynamic == {next(iter(row.synonyms)) for row in TOPIC_CONFIGS if row.synonyms}


SPOKEN = [ApiVersion(api_key=ApiKey.DESCRIBE_CONFIGS, min_version=1, max_version=4)]


class Brokers:
    """Brokers of a cluster. `came` has each request's address (None: any broker) and resource names."""

    def __init__(self) -> None:
        self.came: list[tuple[tuple[str, int] | None, list[str]]] = []
        self.silent = False

    async def __call__(self, payload: bytes, within_s: float, to: tuple[str, int] | None = None) -> bytes:
        if self.silent:
            raise ClusterUnreachable("nobody there")
        header = parse_header(payload)
        request = read_request(header.api_key, header.api_version, payload, header.body_offset)[0]
        assert isinstance(request, DescribeConfigsRequest)
        assert header.api_version >= 1, "at least the oldest version of the brokers"
        names = [each.resource_name for each in request.resources]
        self.came.append((to, names))
        configs = (DescribeConfigsResourceResult(name="node.id", value="7", config_source=5),)
        results = tuple(
            DescribeConfigsResult(resource_type=BROKER, resource_name=name, configs=configs) for name in names
        )
        return encode_response(header.api_key, header.api_version, 1, DescribeConfigsResponse(results=results))[4:]


async def described(a: Rig, brokers: Brokers, *names: tuple[int, str], version: int = 4, principal: str = "") -> Any:
    resources = tuple(DescribeConfigsResource(resource_type=kind, resource_name=name) for kind, name in names)
    row = to_brokers(a.api, dict(a.listener), SPOKEN, brokers)[ApiKey.DESCRIBE_CONFIGS]
    connection = ClientConnection(session=Session(principal=principal or "User:ANONYMOUS"))
    context = RequestContext(ApiKey.DESCRIBE_CONFIGS, version, connection=connection)
    answer: Any = row.handle(context, DescribeConfigsRequest(resources=resources))
    answer = await answer if inspect.isawaitable(answer) else answer
    return [(each.resource_name, each.error_code, len(each.configs)) for each in answer.results], answer.results


async def test_broker_configs_are_forwarded_to_the_broker(served: Rig) -> None:
    brokers = Brokers()
    rows, _ = await described(served, brokers, (BROKER, "2"), (TOPIC, "missing"), (BROKER, ""), (BROKER, "9"))
    assert rows == [("2", 0, 1), ("missing", 3, 0), ("", 0, 1), ("9", 0, 1)]
    assert brokers.came == [(("127.0.0.1", 9092), ["2"]), (None, ["", "9"])]


async def test_configs_of_unknown_brokers_are_forwarded_in_batches(served: Rig) -> None:
    brokers = Brokers()
    names = [str(number) for number in range(10, 10 + 2 * RESOURCES_PER_REQUEST)]
    rows, _ = await described(served, brokers, *((BROKER, name) for name in names))
    assert rows == [(name, 0, 1) for name in names]
    assert brokers.came == [(None, names[:RESOURCES_PER_REQUEST]), (None, names[RESOURCES_PER_REQUEST:])]


async def test_own_node_configs_are_not_forwarded() -> None:
    async with rig(broker_listeners=True) as a:
        brokers = Brokers()
        ((name, code, shown),), _ = await described(a, brokers, (BROKER, "0"))
        assert (name, code, brokers.came) == ("0", 0, [])
        assert shown > 300


async def test_describe_configs_version_0_has_is_default(served: Rig) -> None:
    _, (result,) = await described(served, Brokers(), (BROKER, "1"), version=0)
    assert result.configs[0].is_default


async def test_denied_configs_are_not_forwarded() -> None:
    async with rig(authorizer=Granted()) as a:
        brokers = Brokers()
        rows, _ = await described(a, brokers, (BROKER, "1"), principal=BOB)
        assert (rows, brokers.came) == ([("1", 31, 0)], [])


async def test_unreachable_broker_fails_only_its_own_resources(served: Rig) -> None:
    brokers = Brokers()
    brokers.silent = True
    rows, (_, failed) = await described(served, brokers, (TOPIC, "missing"), (BROKER, "1"))
    assert rows == [("missing", 3, 0), ("1", 7, 0)]
    assert failed.error_message == "The broker did not respond: nobody there"


KEY = "consumer.session.timeout.ms"
OF_GROUP = 8


async def test_describe_group_configs_with_sources(served: Rig) -> None:
    found = await served.describe_configs(GROUPS, "g")
    assert [each.name for each in found.configs] == [name for name, row in GROUP_CONFIGS.items() if not row.internal]
    assert {each.name for each in found.configs if not each.documentation or each.read_only} == set()
    served.api.static_configs = {f"group.{KEY}": "46000"}
    assert await served.alter_configs(GROUPS, "g", (KEY, OpType.SET, " 50000")) == (0, None)
    (own,) = (await served.describe_configs(GROUPS, "g", KEY)).configs
    (other,) = (await served.describe_configs(GROUPS, "h", KEY)).configs
    chain = [("50000", OF_GROUP), ("46000", STATIC), ("45000", DEFAULT)]
    assert (own.value, own.config_source) == ("50000", OF_GROUP)
    assert [(each.value, each.source) for each in own.synonyms] == chain
    assert (other.value, other.config_source) == ("46000", STATIC)


async def test_group_configs_require_a_group_name(served: Rig) -> None:
    found = await served.describe_configs(GROUPS, "")
    assert (found.error_code, found.error_message) == (42, "Group name must not be empty")
    assert (await served.alter_configs(GROUPS, "", (KEY, OpType.SET, "50000")))[0] == 42


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("interval.ms", "100", 0),
        ("interval.ms", "99", 42),
        ("interval.ms", "soon", 40),
        ("match", "client_id=a.*,client_source_port=1", 0),
        ("match", "colour=red", 40),
        ("colour", "red", 42),
    ],
)
async def test_client_metrics_configs_are_checked_and_described(served: Rig, key: str, value: str, code: int) -> None:
    assert (await served.alter_configs(CLIENT_METRICS, "m", (key, OpType.SET, value)))[0] == code
    found = await served.describe_configs(CLIENT_METRICS, "m")
    assert [each.name for each in found.configs] == list(CLIENT_METRICS_CONFIGS)
    own = [(each.name, each.value) for each in found.configs if each.config_source == OF_CLIENT_METRICS]
    assert own == ([(key, value)] if code == 0 else [])


async def test_list_config_resources_by_type(served: Rig) -> None:
    names = sorted(f"t{number}" for number in range(450))
    for start in range(0, 450, 50):
        await served.create(*names[start : start + 50], num_partitions=1, replication_factor=1)
    assert (await served.alter_configs(GROUPS, "g", (KEY, OpType.SET, "50000")))[0] == 0
    assert (await served.alter_configs(CLIENT_METRICS, "m", ("metrics", OpType.SET, "*")))[0] == 0
    assert (await served.alter_configs(BROKER, "", ("log.retention.ms", OpType.SET, "60000")))[0] == 0

    async def listed(version: int, *kinds: int) -> list[tuple[int, str]]:
        request = ListConfigResourcesRequest(resource_types=kinds)
        answer = await served.call(ApiKey.LIST_CONFIG_RESOURCES, version, request)
        found = read_back(ApiKey.LIST_CONFIG_RESOURCES, version, answer)
        return [(each.resource_type, each.resource_name) for each in found.config_resources]

    assert await listed(0) == await listed(1, CLIENT_METRICS) == [(CLIENT_METRICS, "m")]
    assert sorted(await listed(1, TOPIC)) == [(TOPIC, name) for name in names]
    brokers = [(kind, str(number)) for kind in (BROKER, LOGGER) for number in (1, 2, 3)]
    assert sorted(await listed(1)) == sorted(
        [*((TOPIC, name) for name in names), *brokers, (CLIENT_METRICS, "m"), (GROUPS, "g")]
    )
