"""ApiVersions: what is advertised, and to whom."""

from __future__ import annotations

from typing import Any

import pytest

from controller.apis.api_versions import with_api_versions
from controller.apis.produce import produce
from controller.kafka.handling import ApiHandler, ClientConnection, RequestContext
from controller.kafka.messages import ApiKey
from controller.kafka.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from controller.kafka.messages.metadata import MetadataRequest, MetadataResponse


def metadata(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    return MetadataResponse()


TABLE = {int(ApiKey.METADATA): ApiHandler(0, 3, metadata), int(ApiKey.PRODUCE): produce()}
SPOKEN = (
    ApiVersion(api_key=0, min_version=0, max_version=13),
    ApiVersion(api_key=3, min_version=0, max_version=3),
    ApiVersion(api_key=18, min_version=0, max_version=4),
)


def call(table: dict[int, ApiHandler], version: int, name: str = "me", software: str = "1.0") -> tuple[Any, Any]:
    connection = ClientConnection()
    context = RequestContext(18, version, connection=connection)
    request = ApiVersionsRequest(client_software_name=name, client_software_version=software)
    return table[18].handle(context, request), connection


@pytest.mark.parametrize("version", range(5))
def test_the_ranges_are_those_of_the_table(version: int) -> None:
    response, _ = call(with_api_versions(TABLE), version)
    assert response == ApiVersionsResponse(api_keys=SPOKEN)


@pytest.mark.parametrize(
    ("name", "software", "taken"),
    [
        ("apache-kafka-java", "4.3.0", True),
        ("librdkafka", "2.16.1-rc.1", True),
        ("a", "1", True),
        ("", "1.0", False),
        ("me", "", False),
        ("a b", "1.0", False),
        ("-me", "1.0", False),
        ("me", "1.0.", False),
        ("me\n", "1.0", False),
        ("mé", "1.0", False),
    ],
)
def test_names_that_kafka_does_not_take_are_refused_from_version_3(name: str, software: str, taken: bool) -> None:
    for version in (3, 4):
        response, connection = call(with_api_versions(TABLE), version, name, software)
        seen = (connection.software_name, connection.software_version)
        if taken:
            assert (response.error_code, seen) == (0, (name, software))
        else:
            assert (response, seen) == (ApiVersionsResponse(error_code=42), ("unknown", "unknown"))
    response, connection = call(with_api_versions(TABLE), 2, name, software)
    assert (response.error_code, connection.software_name) == (0, "unknown")


def test_features_from_level_0_are_hidden_from_clients_that_cannot_read_them() -> None:
    old = SupportedFeatureKey(name="metadata.version", min_version=1, max_version=29)
    new = SupportedFeatureKey(name="group.version", min_version=0, max_version=1)
    level = FinalizedFeatureKey(name="metadata.version", min_version_level=29, max_version_level=29)
    table = with_api_versions(TABLE, supported_features=(old, new), finalized=lambda: (5, (level,)))
    for version, supported in ((3, (old,)), (4, (old, new))):
        response, _ = call(table, version)
        assert response.supported_features == supported
        assert (response.finalized_features, response.finalized_features_epoch) == ((level,), 5)


def test_the_given_table_is_left_as_it_is() -> None:
    with_api_versions(TABLE)
    assert set(TABLE) == {0, 3}
