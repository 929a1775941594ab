"""A complete controller with an HTTP server in the test's own event loop, reached through real sockets."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx

from controller.access.authorizer import Operation, Requester, ResourceType, StandardAuthorizer
from controller.brokers.simulated import SimulatedBrokers
from controller.controller_api import ControllerApi
from controller.engine.group_commit import Controller
from controller.engine.reports import Reports
from controller.http.gate import Logins
from controller.http.metrics import Metrics
from controller.http.server import HttpServer
from controller.machine.access.acls import Acls
from controller.policy import RequestMetadata
from controller.policy.interface import Request
from events.catalog import Endpoint, Observation, Verdict
from events.logs.log import EventLog
from projections.queries.query import Queries, Query
from tests.apis.rig import Unheard
from tests.support.memory_log import InMemoryLog

SETTINGS = {"default.replication.factor": "3", "num.partitions": "2"}
POLICY = {"create.topic.policy.class.name": "tests.Owned"}
REACHED_WITHIN_S = 240.0
Judgement = Callable[[Any], Verdict]


class Judge:
    """Policies given as a function. Clearing `may_answer` delays their verdicts."""

    def __init__(self, judge: Judgement) -> None:
        self._judge = judge
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def judge(self, requests: Sequence[Request]) -> tuple[Verdict, ...]:
        await self.may_answer.wait()
        return tuple(map(self._judge, requests))

    async def close(self, timeout_s: float) -> tuple[str, ...]:
        return ()


def owned(request: RequestMetadata) -> Verdict:
    """Refuses names without an owner; observes topics of one partition."""
    if "." not in request.topic:
        return Verdict("refused", "tests.Owned", "policy:tests.Owned/owner", f"{request.topic} has no owner")
    noted = (Observation("policy:tests.Owned/size", "one partition is few"),) if request.num_partitions == 1 else ()
    return Verdict("allowed", observed=noted)


class Rules(StandardAuthorizer):
    """An authorizer given as a function."""

    def __init__(self, allows: Callable[[Requester, Operation, ResourceType, str], bool]) -> None:
        super().__init__(Acls)
        self._rule = allows

    def allows(self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return self._rule(requester, operation, resource_type, name)

    def allows_any(self, requester: Requester, operation: Operation, resource_type: ResourceType) -> bool:
        """Always True: there may be such a resource."""
        return True


class Half(Rules):
    """Everybody may create and delete topics, and describe those with one of `prefixes`."""

    def __init__(self, *more: tuple[Operation, ResourceType], prefixes: tuple[str, ...] = ("open",)) -> None:
        self._more = {("Create", "Topic"), ("Delete", "Topic"), *more}
        self._prefixes = prefixes
        super().__init__(self._allows)

    def _allows(self, _: Requester, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        if (operation, resource_type) == ("Describe", "Topic"):
            return name.startswith(self._prefixes)
        return (operation, resource_type) in self._more


class Service:
    """The parts of a controller, and a client of its HTTP server."""

    def __init__(
        self,
        log: EventLog,
        settings: dict[str, str],
        judge: Judge | None = None,
        authorizer: StandardAuthorizer | None = None,
        logins: Logins | None = None,
    ) -> None:
        self.log = log
        self.settings = tuple(sorted({**SETTINGS, **settings}.items()))
        self.brokers = SimulatedBrokers(3)
        self.metrics = Metrics()
        self.judge = judge
        self.controller = Controller(
            log,
            self.brokers,
            boot_id="boot",
            clock_ms=lambda: time.time_ns() // 1_000_000,
            flush=lambda: asyncio.to_thread(log.flush),
            reports=Reports(Unheard(), lambda _: None, self.metrics),
            policies=judge,
        )
        endpoint = Endpoint("PLAINTEXT", "localhost", 9092)
        self.api = ControllerApi(self.controller, node_id=0, advertised=endpoint, authorizer=authorizer)
        self.query = Queries([Query(log, lambda: self.controller.store)])
        self.http = self.http_side(logins=logins)
        self.port = 0
        self.client: httpx.AsyncClient

    def http_side(self, *, simulated: bool = True, **more: Any) -> HttpServer:
        """Returns another HTTP server of the controller, not started."""
        return HttpServer(self.api, self.brokers if simulated else None, self.query, self.metrics, **more)

    @asynccontextmanager
    async def another(self, host: str = "127.0.0.1", **more: Any) -> AsyncIterator[tuple[HttpServer, int]]:
        """Yields another HTTP server of the same controller, started, and its port."""
        other = self.http_side(**more)
        try:
            yield other, await other.start(host, 0)
        finally:
            await other.stop()

    async def request(self, method: str, path: str, expect: int = 200, **more: Any) -> Any:
        """Send a request, check its status, and return its JSON."""
        answer = await self.client.request(method, path, **more)
        assert answer.status_code == expect, f"{method} {path}: {answer.status_code} {answer.text}"
        assert answer.headers["content-type"].startswith("application/"), answer.headers
        return answer.json()

    async def get(self, path: str, expect: int = 200, **parameters: Any) -> Any:
        return await self.request("GET", path, expect, params=parameters or None)

    async def pages(self, path: str, **parameters: Any) -> list[Any]:
        """Returns all pages of a list."""
        pages = [await self.get(path, **parameters)]
        while (cursor := pages[-1].get("next_cursor")) is not None:
            pages.append(await self.get(path, **{**parameters, "cursor": cursor}))
        return pages

    async def create(self, name: str, expect: int = 201, **body: Any) -> Any:
        return await self.request("POST", "/v1/topics", expect, json={"name": name, **body})

    def submit_internal(self, kind: Callable[..., Any], **fields: Any) -> None:
        """Submit an internal command; no client waits for it."""
        self.controller.submit_internal(
            kind(request_id=self.controller.new_request_id(), at_ms=self.controller.now_ms(), **fields)
        )

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until the controller's state satisfies a condition."""
        async with asyncio.timeout(REACHED_WITHIN_S):
            while not reached():  # noqa: ASYNC110 - the condition is in the controller's state
                await asyncio.sleep(0.005)

    async def live(self, *broker_ids: int) -> None:
        """Wait until exactly these brokers are live and all topics are reconciled."""
        await self.until(lambda: tuple(self.api.cluster.live) == broker_ids and self.controller.is_reconciled())


def followers(one: Service) -> int:
    """The number of clients that follow the events."""
    gauges = {name: value for gauges in one.metrics._gauges for name, _, value in gauges()}
    return int(gauges["followers"])


@asynccontextmanager
async def service(
    log: EventLog | None = None, settings: dict[str, str] | None = None, **parts: Any
) -> AsyncIterator[Service]:
    """Yields a started service with three live brokers, and stops it at the end."""
    one = Service(log or InMemoryLog("http-tests"), settings or {}, **parts)
    await one.controller.start(one.settings, "9.9")
    one.port = await one.http.start("127.0.0.1", 0)
    try:
        client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{one.port}", timeout=REACHED_WITHIN_S, verify=False)
        async with client as one.client:  # loading certificates would take most of the time
            await one.live(1, 2, 3)
            yield one
    finally:
        await one.http.stop()
        await one.controller.stop()
