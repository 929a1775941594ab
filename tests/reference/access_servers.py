"""A real Kafka with its StandardAuthorizer, and Topicwright with its own. Both have the table's users (SASL/PLAIN) and
get its requests."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from argon2 import PasswordHasher

from tests.reference.access_table import ADMIN, ANY_ACL, FOR_EVERYBODY, TOPICS, USERS, own_topics, requests_of
from tests.reference.answers import code_name
from tests.reference.cases import topic
from tests.support.real_brokers import until
from tests.support.reference_kafka import reference_kafka
from tests.support.topicwright import topicwright
from tests.support.wire import ConnectionClosed, Wire

Body = dict[str, Any]
Row = tuple[str, str, str]
"""The subject (a topic, a resource, or the whole answer), the error's name, and further values to compare."""
Answers = Mapping[tuple[str, str], tuple[Row, ...]]
"""The rows by user and request."""

QUICK = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
_JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required "


def password_of(user: str) -> str:
    """A test password, which is not secret."""
    return f"{user}-secret"


@contextmanager
def kafka_with_users(folder: Path, **settings: str) -> Iterator[str]:
    """One node of a real Kafka; yields its address."""
    users = " ".join(f'user_{user}="{password_of(user)}"' for user in (ADMIN, *USERS))
    with reference_kafka(
        folder,
        nodes=1,
        listener_security_protocol_map="BROKER:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        sasl_mechanism_inter_broker_protocol="PLAIN",
        listener_name_broker_plain_sasl_jaas_config=(
            f'{_JAAS} username="{ADMIN}" password="{password_of(ADMIN)}" {users};'
        ),
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users=f"User:{ADMIN};User:ANONYMOUS",
        num_partitions="1",
        **{"sasl_enabled_mechanisms": "PLAIN", **settings},
    ) as kafka:
        yield kafka.bootstrap


