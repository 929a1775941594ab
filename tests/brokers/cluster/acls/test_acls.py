"""The cluster's ACLs, users and quotas: enforced, followed, changed and shown here and by a gateway."""

import json
import re
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException

from tests.brokers.cluster.acls.calls import PREFIXED, on
from tests.brokers.cluster.acls.served import SETTINGS, UNSECURED, basic, client, client_properties, described
from tests.reference.access_servers import logged_in, password_of
from tests.reference.access_table import ADMIN, ANY_ACL, DESCRIBE
from tests.support.real_brokers import until
from tests.support.stream import stream
from tests.support.topicwright import COMMAND, Topicwright, command, fetch

CLUSTER_AUTHORIZATION_FAILED = 31


def test_a_gateway_applies_the_clusters_acls_and_logins(kafka: str, here: Topicwright, tmp_path: Path) -> None:
    properties = client_properties(tmp_path)
    own = {key: value for key, value in SETTINGS.items() if key != "node.id"}
    own |= {"sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER", "super.users": f"User:{ADMIN}"}
    with stream(tmp_path / "s", kafka, "acls-log", gateways=0, brokers="cluster", properties=properties) as running:
        gateway = running.start_gateway(own)
        with logged_in(gateway.kafka, "reader") as reader, logged_in(gateway.kafka, ADMIN) as admin:
            seen = until(lambda: described(reader), 60, "the gateway has read topics and ACLs")
            assert seen == {"a.one", "a.two"}
            assert reader.call("DescribeAcls", 3, **ANY_ACL)["error_code"] == CLUSTER_AUTHORIZATION_FAILED
            assert admin.call("DescribeAcls", 3, **ANY_ACL)["resources"]
        by_token = client(gateway, **UNSECURED)
        assert "secret" not in by_token.list_topics(timeout=60).topics
        groups = by_token.describe_consumer_groups(["g.one", "other"], request_timeout=60)
        assert groups["g.one"].result(60).group_id == "g.one", "forwarded under the client's own name"
        with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
            groups["other"].result(60)


def test_the_acls_command_changes_the_clusters_acls(kafka: str, here: Topicwright, tmp_path: Path) -> None:
    config = ("--command-config", str(client_properties(tmp_path)))
    acl = ("User:visitor", "Describe", "Topic:a.one")
    assert command("acls", "add", *acl, "--bootstrap", here.kafka, *config).returncode == 0
    for address in (kafka, here.kafka):
        listed = command("acls", "list", "--principal", "User:visitor", "--bootstrap", address, *config, "-o", "name")
        assert listed.stdout == "User:visitor may Describe Topic:a.one\n", listed.stderr
    refused = command("acls", "remove", "User:visitor", "Read", "Topic:a.one", "--bootstrap", here.kafka, *config)
    assert (refused.returncode, "there is no such ACL" in refused.stderr) == (1, True)
    assert command("acls", "remove", *acl, "--bootstrap", here.kafka, *config).returncode == 0


def test_users_and_quotas_of_the_cluster_are_changed_and_shown_here(
    kafka: str, here: Topicwright, tmp_path: Path
) -> None:
    config = ("--bootstrap", here.kafka, "--command-config", str(client_properties(tmp_path)))
    assert command("quotas", "add", "user=quentin", "producer_byte_rate=5000", *config).returncode == 0
    known = {"name": "quentin", "mechanism": 2, "iterations": 4096, "salt": b"s" * 32, "salted_password": b"p" * 64}
    with logged_in(kafka, ADMIN) as directly:
        of_user = [{"entity_type": "user", "match_type": 0, "match": "quentin"}]
        ask = partial(directly.call, "DescribeClientQuotas", 1, components=of_user, strict=False)
        quotas = until(lambda: ask()["entries"], 60, "the broker knows the quota")
        assert quotas[0]["values"] == [{"key": "producer_byte_rate", "value": 5000.0}]
        made = directly.call("AlterUserScramCredentials", 0, deletions=[], upsertions=[known])
        assert made["results"][0]["error_code"] == 0, made

    def shown(user: str, status: int) -> Any:
        found, body = fetch(here.http, "/v1/access?filter=quentin", authorization=basic(user, password_of(user)))
        assert found == status, body
        return json.loads(body)

    found = until(lambda: (now := shown(ADMIN, 200))["users"] and now, 60, "the broker knows the user")
    assert found["users"] == ["quentin by SCRAM-SHA-512, 4096 iterations"]
    assert found["quotas"] == ["user=quentin: producer_byte_rate=5000"]
    assert shown("reader", 403)["error"] == "CLUSTER_AUTHORIZATION_FAILED"
    page = fetch(here.http, "/access?filter=quentin", authorization=basic(ADMIN, password_of(ADMIN)))[1]
    assert "producer_byte_rate=5000" in page
    assert command("quotas", "remove", "user=quentin", "producer_byte_rate", *config).returncode == 0
    assert command("users", "remove", "quentin", *config).returncode == 0
    until(lambda: shown(ADMIN, 200)["users"] + shown(ADMIN, 200)["quotas"] == [], 60, "nothing is left")


def _serve(folder: Path, kafka: str, properties: str, **more: str) -> str:
    """The error with which a start fails."""
    own = {**SETTINGS, "sasl.enabled.mechanisms": "PLAIN", **more}
    if properties:
        (folder / "other.properties").write_text(properties)
        own["cluster.client.properties.file"] = str(folder / "other.properties")
    settings = [word for key, value in own.items() for word in ("--set", f"{key}={value}")]
    argv: list[Any] = [COMMAND, "serve", "--http", "127.0.0.1:0", "--data", folder / "d", "--brokers", kafka, *settings]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 2, done
    return str(done.stdout + done.stderr)


def test_a_start_without_a_cluster_or_its_acls_names_the_reason(kafka: str, here: Topicwright, tmp_path: Path) -> None:
    assert "ClusterAcls needs a target cluster: --brokers cluster:HOST:PORT" in _serve(tmp_path, "simulated:1", "")
    as_nobody = client_properties(tmp_path).read_text().replace(ADMIN, "nobody")
    (tmp_path / "d2").mkdir()
    assert "the cluster's ACLs cannot be read: " in _serve(tmp_path / "d2", f"cluster:{kafka}", as_nobody)


def test_created_and_deleted_acls_are_followed(here: Topicwright) -> None:
    with logged_in(here.kafka, ADMIN) as admin, logged_in(here.kafka, "nobody") as nobody:
        acl = {**on(2, PREFIXED, "sec", DESCRIBE), "principal": "User:nobody"}
        assert admin.call("CreateAcls", 3, creations=[acl])["results"][0]["error_code"] == 0
        until(lambda: "secret" in described(nobody), 60, "the new ACL applies")
        removed = {**ANY_ACL, "resource_name_filter": "sec", "principal_filter": "User:nobody"}
        assert admin.call("DeleteAcls", 3, filters=[removed])["filter_results"][0]["error_code"] == 0
        until(lambda: "secret" not in described(nobody), 60, "the deleted ACL applies no longer")
    metrics = fetch(here.http, "/metrics", authorization=basic(ADMIN, password_of(ADMIN)))[1]
    age = re.search(r"^topicwright_cluster_acls_age_seconds (\S+)$", metrics, re.MULTILINE)
    assert age is not None
    assert float(age[1]) < 30
