"""`topicwright serve`: one process with an event log, a fleet of brokers, Kafka's wire and HTTP.

Puts the parts together and ends them in order: stop accepting, answer what is decided, flush, close.
"""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec
import structlog

from controller.brokers.cluster import RECENT_EVENTS, ClusterFleet
from controller.brokers.fleet import EVENTS_ALONE
from controller.brokers.kraft.fleet import KraftFleet
from controller.brokers.simulated import SimulatedFleet
from controller.http.metrics import Metrics
from controller.http.server import HttpServer
from controller.kafka.listeners import HandlerTable, cluster_listener
from controller.policy.chain import PolicyChain, PolicyProbe
from controller.policy.loading import load_policies
from controller.policy.runner import PolicyRunner
from controller.release import RELEASE
from controller.runtime.broker_doors import BrokerDoors
from controller.runtime.collecting import settle
from controller.runtime.embedded import Controller
from controller.runtime.entrance import Address, Entrance
from controller.runtime.front import Front, new_topic_ids
from controller.runtime.kraft import kraft_fleet, real_broker_listener, refuse_other_fleets
from controller.runtime.logs import write_lines
from controller.runtime.mutation_quotas import MutationQuotas
from controller.runtime.reaching import ReachedCluster, decision_settings, reach_cluster
from controller.runtime.reports import Reports
from controller.runtime.settings import ServeSettings
from events.catalog import EVENT_VERSION, Recorded
from events.codec import decode_event
from events.names import ShardKey
from events.rocksdb_log import RocksDbLog
from projections.query import Query

FAILED = 3
"""The exit code of a service that a bug or a log beyond recovery has ended; its log lines have the cause."""
DEFAULT_HTTP_PORT = 8080
DRAIN_S = 3.0
"""How long answers in flight may take once the service is told to stop; with the rest it ends within 5 s."""
SWITCH_S = 0.001
"""How long a thread keeps the interpreter while others want it."""
PARTITION_BYTES = 1000
"""About what one decoded partition takes in the cache of topics, which keeps two generations."""


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `serve` was asked to do."""

    kafka: Address
    http: Address
    data: Path
    simulated_brokers: int
    cluster: str | None = None
    """Where to find the Kafka cluster that carries decisions out (HOST:PORT[,…]), in place of simulated brokers."""
    kraft: bool = False
    """Real brokers instead of simulated ones."""
    metadata_version: int | None = None
    """Of real brokers; None for the highest that all of them share."""
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
        self._entrance = Entrance(
            options.settings, options.kafka, self.metrics, lambda: self.controller.store.durable_cluster
        )
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
            quotas=MutationQuotas(settings.controller_quota_window_num * settings.controller_quota_window_size_seconds),
            projector=self.fleet.metadata if isinstance(self.fleet, KraftFleet) else EVENTS_ALONE,
        )
        await self._listen()
        self.metrics.watch(self._gauges)
        await self.controller.start(decision_settings(settings, self._cluster is not None), RELEASE)
        if isinstance(self.fleet, ClusterFleet):
            await self.fleet.looked()
        await self.controller.decided()
        await self._open_doors()
        self.http = HttpServer(
            self.front,
            self.fleet,
            Query(self.log, lambda: self.controller.store),
            self.metrics,
            tls=self._entrance.http_tls,
            logins=self._entrance.http_logins(),
        )
        self._http_port = await self.http.start(options.http.host, options.http.port)
        # Queries run in threads: they hand the interpreter back soon, so that deciding does not wait for them.
        sys.setswitchinterval(SWITCH_S)
        settle()

    def _make_fleet(self) -> SimulatedFleet | ClusterFleet | KraftFleet:
        options = self.options
        if options.kraft:
            return kraft_fleet(self.log, options.settings, options.metadata_version)
        refuse_other_fleets(self.log)
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
        settings = self.options.settings
        entrance, listening = self._entrance, self._entrance.listening
        await listening.start()
        advertised = entrance.advertised
        self.front = Front(
            self.controller,
            node_id=settings.node_id,
            advertised=advertised,
            broker_listeners=settings.simulated_broker_listeners or self._cluster is not None,
            authorizer=entrance.authorizer(),
            partitions_per_response_max=settings.max_request_partition_size_limit,
        )
        self._doors: BrokerDoors | None = None
        if isinstance(self.fleet, KraftFleet):
            self.fleet.reachable_at(advertised)
            return
        if isinstance(self.fleet, ClusterFleet):
            fleet = self.fleet
            self.front.fleet_trouble = lambda: fleet.trouble
            return
        self.fleet.default_endpoints = listening.advertised
        if settings.simulated_broker_listeners:
            make_server = partial(listening.make_server, entrance.listeners[0])
            self._doors = BrokerDoors(listening.servers[0].host, advertised, self.fleet, make_server)

    async def _open_doors(self) -> None:
        """Take requests: the brokers are registered, and the settings stand in the log."""
        listening, versions_max = self._entrance.listening, dict(self.options.settings.api_versions_max)
        if isinstance(self.fleet, KraftFleet):
            listening.open(self.front, versions_max, partial(_of_real_brokers, self.fleet))
        elif self._cluster is not None:
            spoken, pass_on = self._cluster.spoken, self._cluster.link.pass_on
            listening.open(self.front, versions_max, partial(cluster_listener, brokers=spoken, pass_on=pass_on))
        else:
            listening.open(self.front, versions_max)
        if self._doors is not None:
            await self._doors.open(self.front, versions_max)

    def reload(self) -> None:
        """Read certificates and users anew (SIGHUP)."""
        self._entrance.reload()

    def _gauges(self) -> list[tuple[str, str, float]]:
        open_now = self._entrance.listening.connections + (self._doors.connections if self._doors is not None else 0)
        return [("connections", "Kafka connections that are open.", open_now)]

    @property
    def kafka(self) -> Address:
        """Where the first listener listens."""
        return self._entrance.address

    @property
    def http_address(self) -> Address:
        """Where HTTP is answered."""
        return Address(self.options.http.host, self._http_port)

    @property
    def ready_line(self) -> str:
        """What is printed once requests are taken."""
        return self._entrance.ready_line(self.http_address)

    def abandon(self) -> None:
        """Let go of the log after a start that was not finished: nobody was answered yet."""
        self._entrance.users.close()
        self.log.close()
        self._flusher.shutdown()

    async def stop(self) -> None:
        """Stop accepting, answer what is decided, flush, close."""
        if self._doors is not None:
            await self._doors.stop(0)
        await asyncio.gather(self._entrance.listening.stop(DRAIN_S), self.http.stop())
        self._entrance.users.close()
        await self.controller.stop()
        self.log.close()
        self._flusher.shutdown()


def _of_real_brokers(fleet: KraftFleet, front: Front, versions_max: Mapping[str, int]) -> HandlerTable:
    return real_broker_listener(front, fleet, versions_max)


def _new_cluster_id() -> str:
    """A random cluster id in Kafka's form: sixteen bytes in base64url."""
    return base64.urlsafe_b64encode(new_topic_ids(1)[0]).rstrip(b"=").decode()


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
    loop.add_signal_handler(signal.SIGHUP, service.reload)
    stopping = loop.create_task(told.wait())
    starting = loop.create_task(service.start())
    await asyncio.wait((stopping, starting), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():  # the disk was full from the first moment, say, and the service is told to give up
        starting.cancel()
        await asyncio.wait((starting,))
        service.abandon()
        return 0
    await starting
    print(service.ready_line, flush=True)
    if options.hints:
        _say_what_next(service.kafka, service.http_address)
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
