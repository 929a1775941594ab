"""Every page of a long log: its response time, and how long it blocks the event loop.

    python -m benchmarks.pages DIR

DIR has a log of `benchmarks.history`, such as `python -m benchmarks.history DIR --events 10000000` writes. It is opened
like the log of a stopped service, without other work. Pages are requested as by a browser, over a socket and
compressed. The client runs in the same loop, so its work counts too.
"""

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import httpx

from benchmarks.figures import Figure, percentile, show
from benchmarks.history import PAGE_MAX
from controller.access.refusals import RefusalRecords
from controller.controller_api import ControllerApi, ControllerStatus, Reply
from controller.http.metrics import Metrics
from controller.http.server import HttpServer
from controller.machine.commands.commands import ClientCommand
from controller.serving.process import SWITCH_S, tune_interpreter
from controller.store.store import TopicStore
from events.catalog import Endpoint
from events.logs.rocksdb_log import RocksDbLog
from events.names import RequestId
from projections.queries.query import Queries, Query

TIMES = 8
ASLEEP_S = 0.001
HTML = {"accept": "text/html", "accept-encoding": "gzip"}
PAGE_MS = "200"
PRESENT = ("difference", "a request", "access", "approvals", "risks", "what-if")
"""Pages that have no past."""
COUNTED = ("risks", "what-if")
"""Pages that show a count of all topics while it grows; the next pages are requested when it is complete."""


class Stopped:
    """A controller without commands, which only serves its log."""

    def __init__(self, log: RocksDbLog) -> None:
        self.store = TopicStore(log)
        self.cluster_id = "bench"
        self._events = log.durable_offset

    def status(self) -> ControllerStatus:
        """No command waits."""
        return ControllerStatus(self._events, 0, 0, None, None)

    @property
    def refusals(self) -> RefusalRecords:
        """Not supported: no command is refused."""
        raise NotImplementedError

    def now_ms(self) -> int:
        """Always 0."""
        return 0

    def new_request_id(self, origin: str = "") -> RequestId:
        """Not supported: no command is submitted."""
        raise NotImplementedError(origin)

    def submit(self, commands: Sequence[ClientCommand], timeout_ms: int = 0) -> asyncio.Future[Reply]:
        """Not supported: no command is submitted."""
        raise NotImplementedError(commands, timeout_ms)


