"""Logins that the cluster checks: by each mechanism, over HTTP, and until its session ends."""

import re
import time
from collections import Counter

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion  # type: ignore[attr-defined]  # its stubs do not export these

from tests.brokers.cluster.acls.served import UNSECURED, basic, client
from tests.reference.access_servers import logged_in, password_of
from tests.reference.access_table import ADMIN
from tests.security.certificates import Authority
from tests.support.real_brokers import until
from tests.support.topicwright import Topicwright, fetch
from tests.support.wire import Wire


def test_a_wrong_password_is_refused_by_the_cluster(kafka: str, here: Topicwright) -> None:
    answers = []
    for address in (kafka, here.kafka):
        with Wire(address) as wire:
            wire.call("SaslHandshake", 1, mechanism="PLAIN")
            answers.append(wire.call("SaslAuthenticate", 1, auth_bytes=b"\0reader\0wrong"))
    assert answers[0] == answers[1]
    with logged_in(here.kafka, "reader") as reader:
        assert reader.call("Metadata", 12, topics=None)["topics"] is not None


def test_http_logs_in_at_the_cluster_too(here: Topicwright) -> None:
    _, body = fetch(here.http, "/v1/topics", authorization=basic("reader", password_of("reader")))
    assert "a.one" in body
    assert "secret" not in body
    status, body = fetch(here.http, "/v1/topics", authorization=basic("reader", "wrong"))
    assert status == 401, body


def test_librdkafka_logs_in_at_the_cluster_by_each_mechanism(kafka: str, here: Topicwright) -> None:
    admin = client(here, **_named("PLAIN", ADMIN))
    known = UserScramCredentialUpsertion("reader", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), b"by-scram")
    admin.alter_user_scram_credentials([known])["reader"].result(60)
    ways = [_named("PLAIN", "reader"), {**_named("SCRAM-SHA-512", "reader"), "sasl.password": "by-scram"}, UNSECURED]
    for way in ways:
        one = client(here, **way)
        seen = until(lambda one=one: one.list_topics(timeout=60).topics, 60, "metadata")  # type: ignore[misc]
        assert {"a.one", "a.two"} <= set(seen) <= {"a.one", "a.two", "public"}, way


def _named(mechanism: str, user: str) -> dict[str, str]:
    return {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password_of(user)}


def test_the_name_in_a_certificate_has_the_clusters_acls(here: Topicwright, authority: Authority) -> None:
    address = re.search(r"\bSSL://(\S+)$", here.process.output, re.MULTILINE)
    assert address is not None
    for user in ("reader", "nobody"):
        files = authority.issue(user)
        where = {"bootstrap.servers": address[1], "ssl.ca.location": str(authority.file)}
        own = {"ssl.certificate.location": str(files.certificate), "ssl.key.location": str(files.key)}
        by_certificate = AdminClient({**where, **own, "security.protocol": "ssl"})
        by_password = client(here, **_named("PLAIN", user))
        seen, expected = (set(each.list_topics(timeout=60).topics) for each in (by_certificate, by_password))
        assert seen == expected
        assert ("a.one" in seen) == (user == "reader")
        with pytest.raises(KafkaException):  # forwarded under Topicwright's name: needs permission on the cluster
            by_certificate.describe_consumer_groups(["g.one"], request_timeout=2)["g.one"].result(60)


def test_a_session_ends_when_it_ends_at_the_cluster(kafka: str, here: Topicwright) -> None:
    """KIP-368: the brokers end a session by SCRAM after 4 s, and clients log in again on the same connection."""
    known = UserScramCredentialUpsertion(ADMIN, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), b"by-scram")
    admin = client(here, **_named("PLAIN", ADMIN))
    admin.alter_user_scram_credentials([known])[ADMIN].result(60)
    one = client(here, **{**_named("SCRAM-SHA-512", ADMIN), "sasl.password": "by-scram"})
    before, deadline = _scram_logins(here), time.monotonic() + 120
    while _scram_logins(here)["succeeded"] < before["succeeded"] + 5:
        assert time.monotonic() < deadline
        assert one.list_consumer_groups(request_timeout=60).result(60).errors == []
    assert _scram_logins(here)["failed"] == before["failed"]


def _scram_logins(here: Topicwright) -> Counter[str]:
    metrics = fetch(here.http, "/metrics", authorization=basic(ADMIN, password_of(ADMIN)))[1]
    found = re.findall(r'^topicwright_logins_total.*mechanism="SCRAM-SHA-512",outcome="(\w+)"\} (\S+)$', metrics, re.M)
    return Counter({outcome: round(float(count)) for outcome, count in found})
