"""Kafka's own tools and other clients manage ACLs and quotas."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.kafka_tools import kafka_tools
from tests.support.topicwright import Topicwright, topicwright


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topicwright]:
    """A service with an authorizer. Anonymous clients are super users."""
    settings = {"authorizer.class.name": "StandardAuthorizer", "super.users": "User:ANONYMOUS"}
    with topicwright(tmp_path_factory.mktemp("acls"), settings) as one:
        yield one


def kafka_acls(served: Topicwright, *arguments: str) -> str:
    return kafka_tools().output("kafka-acls", "--bootstrap-server", served.kafka, *arguments)


def kafka_configs(served: Topicwright, *arguments: str) -> str:
    return kafka_tools().output("kafka-configs", "--bootstrap-server", served.kafka, *arguments)


def test_kafka_acls_tool_manages_acls(served: Topicwright) -> None:
    about = ("--topic", "java.", "--resource-pattern-type", "prefixed")
    who = ("--allow-principal", "User:jill", "--allow-host", "10.0.0.7")
    added = kafka_acls(served, "--add", *about, *who, "--operation", "Read", "--operation", "Create")
    assert "principal=User:jill, host=10.0.0.7, operation=READ, permissionType=ALLOW" in added
    listed = kafka_acls(served, "--list", "--topic", "java.orders", "--resource-pattern-type", "match")
    assert len(re.findall(r"principal=User:jill", listed)) == 2
    kafka_acls(served, "--remove", "--force", *about)
    assert "User:jill" not in kafka_acls(served, "--list")


def test_kafka_configs_sets_quotas(served: Topicwright) -> None:
    entity = ("--entity-type", "users", "--entity-name", "jill", "--entity-type", "clients", "--entity-default")
    kafka_configs(served, "--alter", *entity, "--add-config", "controller_mutation_rate=2.5")
    assert "controller_mutation_rate=2.5" in kafka_configs(served, "--describe", *entity)
    kafka_configs(served, "--alter", *entity, "--delete-config", "controller_mutation_rate")
    assert "controller_mutation_rate" not in kafka_configs(served, "--describe", *entity)


def test_confluent_kafka_manages_acls(served: Topicwright) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
    from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

    admin = AdminClient({"bootstrap.servers": served.kafka})
    entry = AclBinding(
        *(ResourceType.TOPIC, "confluent", ResourcePatternType.LITERAL, "User:carl", "*"),
        *(AclOperation.ALTER, AclPermissionType.DENY),
    )
    assert admin.create_acls([entry])[entry].result(30) is None
    anything: Any = None
    wanted = AclBindingFilter(
        *(ResourceType.ANY, anything, ResourcePatternType.ANY, "User:carl", anything),
        *(AclOperation.ANY, AclPermissionType.ANY),
    )
    assert admin.describe_acls(wanted).result(30) == [entry]
    assert admin.delete_acls([wanted])[wanted].result(30) == [entry]
    assert admin.describe_acls(wanted).result(30) == []


def test_kafka_python_manages_acls(served: Topicwright) -> None:
    from kafka.admin import (
        ACL,
        ACLFilter,
        ACLOperation,
        ACLPermissionType,
        ACLResourcePatternType,
        KafkaAdminClient,
        ResourcePattern,
        ResourcePatternFilter,
        ResourceType,
    )

    admin = KafkaAdminClient(bootstrap_servers=served.kafka)
    try:
        pattern = ResourcePattern(ResourceType.TOPIC, "kafka-python", ACLResourcePatternType.LITERAL)
        entry = ACL("User:pam", "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)
        made: Any = admin.create_acls([entry])
        assert entry in made["succeeded"]
        about = ResourcePatternFilter(ResourceType.ANY, "kafka-python", ACLResourcePatternType.ANY)
        wanted = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, about)
        found, _ = admin.describe_acls(wanted)
        assert found == [entry]
        admin.delete_acls([wanted])
        assert admin.describe_acls(wanted)[0] == []
    finally:
        admin.close()
