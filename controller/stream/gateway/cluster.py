"""The cluster that carries the workers' decisions out, as a gateway reaches it.

Its brokers are known from the events, so nobody has to name them here. What is not about topics is passed on to them;
and the gateway looks at them now and then, so that its health shows when nothing can be carried out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from controller.brokers.cluster.connections import ClusterUnreachable
from controller.brokers.cluster.security import NotAuthenticated, Security
from controller.machine.state import Cluster
from controller.serving.process import reached
from controller.serving.reach_cluster import ReachedCluster, reach_as


class GatewayCluster:
    """The brokers that `cluster` knows; `security` says who we are there."""

    def __init__(self, cluster: Callable[[], Cluster], security: Security, look_every_s: float) -> None:
        self.trouble: str | None = "it was not reached yet"
        """Why the cluster cannot be reached now; None when it can."""
        self._cluster = cluster
        self._security = security
        self._look_every_s = look_every_s
        self._log = structlog.get_logger("topicwright")
        self._reached: ReachedCluster | None = None
        self._looking: asyncio.Task[None] | None = None

    async def reached(self) -> ReachedCluster:
        """The cluster, as soon as it answers. Raises SettingsError for wrong credentials."""
        where = "the cluster that carries decisions out"
        self._reached = await reached(where, self._reach, ClusterUnreachable)
        self._looking = asyncio.create_task(self._look(), name="look at the cluster")
        return self._reached

    async def stop(self) -> None:
        """Look no more, and close the connections."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        if self._reached is not None:
            self._reached.link.close()

    async def _reach(self) -> ReachedCluster:
        addresses = addresses_of(self._cluster())
        if not addresses:
            raise ClusterUnreachable("no worker has registered its brokers yet")
        return await reach_as(self._security, ",".join(addresses), self._log, within_s=0)

    async def _look(self) -> None:
        assert self._reached is not None, "it was reached"
        while True:
            try:
                await self._reached.link.refresh_api_versions()
                trouble = None
            except (ClusterUnreachable, NotAuthenticated) as error:
                trouble = str(error)
            if (trouble is None) != (self.trouble is None):
                self._log.warning("the cluster is lost" if trouble else "the cluster is back", why=trouble)
            self.trouble = trouble
            await asyncio.sleep(self._look_every_s)


def addresses_of(cluster: Cluster) -> list[str]:
    """HOST:PORT of the brokers that live, else of all."""
    live = [broker for _, broker in sorted(cluster.brokers.items()) if not broker.fenced]
    endpoints = [broker.endpoints[0] for broker in live or cluster.brokers.values() if broker.endpoints]
    return [f"{one.host}:{one.port}" for one in endpoints if one.port > 0]
