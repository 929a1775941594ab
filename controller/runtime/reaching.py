"""Reaching the cluster that carries decisions out, before anything starts: who it is, and what its brokers speak.

The log is the history of one cluster and bears its id, so the cluster is asked for it first. A cluster that cannot be
reached at the start is an error, told with its cause; one that goes later is waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from controller.brokers.cluster import ClusterFleet, History, WatchTimes
from controller.brokers.cluster_link import ClusterLink, Look
from controller.brokers.cluster_security import BadCredentials, NotAuthenticated, security_of
from controller.brokers.cluster_wire import ClusterUnreachable
from controller.kafka.messages.api_versions import ApiVersionsResponse
from controller.runtime.properties import PropertiesError, read_properties
from controller.runtime.settings import ServeSettings, SettingsError
from events.catalog import Configs

REACH_WITHIN_S = 30.0
CARRIES_OUT = ("cluster.carries.out", "true")
"""Recorded with the settings: decisions depend on it, and nobody sets it but by choosing the fleet."""
NOT_OURS = ("bootstrap.servers", "client.id")


class ReachedCluster(msgspec.Struct, frozen=True):
    """A cluster that answers."""

    link: ClusterLink
    cluster_id: str
    spoken: ApiVersionsResponse

    def fleet(self, history: History, settings: ServeSettings, log: Any) -> ClusterFleet:
        """The cluster as a fleet."""
        times = WatchTimes(
            topics_ms=settings.cluster_watch_interval_ms, configs_ms=settings.cluster_configs_watch_interval_ms
        )
        return ClusterFleet(self.link, history, times, log)


async def reach_cluster(bootstrap: str, settings: ServeSettings, log: Any) -> ReachedCluster:
    """Connect to a cluster. Raises SettingsError for credentials and ids that do not fit, and ClusterUnreachable."""
    try:
        security = security_of(client_properties(settings.cluster_client_properties_file))
        security.context()
    except BadCredentials as error:
        raise SettingsError(
            f"cluster.client.properties.file={settings.cluster_client_properties_file}: {error}"
        ) from None
    link = ClusterLink(bootstrap, security, log=log)
    try:
        look = await _first_look(link, bootstrap, log)
        spoken = await link.api_versions()
        _check(look, settings)
    except BaseException:
        link.close()
        raise
    return ReachedCluster(link, look.cluster_id, spoken)


def client_properties(file: str | None) -> Mapping[str, str]:
    """The librdkafka properties in a file. Raises SettingsError."""
    if file is None:
        return {}
    try:
        read = read_properties(Path(file).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, PropertiesError) as error:
        raise SettingsError(f"cluster.client.properties.file={file} cannot be read: {error}") from None
    properties = {one.key: one.value.strip() for one in read}
    for key in NOT_OURS:
        if key in properties:
            raise SettingsError(f"cluster.client.properties.file={file} must not have {key}: that is set elsewhere")
    return properties


def decision_settings(settings: ServeSettings, carries_out: bool) -> Configs:
    """The settings that decisions depend on, with the one that the fleet brings."""
    return tuple(sorted((*settings.decision_settings(), *((CARRIES_OUT,) if carries_out else ()))))


async def _first_look(link: ClusterLink, bootstrap: str, log: Any) -> Look:
    deadline = asyncio.get_running_loop().time() + REACH_WITHIN_S
    told = False
    while True:
        try:
            return await link.look()
        except NotAuthenticated as error:
            raise SettingsError(f"the cluster at {bootstrap}: {error}") from None
        except ClusterUnreachable as error:
            if asyncio.get_running_loop().time() >= deadline:
                message = f"the cluster at {bootstrap} cannot be reached within {REACH_WITHIN_S:g} s: {error}"
                raise ClusterUnreachable(message) from None
            if not told:
                log.warning("the cluster cannot be reached yet", bootstrap=bootstrap, why=str(error))
                told = True
            await asyncio.sleep(0.5)


def _check(look: Look, settings: ServeSettings) -> None:
    if settings.cluster_id is not None and settings.cluster_id != look.cluster_id:
        raise SettingsError(
            f"cluster.id={settings.cluster_id} is not the id of the cluster that carries decisions out, which is "
            f"{look.cluster_id}: leave cluster.id out"
        )
    if any(broker.broker_id == settings.node_id for broker in look.brokers):
        ids = ", ".join(str(broker.broker_id) for broker in look.brokers)
        raise SettingsError(
            f"node.id={settings.node_id} is the id of a broker of the cluster ({ids}), and the controller is a node "
            "beside them: choose another"
        )
