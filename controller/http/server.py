"""Serves the HTTP application of a controller or gateway, on its event loop. `serving.client_listeners` starts it."""

import asyncio
from functools import partial

from controller.brokers.simulated import SimulatedBrokers
from controller.controller_api import ControllerApi
from controller.http.app import build_app
from controller.http.connections import HttpListener
from controller.http.following import Followers
from controller.http.gate import Hosts, Logins
from controller.http.metrics import Metrics, states
from controller.http.permissions import Reader
from controller.http.query_threads import QueryThreads
from controller.http.reads import head_gauges
from controller.kafka.server.server import ConnectionCounts
from controller.kafka.server.tls import Tls
from projections.queries.proving import Sign, unsigned
from projections.queries.query import Queries

LOCAL_HOSTS = Hosts()


class HttpServer:
    """The JSON API, pages and metrics of one controller, on one HTTP listener."""

    def __init__(
        self,
        api: ControllerApi,
        brokers: SimulatedBrokers | None,
        query: Queries,
        metrics: Metrics,
        *,
        tls: Tls | None = None,
        logins: Logins | None = None,
        hosts: Hosts = LOCAL_HOSTS,
        counts: ConnectionCounts | None = None,
        sign: Sign = unsigned,
    ) -> None:
        """`tls` makes the listener HTTPS. Without `logins` clients need no login. Without `counts` connections per
        address are not limited. `sign` signs the tree heads of the log."""
        self._hosts = hosts
        self._reader = Reader(api, query, QueryThreads())
        self.followers = Followers(self._reader)
        self._build_app = partial(build_app, self._reader, brokers, metrics, self.followers, sign, logins)
        self._listener = HttpListener(tls, counts)
        metrics.watch(lambda: states(api))
        metrics.watch(lambda: head_gauges(query))
        metrics.watch(lambda: [("followers", "Clients that follow the events over HTTP.", len(self.followers))])

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port (for port 0, the one chosen). Raises OSError naming the address."""
        app = await asyncio.to_thread(self._build_app, self._hosts.named(host))
        return await self._listener.start(app, host, port)

    async def stop(self) -> None:
        """Stop accepting, wait up to STOP_WITHIN_S for open requests, then close."""
        self._reader.threads.stopping.set()
        self._reader.queries.close()
        await self._listener.stop()
        self._reader.threads.close()
