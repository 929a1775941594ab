"""Reaching the cluster that carries decisions out, before anything starts: who it is, and what its brokers speak.

The log is the history of one cluster and bears its id, so the cluster is asked for it first. A cluster that cannot be
reached at the start is an error that names its cause; one that goes later is waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec
from structlog.typing import FilteringBoundLogger

from controller.brokers.cluster.connections import ClusterUnreachable
from controller.brokers.cluster.link import ClusterLink, ClusterMetadata
from controller.brokers.cluster.security import BadCredentials, NotAuthenticated, Security, security_of
from controller.brokers.cluster.target_cluster import History, TargetCluster, WatchTimes
from controller.settings.load import ServeSettings, SettingsError
from controller.settings.properties import PropertiesError, read_values
from events.catalog import Configs, Recorded

REACH_WITHIN_S = 30.0  # a cluster that starts at the same time is up by then
CARRIES_OUT = ("cluster.carries.out", "true")
"""Recorded with the settings: decisions depend on it, and nobody sets it but by choosing the brokers."""
PROPERTIES_FILE = "cluster.client.properties.file"
NOT_OURS = ("bootstrap.servers", "client.id")


class ReachedCluster(msgspec.Struct, frozen=True):
    """A cluster that answers."""

    link: ClusterLink
    cluster_id: str

    def brokers(
        self,
        history: History,
        recent: Callable[[], Iterable[Recorded]],
        settings: ServeSettings,
        log: FilteringBoundLogger,
    ) -> TargetCluster:
        """The cluster as brokers."""
        return TargetCluster(self.link, history, watch_times(settings), log, recent=recent)


def watch_times(settings: ServeSettings) -> WatchTimes:
    """How often the cluster is to be looked at."""
    return WatchTimes(
        topics_ms=settings.cluster_watch_interval_ms, configs_ms=settings.cluster_configs_watch_interval_ms
    )


async def reach_cluster(bootstrap: str, settings: ServeSettings, log: FilteringBoundLogger) -> ReachedCluster:
    """Connect to a cluster. Raises SettingsError for credentials and ids that do not fit, and ClusterUnreachable."""
    security = security_in(settings.cluster_client_properties_file)
    return await reach_as(security, bootstrap, log, check=lambda look: _check(look, settings))


async def reach_as(
    security: Security,
    bootstrap: str,
    log: FilteringBoundLogger,
    *,
    within_s: float = REACH_WITHIN_S,
    check: Callable[[ClusterMetadata], None] = lambda _: None,
) -> ReachedCluster:
    """Connect to a cluster; `check` sees the first look at it. Raises SettingsError where it does not take the
    credentials, ClusterUnreachable, and what `check` raises."""
    link = ClusterLink(bootstrap, security)
    try:
        look = await _first_look(link, bootstrap, log, within_s)
        await link.refresh_api_versions()
        check(look)
    except BaseException:
        link.close()
        raise
    return ReachedCluster(link, look.cluster_id)


def security_in(file: str | None, named: str = PROPERTIES_FILE) -> Security:
    """The identity that a file of librdkafka properties describes; `named` is where the file is named. Raises
    SettingsError."""
    try:
        security = security_of(client_properties(file, named))
        security.context()
    except BadCredentials as error:
        raise SettingsError(f"{named}={file}: {error}") from None
    return security


def client_properties(file: str | None, named: str = PROPERTIES_FILE) -> Mapping[str, str]:
    """The librdkafka properties in a file. Raises SettingsError."""
    if file is None:
        return {}
    try:
        properties = read_values(Path(file))
    except PropertiesError as error:
        raise SettingsError(f"{named}={file} {error}") from None
    for key in NOT_OURS:
        if key in properties:
            raise SettingsError(f"{named}={file} must not have {key}: that is set elsewhere")
    return properties


def decision_settings(settings: ServeSettings, carries_out: bool) -> Configs:
    """The settings that decisions depend on, with the one that comes with the target cluster."""
    return tuple(sorted((*settings.decision_settings(), *((CARRIES_OUT,) if carries_out else ()))))


async def _first_look(link: ClusterLink, bootstrap: str, log: FilteringBoundLogger, within_s: float) -> ClusterMetadata:
    deadline = asyncio.get_running_loop().time() + within_s
    is_logged = False
    while True:
        try:
            return await link.metadata()
        except NotAuthenticated as error:
            raise SettingsError(f"the cluster at {bootstrap}: {error}") from None
        except ClusterUnreachable as error:
            if asyncio.get_running_loop().time() >= deadline:
                message = f"the cluster at {bootstrap} cannot be reached within {within_s:g} s: {error}"
                raise ClusterUnreachable(message) from None
            if not is_logged:
                log.warning("the cluster cannot be reached yet", bootstrap=bootstrap, why=str(error))
                is_logged = True
            await asyncio.sleep(0.5)


def _check(look: ClusterMetadata, settings: ServeSettings) -> None:
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
