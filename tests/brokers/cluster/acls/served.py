"""Topicwright with `authorizer.class.name=ClusterAcls`: its settings and clients."""

import base64
from pathlib import Path

from confluent_kafka.admin import AdminClient

from tests.reference.access_servers import password_of
from tests.reference.access_table import ADMIN
from tests.support.topicwright import Topicwright
from tests.support.wire import Wire

SETTINGS = {"node.id": "100", "listeners": "SASL_PLAINTEXT://127.0.0.1:0", "authorizer.class.name": "ClusterAcls"}


def client_properties(folder: Path) -> Path:
    file = folder / "client.properties"
    file.write_text(
        "security.protocol=sasl_plaintext\nsasl.mechanism=PLAIN\n"
        f"sasl.username={ADMIN}\nsasl.password={password_of(ADMIN)}\n"
    )
    return file


def described(reader: Wire) -> set[str]:
    answer = reader.call("Metadata", 12, topics=None, allow_auto_topic_creation=False)
    return {each["name"] for each in answer["topics"]}


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


UNSECURED = {
    "sasl.mechanism": "OAUTHBEARER",
    "enable.sasl.oauthbearer.unsecure.jwt": "true",
    "sasl.oauthbearer.config": "principal=reader",
}
"""The cluster accepts tokens without a signature, and is alone responsible for that."""


def client(here: Topicwright, **properties: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": here.kafka, "security.protocol": "sasl_plaintext", **properties})
