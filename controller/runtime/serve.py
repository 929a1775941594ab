"""`topicwright serve`: one process with an event log, a fleet of brokers, Kafka's wire and HTTP.

Puts the parts together and ends them in order: stop accepting, answer what is decided, flush, close.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import structlog

from controller.brokers.cluster import RECENT_EVENTS, ClusterFleet
from controller.brokers.simulated import SimulatedFleet
from controller.http.metrics import Metrics
from controller.http.server import HttpServer
from controller.kafka.connection import Limits
from controller.kafka.listeners import cluster_listener, controller_listener
from controller.kafka.messages import APIS
from controller.kafka.server import KafkaServer
from controller.policy.chain import PolicyChain, PolicyProbe
from controller.policy.loading import load_policies
from controller.policy.runner import PolicyRunner
from controller.runtime.broker_doors import BrokerDoors
from controller.runtime.embedded import Controller
from controller.runtime.front import Front, new_topic_ids
from controller.runtime.logs import write_lines
from controller.runtime.reaching import ReachedCluster, decision_settings, reach_cluster
from controller.runtime.reports import Reports
from controller.runtime.settings import ServeSettings
from events.catalog import EVENT_VERSION, Endpoint, Recorded
from events.codec import decode_event
from events.names import ShardKey
from events.rocksdb_log import RocksDbLog
from projections.query import Query

RELEASE = "0.1.0"
FAILED = 3
"""The exit code of a service that a bug or a log beyond recovery has ended; its log lines have the cause."""
DEFAULT_HTTP_PORT = 8080
DRAIN_S = 3.0
"""How long answers in flight may take once the service is told to stop; with the rest it ends within 5 s."""
SWITCH_S = 0.001
"""How long a thread keeps the interpreter while others want it."""
PARTITION_BYTES = 1000
"""About what one decoded partition takes in the cache of topics, which keeps two generations."""


class Address(msgspec.Struct, frozen=True):
    """Where to listen."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `serve` was asked to do."""

    kafka: Address
    http: Address
    data: Path
    simulated_brokers: int
    cluster: str | None = None
    """Where to find the Kafka cluster that carries decisions out (HOST:PORT[,…]), in place of simulated brokers."""
    settings: ServeSettings
    hints: bool = False
    """Say what to type next, once ready."""


class Service:
    """Everything that one `serve` runs. Made with its log open: raises LogError and PolicyLoadError."""

    def __init__(self, options: ServeOptions, cluster: ReachedCluster | None = None) -> None:
        self.options = options
        self._cluster = cluster
        self._log = structlog.get_logger("topicwright")
        self._flusher = ThreadPoolExecutor(1, thread_name_prefix="flush")
        self.metrics = Metrics()
        self._policies = self._load_policies()
        self.log = self._open_log()

    def _open_log(self) -> RocksDbLog:
        settings = self.options.settings
        log = RocksDbLog.open(
            self.options.data,
            cluster_id=settings.cluster_id if self._cluster is None else self._cluster.cluster_id,
            event_version=EVENT_VERSION,
            new_cluster_id=_new_cluster_id,
            cache_bytes=settings.store_cache_bytes // 2,
        )
        if log.cut is not None:
            self._log.warning("torn tail cut off: nobody was answered for it", offset=log.cut)
        return log

    async def start(self) -> None:
        """Start deciding, then take requests. Raises OSError when an address cannot be had."""
        options, settings = self.options, self.options.settings
        self.fleet = self._make_fleet()
        self.controller = Controller(
            self.log,
            self.fleet,
            boot_id=os.urandom(5).hex(),
            clock_ms=lambda: time.time_ns() // 1_000_000,
            flush=self._flush,
            reports=Reports(self._log, write_lines, self.metrics, decisions=settings.log_level in ("debug", "info")),
            policies=PolicyRunner(self._policies, probe=self._probe()) if self._policies else None,
            cluster=self.fleet if isinstance(self.fleet, ClusterFleet) else None,
            partitions_cached=settings.store_cache_bytes // 2 // PARTITION_BYTES,
        )
        await self._listen()
        self.metrics.watch(self._gauges)
        await self.controller.start(decision_settings(settings, self._cluster is not None), RELEASE)
        if isinstance(self.fleet, ClusterFleet):
            await self.fleet.looked()
        await self.controller.decided()
        await self._open_doors()
        self.http = HttpServer(self.front, self.fleet, Query(self.log, lambda: self.controller.store), self.metrics)
        self.http_port = await self.http.start(options.http.host, options.http.port)
        # Queries run in threads: they hand the interpreter back soon, so that deciding does not wait for them.
        sys.setswitchinterval(SWITCH_S)
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)

    def _make_fleet(self) -> SimulatedFleet | ClusterFleet:
        options = self.options
        if self._cluster is None:
            return SimulatedFleet(options.simulated_brokers)
        return self._cluster.fleet(self._history, self._recent, options.settings, self._log)

    def _history(self, shard: ShardKey) -> Iterator[Recorded]:
        return (decode_event(offset, self.log.read_one(offset)) for offset in self.log.shard_offsets(shard))

    def _recent(self) -> Iterator[Recorded]:
        end = self.log.durable_offset
        return (decode_event(offset, value) for offset, value in self.log.read(max(0, end - RECENT_EVENTS), end))

    def _load_policies(self) -> PolicyChain | None:
        names = self.options.settings.create_topic_policy_class_name
        return load_policies(names, self.options.settings.as_mapping()) if names else None

    def _probe(self) -> PolicyProbe:
        def failed(policy: str, topic: str, error: BaseException) -> None:
            self._log.error("policy failed", policy=policy, topic=topic, exc_info=error)

        return PolicyProbe(
            clock=time.perf_counter,
            on_judged=self.metrics.policy_judged,
            on_exception=failed,
        )

    async def _flush(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._flusher, self.log.flush)

    async def _listen(self) -> None:
        options, settings = self.options, self.options.settings
        self._server = main = self._make_server(options.kafka.host, options.kafka.port)
        await main.start()
        advertised = settings.advertised_endpoint or Endpoint("PLAINTEXT", reachable(options.kafka.host), main.port)
        self.kafka_port = main.port
        self.front = Front(
            self.controller,
            node_id=settings.node_id,
            advertised=advertised,
            broker_listeners=settings.simulated_broker_listeners or self._cluster is not None,
            partitions_per_response_max=settings.max_request_partition_size_limit,
        )
        self._doors: BrokerDoors | None = None
        if isinstance(self.fleet, ClusterFleet):
            fleet = self.fleet
            self.front.fleet_trouble = lambda: fleet.trouble
            return
        self.fleet.default_endpoint = advertised
        if settings.simulated_broker_listeners:
            self._doors = BrokerDoors(options.kafka.host, advertised, self.fleet, self._make_server)

    async def _open_doors(self) -> None:
        """Take requests: the brokers are registered, and the settings stand in the log."""
        versions_max = dict(self.options.settings.api_versions_max)
        if self._cluster is None:
            self._server.handlers = controller_listener(self.front, versions_max)
        else:
            spoken, pass_on = self._cluster.spoken, self._cluster.link.pass_on
            self._server.handlers = cluster_listener(self.front, versions_max, spoken, pass_on)
        if self._doors is not None:
            await self._doors.open(self.front, versions_max)

    def _make_server(self, host: str, port: int) -> KafkaServer:
        # perf_counter, because uvloop's own clock stands still within a turn of the loop and counts in ms.
        limits, clock = limits_of(self.options.settings), time.perf_counter
        return KafkaServer(host, port, {}, limits=limits, on_request=self._requested, clock=clock)

    def _gauges(self) -> list[tuple[str, str, float]]:
        open_now = self._server.connections + (self._doors.connections if self._doors is not None else 0)
        return [("connections", "Kafka connections that are open.", open_now)]

    def _requested(self, api_key: int, version: int, outcome: str, seconds: float) -> None:
        api = APIS.get(api_key)
        self.metrics.request(api.name if api is not None else str(api_key), version, outcome, seconds)

    def abandon(self) -> None:
        """Let go of the log after a start that was not finished: nobody was answered yet."""
        self.log.close()
        self._flusher.shutdown()

    async def stop(self) -> None:
        """Stop accepting, answer what is decided, flush, close."""
        if self._doors is not None:
            await self._doors.stop(0)
        await asyncio.gather(self._server.stop(DRAIN_S), self.http.stop())
        await self.controller.stop()
        self.log.close()
        self._flusher.shutdown()