class Standstill:
    """The longest time for which the loop was blocked: wall time, and the loop's processor time, which excludes other
    processes."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.worked_s = 0.0

    async def watch(self) -> None:
        """Measure until cancelled."""
        while True:
            started, worked = time.perf_counter(), time.thread_time()
            await asyncio.sleep(ASLEEP_S)
            self.longest_s = max(self.longest_s, time.perf_counter() - started - ASLEEP_S)
            self.worked_s = max(self.worked_s, time.thread_time() - worked)


async def measured(folder: Path) -> list[Figure]:
    """Request each page several times, for now and for past points in time."""
    sys.setswitchinterval(SWITCH_S)
    log = RocksDbLog(folder, cluster_id=None, new_cluster_id=str)
    controller = Stopped(log)
    gateway = ControllerApi(controller, node_id=0, advertised=Endpoint("PLAINTEXT", "localhost", 9092))
    http = HttpServer(gateway, None, Queries([Query(log, lambda: controller.store)]), Metrics())
    port = await http.start("127.0.0.1", 0)
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=HTML, timeout=600) as client:
            await client.get("/")
            tune_interpreter()  # as a service does when it is ready
            found = [await _timed(client, *each, log.durable_offset) for each in (await _paths(client, log)).items()]
            found.append(await _whole_list(client, log.durable_offset - 1))
            return [figure for figures in found for figure in figures]
    finally:
        await http.stop()
        log.close()


async def _paths(client: httpx.AsyncClient, log: RocksDbLog) -> dict[str, list[str]]:
    as_json = {"accept": "application/json"}
    topics = (await client.get("/v1/topics?limit=12", headers=as_json)).json()["topics"]
    requests = (await client.get("/v1/requests?limit=12", headers=as_json)).json()["requests"]
    end = log.durable_offset
    return {
        "the overview": ["/"],
        "topics": ["/topics", "/topics?status=not-ready", "/topics?name=*7*"],
        "a topic": [f"/topics/{one['name']}" for one in topics],
        "requests": ["/requests", "/requests?outcome=rejected", "/requests?api=CreateTopics"],
        "a request": [f"/requests/{one['request_id']}" for one in requests if not one["counted"]],
        "brokers": ["/brokers", "/brokers/1"],
        "events": ["/events", "/events?type=TopicDeleted"],
        "policies": ["/policies"],
        "changes": ["/changes", "/changes?principal=User:team-7", f"/changes?topic={topics[0]['name']}"],
        "an explanation": [f"/explain/{one['name']}" for one in topics],
        "access": ["/access"],
        "approvals": ["/approvals"],
        "risks": ["/risks"],
        "what-if": ["/whatif", "/whatif?change=lose-broker+1", "/whatif?change=min.insync.replicas%3D3"],
        "difference": [f"/diff?from={start}" for start in (end - 100, end - 10_000, end // 2, end // 10)],
    }


async def _timed(client: httpx.AsyncClient, kind: str, paths: list[str], end: int) -> list[Figure]:
    """Measures one kind of page, for now and, if it has a past, for past points in time."""
    chance = random.Random(7)
    has_past = kind not in PRESENT
    figures = []
    for words, is_past in (("", False), (" at any moment", True))[: 1 + has_past]:
        took, core, still = [], [], Standstill()
        for number in range(TIMES):
            path = paths[number % len(paths)]
            if is_past:
                path += f"{'&' if '?' in path else '?'}at={chance.randrange(end // 2, end)}"
            used = time.process_time()
            took.append(await _one(client, path, still))
            core.append((time.process_time() - used) * 1000)
        for path in [one for one in paths if kind in COUNTED]:
            while "data-counting" in (await client.get(path)).text:  # noqa: ASYNC110 - as the page does
                await asyncio.sleep(ASLEEP_S)
        note = (
            f"half within {percentile(took, 0.5):.3g}; of a core at most {max(core):.3g}, half within "
            f"{percentile(core, 0.5):.3g}; the loop held {still.longest_s * 1000:.3g} ms, {still.worked_s * 1000:.3g} "
            "of a core"
        )
        figures.append(Figure(f"{kind}{words}, longest of {TIMES}", "ms", max(took), None, PAGE_MS, note))
    return figures


async def _whole_list(client: httpx.AsyncClient, at: int) -> list[Figure]:
    """Measures a list of all topics at a point in time, requested as by `topicwright topics --at`."""
    still, used, started = Standstill(), time.process_time(), time.perf_counter()
    watch = asyncio.create_task(still.watch())
    cursor, count = "", 0
    while cursor is not None:
        path = f"/v1/topics?at={at}&limit={PAGE_MAX}" + (f"&cursor={cursor}" if cursor else "")
        page = (await client.get(path, headers={"accept": "application/json"})).json()
        cursor, count = page["next_cursor"], count + len(page["topics"])
    took_s, core_s = time.perf_counter() - started, time.process_time() - used
    watch.cancel()
    with suppress(asyncio.CancelledError):
        await watch
    note = (
        f"{core_s:.3g} of a core, reading the JSON again among it; the loop held {still.longest_s * 1000:.3g} ms, "
        f"{still.worked_s * 1000:.3g} of a core"
    )
    return [Figure(f"all {count:,} topics of a moment as JSON", "s", took_s, None, "6", note)]


async def _one(client: httpx.AsyncClient, path: str, still: Standstill) -> float:
    watch = asyncio.create_task(still.watch())
    started = time.perf_counter()
    answer = await client.get(path)
    took_ms = (time.perf_counter() - started) * 1000
    watch.cancel()
    with suppress(asyncio.CancelledError):
        await watch
    assert answer.status_code in (200, 404), f"{path}: {answer.text[:500]}"
    return took_ms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    show(asyncio.run(measured(options.folder)), options.json)


if __name__ == "__main__":
    main()