@contextmanager
def topicwright_with_users(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """Topicwright with one simulated broker; yields its address."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "users"
    file.write_text("".join(f"{user}:{QUICK.hash(password_of(user))}\n" for user in (ADMIN, *USERS)))
    own = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "users.file": str(file),
        "http.authentication": "none",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN}",
        "num.partitions": "1",
    }
    with topicwright(folder, {**own, **(settings or {})}, brokers="simulated:1") as served:
        yield served.kafka


def logged_in(address: str, user: str, client_id: str = "table") -> Wire:
    """A connection authenticated as a user."""
    wire = Wire(address, timeout_s=120, client_id=client_id)
    wire.log_in(user, password_of(user))
    return wire


def send_all(address: str) -> Answers:
    """Create topics and ACLs as the admin, then send the requests of each user."""
    with logged_in(address, ADMIN) as admin:
        ids = _prepare(admin)
    names = {topic_id: name for name, topic_id in ids.items()}
    answers: dict[tuple[str, str], tuple[Row, ...]] = {}
    for user in USERS:
        wire = logged_in(address, user)
        for request in requests_of(user, ids):
            try:
                body = wire.call(request.api, request.version, **request.body)
                rows = rows_of(request.api, body, names)
            except (ConnectionClosed, TimeoutError) as error:
                rows = (("connection", type(error).__name__, ""),)
                wire.close()
                wire = logged_in(address, user)
            answers[user, request.id] = tuple(row for row in rows if _is_compared(request.name, user, row))
        wire.close()
    return answers


def _is_compared(name: str, user: str, row: Row) -> bool:
    """True if the row does not depend on the order of requests: a listing also has the topics of other users."""
    return name != "all" or row[0] in (*TOPICS, "cluster")


def _prepare(admin: Wire) -> dict[str, str]:
    names = [*TOPICS, *(name for user in USERS for name in own_topics(user))]
    topics = [topic(name) for name in names]
    made = admin.call("CreateTopics", 7, topics=topics, timeout_ms=60_000, validate_only=False)["topics"]
    assert all(each["error_code"] == 0 for each in made), made
    entries = [{**each, "principal": f"User:{user}"} for user, own in USERS.items() for each in own]
    entries += [{**each, "principal": "User:*"} for each in FOR_EVERYBODY]
    results = admin.call("CreateAcls", 3, creations=entries)["results"]
    assert all(each["error_code"] == 0 for each in results), results
    ids = {str(each["name"]): str(each["topic_id"]) for each in made}
    _wait_for(admin, set(ids))
    return ids


def _wait_for(admin: Wire, names: set[str]) -> None:
    """Wait until the answering broker has applied everything; Kafka answers earlier."""

    def is_known() -> bool:
        seen = {each["name"] for each in admin.call("Metadata", 12, topics=None)["topics"]}
        acls = admin.call("DescribeAcls", 3, **ANY_ACL)
        held = sum(len(each["acls"]) for each in acls["resources"])
        return names <= seen and held == sum(map(len, USERS.values())) + len(FOR_EVERYBODY)

    until(is_known, 240, "the table is set up")


# --- answers as rows


def rows_of(api: str, body: Body, names: dict[str, str]) -> tuple[Row, ...]:
    """Returns the rows of one response, sorted. `names` maps topic ids to names."""
    return tuple(sorted(_READERS[api](body, names)))


def _listed(key: str, name: str = "name") -> Callable[[Body, dict[str, str]], Iterator[Row]]:
    def read(body: Body, names: dict[str, str]) -> Iterator[Row]:
        for each in body[key]:
            yield str(each[name]), code_name(each["error_code"]), ""

    return read


def _operations(value: object) -> str:
    """The operations in a response. None and the lowest number mean that none were requested."""
    if isinstance(value, Iterable):
        return f"operations={sorted(int(each) for each in value)}"
    return "" if value is None or value == -(2**31) else f"operations={value}"


def _create_topics(body: Body, names: dict[str, str]) -> Iterator[Row]:
    for each in body["topics"]:
        shown = {None: "null", 0: ""}.get(_count(each.get("configs", [])), "configs")
        denied = each.get("topic_config_error_code") or 0
        yield each["name"], code_name(each["error_code"]), f"{shown} {code_name(denied) if denied else ''}".strip()


def _count(listed: list[Any] | None) -> int | None:
    return None if listed is None else len(listed)


def _users(body: Body, names: dict[str, str]) -> Iterator[Row]:
    yield "all", code_name(body["error_code"]), body["error_message"] or ""
    for number, each in enumerate(body["results"]):
        yield f"row {number} {each['user']!r}", code_name(each["error_code"]), each["error_message"] or ""


def _delete_topics(body: Body, names: dict[str, str]) -> Iterator[Row]:
    for each in body["responses"]:
        by_id = names.get(each.get("topic_id") or "", "")
        yield str(each["name"]), code_name(each["error_code"]), f"id of {by_id}" if by_id and not each["name"] else ""


def _resources(key: str) -> Callable[[Body, dict[str, str]], Iterator[Row]]:
    def read(body: Body, names: dict[str, str]) -> Iterator[Row]:
        for each in body[key]:
            shown = "configs" if each.get("configs") else ""
            yield f"{each['resource_type']} {each['resource_name']}", code_name(each["error_code"]), shown

    return read


def _metadata(body: Body, names: dict[str, str]) -> Iterator[Row]:
    yield "cluster", "NONE", _operations(body.get("authorized_operations", body.get("cluster_authorized_operations")))
    for each in body["topics"]:
        name = each["name"] if each["name"] else f"id of {names.get(each.get('topic_id') or '', '?')}"
        wanted = _operations(each.get("authorized_operations", each.get("topic_authorized_operations")))
        yield name, code_name(each["error_code"]), f"{len(each['partitions'])} partitions {wanted}".strip()


def _pages(body: Body, names: dict[str, str]) -> Iterator[Row]:
    for each in body["topics"]:
        wanted = _operations(each.get("topic_authorized_operations", each.get("authorized_operations")))
        yield each["name"], code_name(each["error_code"]), f"{len(each['partitions'])} partitions {wanted}".strip()


def _cluster(body: Body, names: dict[str, str]) -> Iterator[Row]:
    wanted = body.get("cluster_authorized_operations", body.get("authorized_operations"))
    yield "cluster", code_name(body["error_code"]), _operations(wanted)


def _whole(body: Body, names: dict[str, str]) -> Iterator[Row]:
    yield "all", code_name(body["error_code"]), ""


def _created_acls(body: Body, names: dict[str, str]) -> Iterator[Row]:
    for number, each in enumerate(body["results"]):
        yield f"entry {number}", code_name(each["error_code"]), ""


def _described_acls(body: Body, names: dict[str, str]) -> Iterator[Row]:
    yield "all", code_name(body["error_code"]), f"{len(body['resources'])} found"


def _deleted_acls(body: Body, names: dict[str, str]) -> Iterator[Row]:
    for number, each in enumerate(body["filter_results"]):
        yield f"filter {number}", code_name(each["error_code"]), f"{len(each['matching_acls'])} found"


def _altered_quotas(body: Body, names: dict[str, str]) -> Iterator[Row]:
    for each in body["entries"]:
        entity = " ".join(f"{part['entity_type']}={part['entity_name']}" for part in each["entity"])
        yield entity, code_name(each["error_code"]), ""


_READERS: dict[str, Callable[[Body, dict[str, str]], Iterator[Row]]] = {
    "CreateTopics": _create_topics,
    "DeleteTopics": _delete_topics,
    "CreatePartitions": _listed("results"),
    "AlterConfigs": _resources("responses"),
    "IncrementalAlterConfigs": _resources("responses"),
    "DescribeConfigs": _resources("results"),
    "Metadata": _metadata,
    "DescribeTopicPartitions": _pages,
    "DescribeCluster": _cluster,
    "ListPartitionReassignments": _whole,
    "CreateAcls": _created_acls,
    "DescribeAcls": _described_acls,
    "DeleteAcls": _deleted_acls,
    "DescribeClientQuotas": _whole,
    "AlterClientQuotas": _altered_quotas,
    "DescribeUserScramCredentials": _users,
}
