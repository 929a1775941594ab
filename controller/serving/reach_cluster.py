"""Connects a starting process to the target cluster, and returns its cluster id and its brokers' API versions.

The log is the history of one cluster and contains its id, so the id is needed first. If the cluster cannot be reached
at the start, an error names the cause. If it becomes unreachable later, the process waits for it.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from msgspec.structs import replace

from controller.brokers.cluster.link import ClusterLink, ClusterMetadata
from controller.kafka.connections import BadCredentials, ClusterUnreachable, NotAuthenticated, Security, security_of
from controller.kafka.sasl import OAUTHBEARER
from controller.serving.process import reached, wall_ms
from controller.settings.load import ServeSettings, SettingsError
from controller.settings.properties import read_values
from events.catalog import Configs

REACH_WITHIN_S = 30.0  # enough for a cluster that starts at the same time
_HAS_TARGET_CLUSTER = ("has.target.cluster", "true")
"""The setting that marks a target cluster. The log records it, because decisions depend on it; it follows from the
option `--brokers`, and users cannot set it."""
PROPERTIES_FILE = "cluster.client.properties.file"
RESERVED_KEYS = ("bootstrap.servers", "client.id")


async def reach_cluster(bootstrap: str, settings: ServeSettings) -> ClusterLink:
    """Connect to a cluster, which may start at the same time. Raises SettingsError for wrong credentials, a different
    cluster.id or a node.id that a broker has, and ClusterUnreachable."""
    security = await asyncio.to_thread(security_in, settings.cluster_client_properties_file)
    reach = partial(reach_as, security, bootstrap, lambda metadata: _check(metadata, settings))
    return await reached(f"the cluster at {bootstrap}", reach, ClusterUnreachable, within_s=REACH_WITHIN_S)


async def reach_as(
    security: Security, bootstrap: str, check: Callable[[ClusterMetadata], None] = lambda _: None
) -> ClusterLink:
    """Connect to a cluster and call `check` with its first metadata. Raises SettingsError for wrong credentials,
    ClusterUnreachable, and the errors of `check`."""
    try:
        await asyncio.to_thread(_refuse_unknown, security.properties)
    except KafkaException as error:
        raise SettingsError(f"the cluster at {bootstrap}: {error.args[0].str()}") from None
    link = ClusterLink(bootstrap, security)
    try:
        metadata = await link.metadata()
        await link.refresh_api_versions()
        check(metadata)
    except NotAuthenticated as error:
        link.close()
        raise SettingsError(f"the cluster at {bootstrap}: {error}") from None
    except BaseException:
        link.close()
        raise
    link.cluster_id = metadata.cluster_id
    return link


def _refuse_unknown(properties: Mapping[str, Any]) -> None:
    """Raise KafkaException for properties that librdkafka does not know. Blocks, also when the client is destroyed."""
    AdminClient({**properties, "log_level": 0})


def security_in(file: str | None, named: str = PROPERTIES_FILE) -> Security:
    """The credentials and TLS in a file of librdkafka properties; `named` is the setting or option that names the
    file, for messages. Raises SettingsError."""
    try:
        security = security_of(client_properties(file, named))
        if security.mechanism == OAUTHBEARER:
            from controller.access.tokens import ClientToken

            token = ClientToken(security.properties, lambda: wall_ms() / 1000)
            security = replace(security, token=token)
        security.context()
    except (BadCredentials, ValueError) as error:
        raise SettingsError(f"{named}={file}: {error}") from None
    return security


def client_properties(file: str | None, named: str = PROPERTIES_FILE) -> Mapping[str, str]:
    """The librdkafka properties in a file. Raises SettingsError."""
    if file is None:
        return {}
    properties = read_values(Path(file), f"{named}={file}")
    for key in RESERVED_KEYS:
        if key in properties:
            raise SettingsError(f"{named}={file} must not have {key}: Topicwright sets it")
    return properties


def decision_settings(settings: ServeSettings, has_target: bool) -> Configs:
    """The settings that decisions depend on; with `has_target`, also the one that marks a target cluster."""
    return tuple(sorted((*settings.decision_settings(), *((_HAS_TARGET_CLUSTER,) if has_target else ()))))


def _check(metadata: ClusterMetadata, settings: ServeSettings) -> None:
    if settings.cluster_id is not None and settings.cluster_id != metadata.cluster_id:
        raise SettingsError(
            f"cluster.id={settings.cluster_id} is not the id of the target cluster, which is {metadata.cluster_id}: "
            "remove cluster.id"
        )
    if any(broker.node_id == settings.node_id for broker in metadata.brokers):
        ids = ", ".join(str(broker.node_id) for broker in metadata.brokers)
        raise SettingsError(
            f"node.id={settings.node_id} is the id of a broker of the target cluster ({ids}): choose another, "
            "because the controller is an additional node"
        )