def _new_cluster_id() -> str:
    """A random cluster id in Kafka's form: sixteen bytes in base64url."""
    return base64.urlsafe_b64encode(new_topic_ids(1)[0]).rstrip(b"=").decode()


def limits_of(settings: ServeSettings) -> Limits:
    """What a listener puts up with."""
    return Limits(
        request_bytes_max=settings.socket_request_max_bytes,
        connections_max=settings.max_connections,
        idle_ms_max=settings.connections_max_idle_ms,
        requests_in_flight_max=settings.max_in_flight_requests_per_connection,
    )


def reachable(host: str) -> str:
    """The address by which clients on this machine reach a listener bound to every address."""
    return "127.0.0.1" if host in {"0.0.0.0", "::", ""} else host


async def serve(options: ServeOptions) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code. Raises what kept the service from starting."""
    loop = asyncio.get_running_loop()
    cluster = None
    if options.cluster is not None:
        cluster = await reach_cluster(options.cluster, options.settings, structlog.get_logger("topicwright"))
    service = Service(options, cluster)
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    stopping = loop.create_task(told.wait())
    starting = loop.create_task(service.start())
    await asyncio.wait((stopping, starting), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():  # the disk was full from the first moment, say, and the service is told to give up
        starting.cancel()
        await asyncio.wait((starting,))
        service.abandon()
        return 0
    await starting
    kafka, http = Address(options.kafka.host, service.kafka_port), Address(options.http.host, service.http_port)
    print(f"ready kafka={kafka} http={http}", flush=True)
    if options.hints:
        _say_what_next(kafka, http)
    failing = loop.create_task(service.controller.failed.wait())
    await asyncio.wait((stopping, failing), return_when=asyncio.FIRST_COMPLETED)
    code = FAILED if failing.done() else 0
    stopping.cancel()
    failing.cancel()
    await service.stop()
    return code


def _say_what_next(kafka: Address, http: Address) -> None:
    where = "" if http.port == DEFAULT_HTTP_PORT else f" --http {http}"
    print(
        f"""
Topicwright answers Kafka clients on {kafka} and HTTP on {http}. In another terminal:

  curl -s -X POST http://{http}/topics -d '{{"name": "pay.orders", "num_partitions": 3}}'    create a topic
  .venv/bin/topicwright topics pay.orders{where}        what is
  .venv/bin/topicwright explain pay.orders{where}       why it is so
  .venv/bin/topicwright demo                     a story in a minute, with a real Kafka client

Any Kafka client will do: bootstrap.servers={kafka}. Ctrl-C stops; the log stays in the data folder.
""",
        flush=True,
    )
