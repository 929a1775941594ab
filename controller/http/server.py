"""Serve the HTTP application on the controller's event loop; `serving.client_listeners` and stream workers start it.

uvicorn's protocol class implements HTTP, but its server is not used: this module listens and stops.
"""

import asyncio
import socket
from functools import partial

import structlog
import uvicorn
from litestar.types import ASGIApp, Receive, Scope, Send

from controller.brokers.simulated import SimulatedBrokers
from controller.controller_api import ControllerApi
from controller.http.app import build_app
from controller.http.connections import ListenerConnections
from controller.http.errors import answer_early
from controller.http.following import Followers
from controller.http.gate import Hosts, Logins
from controller.http.metrics import OPEN_PATHS, Metrics, states
from controller.http.permissions import Reader
from controller.http.query_threads import QueryThreads
from controller.http.reads import head_gauges
from controller.kafka.server.server import ConnectionCounts
from controller.kafka.server.tls import Tls
from controller.machine.errors import ErrorCode
from projections.queries.proving import Sign, unsigned
from projections.queries.query import Queries

BACKLOG = 1024  # connections that the kernel accepts for us
KEEP_ALIVE_S = 75  # longer than clients' and proxies' 60 s, so that they close first
STOP_WITHIN_S = 2  # open requests after that are cut off
STOP_POLL_S = 0.01
LOCAL_HOSTS = Hosts()

_logger = structlog.get_logger("topicwright.http")


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


class HttpListener:
    """Serves one application on one address."""

    def __init__(self, tls: Tls | None = None, counts: ConnectionCounts | None = None) -> None:
        self._tls = tls
        self._counts = counts
        self._server: asyncio.Server | None = None
        self.connections: ListenerConnections

    async def start(self, app: ASGIApp, host: str, port: int) -> int:
        """Listen, and return the port (for port 0, the one chosen). Raises OSError naming the address."""
        listener = _listen(host, port)
        config = uvicorn.Config(
            app,
            interface="asgi3",
            http="h11",
            ws="none",
            lifespan="off",
            proxy_headers=False,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        config.load()
        self.connections = ListenerConnections(config, _busy(app), self._counts, self._tls)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self.connections.accept, sock=listener, backlog=BACKLOG)
        return int(listener.getsockname()[1])

    async def stop(self) -> None:
        """Stop accepting, wait up to STOP_WITHIN_S for open requests, then close."""
        if self._server is None:
            return
        self._server.close()
        self.connections.close()
        state = self.connections.state
        try:
            async with asyncio.timeout(STOP_WITHIN_S):
                while state.connections or state.tasks:  # noqa: ASYNC110 - uvicorn only has the sets
                    await asyncio.sleep(STOP_POLL_S)
        except TimeoutError:
            _logger.error("http server", why=f"{len(state.tasks)} requests did not end within {STOP_WITHIN_S} s")
            for task in state.tasks:
                task.cancel()


def _busy(app: ASGIApp) -> ASGIApp:
    """The application for connections beyond the limit: only health paths are answered; others get 503."""

    async def busy(scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("path") in OPEN_PATHS:
            await app(scope, receive, send)
        else:
            message = "too many connections; try again later"
            await answer_early(send, 503, ErrorCode.REQUEST_TIMED_OUT, message, [(b"connection", b"close")])

    return busy


def _listen(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"cannot listen on {host}:{port} for HTTP: {error.strerror}") from None
    return listener
