"""Real clients log in by OAUTHBEARER with tokens of a real identity provider, also while it rotates its keys and after
their tokens expire."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.security.identity import CLIENT, SECRET, Provider, federated
from tests.security.service import Secured

PRINCIPAL = f"User:{CLIENT}"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Provider, Secured]]:
    with federated(tmp_path_factory.mktemp("federated")) as running:
        yield running


@pytest.fixture
def provider(both: tuple[Provider, Secured]) -> Provider:
    return both[0]


@pytest.fixture
def service(both: tuple[Provider, Secured]) -> Secured:
    return both[1]


def librdkafka_properties(provider: Provider, service: Secured) -> dict[str, object]:
    return {
        "bootstrap.servers": service.addresses["SASL_SSL"],
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(service.authority.file),
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": CLIENT,
        "sasl.oauthbearer.client.secret": SECRET,
        "sasl.oauthbearer.token.endpoint.url": provider.token_url,
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.extensions": "traceId=123,team=payments",
    }


def test_librdkafka_logs_in(provider: Provider, service: Secured, topic: str) -> None:
    admin = AdminClient(librdkafka_properties(provider, service))
    admin.create_topics([NewTopic(topic, 2)])[topic].result(60)
    assert service.creator_of(topic) == PRINCIPAL
