"""A real Kafka with its StandardAuthorizer, and Topicwright with its own, both with the users of the table (SASL/PLAIN)
and taken through it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from argon2 import PasswordHasher

from tests.reference.access_answers import Row, rows_of
from tests.reference.access_table import ADMIN, ANY_ACL, FOR_EVERYBODY, TOPICS, USERS, own_topics, requests_of
from tests.support.reference_kafka import reference_kafka
from tests.support.topicwright import topicwright
from tests.support.wire import ConnectionClosed, Wire

Answers = Mapping[tuple[str, str], tuple[Row, ...]]
"""The rows by user and request."""

QUICK = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
_JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required "


def password_of(user: str) -> str:
    """Nobody's secret."""
    return f"{user}-secret"


@contextmanager
def kafka_with_users(folder: Path, **settings: str) -> Iterator[str]:
    """One node of a real Kafka; gives its address."""
    users = " ".join(f'user_{user}="{password_of(user)}"' for user in (ADMIN, *USERS))
    with reference_kafka(
        folder,
        nodes=1,
        listener_security_protocol_map="BROKER:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        sasl_enabled_mechanisms="PLAIN",
        sasl_mechanism_inter_broker_protocol="PLAIN",
        listener_name_broker_plain_sasl_jaas_config=(
            f'{_JAAS} username="{ADMIN}" password="{password_of(ADMIN)}" {users};'
        ),
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users=f"User:{ADMIN};User:ANONYMOUS",
        num_partitions="1",
        **settings,
    ) as kafka:
        yield kafka.bootstrap


@contextmanager
def topicwright_with_users(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """Topicwright with one simulated broker; gives its address."""
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
    """A connection of a user."""
    wire = Wire(address, timeout_s=120, client_id=client_id)
    wire.log_in(user, password_of(user))
    return wire


def send_all(address: str) -> Answers:
    """Set the table up as its admin, then send the requests of each user."""
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
    """Whether a row is about what is the same for all orders of requests: a listing also has what others made."""
    return name != "all" or row[0] in (*TOPICS, "cluster")


def _prepare(admin: Wire) -> dict[str, str]:
    names = [*TOPICS, *(name for user in USERS for name in own_topics(user))]
    topics = [
        {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []} for name in names
    ]
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
    """Until the broker that answers knows all of it: Kafka answers before."""
    deadline = time.monotonic() + 240
    while True:
        seen = {each["name"] for each in admin.call("Metadata", 12, topics=None)["topics"]}
        acls = admin.call("DescribeAcls", 3, **ANY_ACL)
        held = sum(len(each["acls"]) for each in acls["resources"])
        if names <= seen and held == sum(map(len, USERS.values())) + len(FOR_EVERYBODY):
            return
        assert time.monotonic() < deadline, "the table was never set up"
        time.sleep(0.05)
