"""`topicwright serve`: one process with an event log, brokers, Kafka's wire and HTTP.

Puts the parts together and ends them in order: stop accepting, answer what is decided, flush, close.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog

from controller.access.mutation_quotas import MutationQuotas
from controller.apis.tables import cluster_listener
from controller.brokers.cluster.target_cluster import RECENT_EVENTS, TargetCluster
from controller.brokers.kraft.kraft_brokers import KraftBrokers
from controller.brokers.kraft.log.batches import CONTROLLER_LISTENER
from controller.brokers.simulated import SimulatedBrokers
from controller.controller_api import ControllerApi
from controller.engine.group_commit import Controller
from controller.engine.reports import Reports
from controller.engine.storage import Flusher
from controller.http.metrics import Metrics
from controller.release import RELEASE
from controller.serving import process
from controller.serving.archiving import archiving, build_tree, head_signer, sign_heads
from controller.serving.broker_listeners import BrokerListeners, SimulatedBrokerListeners
from controller.serving.client_listeners import Address, ClientListeners
from controller.serving.log_lines import SnapshotLines, write_lines
from controller.serving.quorum_member import Joining, Member
from controller.serving.reach_cluster import ReachedCluster, decision_settings, reach_cluster
from controller.serving.real_brokers import kraft_brokers, real_broker_listener, refuse_other_brokers
from controller.settings.load import ServeSettings
from events.catalog import EVENT_VERSION, Recorded
from events.codec import decode_event
from events.logs.rocksdb_log import RocksDbLog
from events.names import ShardKey
from projections.queries.proving import unsigned
from projections.queries.query import Query, Questions
from projections.store.recorder import EVENTS_ALONE
from projections.store.snapshotting import Snapshotting

if TYPE_CHECKING:
    from controller.http.server import HttpServer

DEFAULT_HTTP_PORT = 8080


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line and the settings say of a `serve`."""

    kafka: Address
    http: Address
    data: Path
    simulated_brokers: int
    cluster: str | None = None
    """Where to find the Kafka cluster that carries decisions out (HOST:PORT[,…]), in place of simulated brokers."""
    kraft: bool = False
    """Real brokers instead of simulated ones."""
    joining: Joining | None = None
    """The quorum of controllers to vote in; None for one of this process alone. With `kraft`."""
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
        self._snapshotter = ThreadPoolExecutor(1, thread_name_prefix="snapshot")
        self.metrics = Metrics()
        self._signer = head_signer(options.settings)
        self._policies = process.policy_runner(options.settings, self.metrics)
        self._clients = ClientListeners(
            options.settings,
            options.kafka,
            options.http,
            self.metrics,
            lambda: self.controller.store.durable_cluster,
            "PLAINTEXT" if options.joining is None else CONTROLLER_LISTENER,
        )
        self._member: Member | None = None
        if options.kraft:
            protocol = self._clients.listeners[0].protocol
            self._member = Member(options.data, options.settings, options.joining, protocol)
        self.log: RocksDbLog
        """Open from the start on."""
        self._is_open = self._started = False
        self.http: HttpServer
        """From when it listens on."""

    def _open_log(self, cluster_id: str | None) -> RocksDbLog:
        settings = self.options.settings
        log = RocksDbLog.open(
            self.options.data,
            cluster_id=cluster_id,
            event_version=EVENT_VERSION,
            new_cluster_id=process.new_cluster_id,
            cache_bytes=settings.store_cache_bytes // 2,
        )
        if log.cut is not None:
            self._log.warning("torn tail cut off: nobody was answered for it", offset=log.cut)
        return log

    async def start(self) -> None:
        """Start deciding, then take requests. Raises LogError, and OSError when an address cannot be had; of a voter
        QuorumError, FolderError and LogCorrupted too."""
        settings, member = self.options.settings, self._member
        self.log = self._open_log(await self._cluster_id())
        self._is_open = True
        self._flusher = Flusher(self.log.flush, self._flushed)
        self._query = Query(self.log, lambda: self.controller.store)
        self._snapshotting = Snapshotting(
            self.log,
            settings.log_snapshot_interval_events,
            self._snapshotter.submit,
            self._query.snapshot_pairs,
            SnapshotLines(self._log),
        )
        self._archiving = archiving(self.log, settings, os.urandom(5).hex(), _where(), process.wall_ms)
        self._ports = BrokerListeners(self.options.data, settings.cluster_broker_ports, self._clients.listening)
        await self._clients.listening.start()
        if self._cluster is not None:
            await self._ports.start()
        if member is not None:
            member.open(self.log, self._clients.advertised, self._flusher.flush)
        self.brokers = self._make_brokers()
        self.controller = Controller(
            self.log,
            self.brokers,
            boot_id=os.urandom(16).hex(),
            clock_ms=process.wall_ms,
            flush=self._flusher.flush,
            flush_alone=self._flusher.flush_alone,
            reports=Reports(self._log, write_lines, self.metrics, decisions=settings.log_level in ("debug", "info")),
            policies=self._policies,
            cluster=self.brokers if isinstance(self.brokers, TargetCluster) else None,
            partitions_cached=settings.store_cache_bytes // 2 // process.PARTITION_BYTES,
            quotas=MutationQuotas(settings.controller_quota_window_num * settings.controller_quota_window_size_seconds),
            projector=EVENTS_ALONE if member is None else member.projector,
            replication=None if member is None else member.replication,
            clock_s=time.perf_counter,
        )
        self._snapshotting.begin()
        self._make_api()
        self.metrics.watch(self._gauges)
        await self.controller.start(decision_settings(settings, self._cluster is not None), RELEASE)
        if isinstance(self.brokers, KraftBrokers):
            await self._take_part(self.brokers)
        else:
            self._clients.draw_login_secret(self.controller)
            if isinstance(self.brokers, TargetCluster):
                await self.brokers.first_scan()
            await self.controller.decided()
            await self._accept_clients()
            await self._start_http()
        # Queries run in threads: they hand the interpreter back soon, so that deciding does not wait for them.
        sys.setswitchinterval(process.SWITCH_S)
        self._started = True

    async def _cluster_id(self) -> str | None:
        if self._cluster is not None:
            return self._cluster.cluster_id
        joined = None if self._member is None else await self._member.find()
        return joined or self.options.settings.cluster_id

    async def _take_part(self, brokers: KraftBrokers) -> None:
        """Lead brokers, or follow who does."""
        member, controller = self._member, self.controller
        assert member is not None, "a brokers of real brokers is led with a vote"

        def take_up() -> None:
            self._clients.draw_login_secret(controller)
            member.register()

        brokers.on_lead = take_up
        self.metrics.watch(member.gauges)
        self.metrics.watch(brokers.gauges)
        listening, settings, name = self._clients.listening, self.options.settings, self._clients.advertised.name
        handlers = partial(real_broker_listener, brokers, name, priority=settings.quorum_priority)
        listening.open(self.api, dict(settings.api_versions_max), handlers)
        member.start(controller.background)
        try:
            async with asyncio.TaskGroup() as both:  # no vote waits for pages
                both.create_task(self._start_http())
                both.create_task(self._become_voter(member))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _become_voter(self, member: Member) -> None:
        if member.is_alone:
            await member.lead_alone()
            await self.controller.until_deciding()
            await self.controller.decided()
        else:
            await member.become_voter()

    async def _start_http(self) -> None:
        options = self.options
        self._keep_heads()
        self.api.policies = () if self._policies is None else self._policies.in_force
        self.http = (await asyncio.to_thread(_http_server))(
            self.api,
            self.brokers,
            Questions([self._query]),
            self.metrics,
            tls=self._clients.http_tls,
            logins=self._clients.http_logins(),
            reach=self._clients.reach,
            counts=self._clients.counts,
            sign=unsigned if self._signer is None else self._signer.signed,
        )
        self._http_port = await self.http.start(options.http.host, options.http.port)

    def _keep_heads(self) -> None:
        self.controller.background(build_tree(self.log))
        archiving = self._archiving
        if archiving is not None:
            self.controller.background(archiving.run())
            self.metrics.watch(archiving.gauges)
            self.api.archive_error = lambda: archiving.trouble and f"archiving is paused: {archiving.trouble}"
        if self._signer is not None:
            every_s = self.options.settings.log_signing_interval_ms / 1000
            self.controller.background(sign_heads(self.controller, self._query, self._signer, every_s))

    def _make_brokers(self) -> SimulatedBrokers | TargetCluster | KraftBrokers:
        options = self.options
        if self._member is not None:
            return kraft_brokers(self.log, self._member, options.settings, options.metadata_version)
        refuse_other_brokers(self.log)
        if self._cluster is None:
            return SimulatedBrokers(options.simulated_brokers)
        return self._cluster.brokers(self._history, self._recent, options.settings, self._log)

    def _history(self, shard: ShardKey) -> Iterator[Recorded]:
        return (decode_event(offset, self.log.read_one(offset)) for offset in self.log.shard_offsets(shard))

    def _recent(self) -> Iterator[Recorded]:
        end = self.log.durable_offset
        return (decode_event(offset, value) for offset, value in self.log.read(max(0, end - RECENT_EVENTS), end))

    def _flushed(self) -> None:
        self._snapshotting.reached(self.controller.store.durable_counts.topics)

    def _make_api(self) -> None:
        settings = self.options.settings
        entrance, listening = self._clients, self._clients.listening
        advertised = entrance.advertised
        self.api = ControllerApi(
            self.controller,
            node_id=settings.node_id,
            advertised=advertised,
            broker_listeners=settings.simulated_broker_listeners or self._cluster is not None,
            authorizer=entrance.authorizer(),
            partitions_per_response_max=settings.max_request_partition_size_limit,
        )
        self.api.static_configs = settings.static_configs()
        self._simulated_listeners: SimulatedBrokerListeners | None = None
        if self._member is not None:
            member = self._member
            self.api.brokers_error, self.api.quorum = lambda: member.trouble, member.shown
            return
        if isinstance(self.brokers, TargetCluster):
            brokers = self.brokers
            self.api.brokers_error = lambda: brokers.error and f"the cluster cannot be reached: {brokers.error}"
            return
        assert isinstance(self.brokers, SimulatedBrokers), "there is no other"
        self.brokers.default_endpoints = listening.advertised
        if settings.simulated_broker_listeners:
            make_server = partial(listening.make_server, entrance.listeners[0])
            self._simulated_listeners = SimulatedBrokerListeners(
                listening.servers[0].host, advertised, self.brokers, make_server
            )

    async def _accept_clients(self) -> None:
        """Take requests: the brokers are registered, and the settings stand in the log."""
        listening, versions_max = self._clients.listening, dict(self.options.settings.api_versions_max)
        if self._cluster is not None:
            handlers = partial(cluster_listener, link=self._cluster.link)
            self._ports.open(self.api, versions_max, handlers)
            listening.open(self.api, versions_max, handlers)
        else:
            listening.open(self.api, versions_max)
        if self._simulated_listeners is not None:
            await self._simulated_listeners.open(self.api, versions_max)

    def reload(self) -> None:
        """Read certificates and users anew (SIGHUP)."""
        self._clients.reload()

    def _gauges(self) -> list[tuple[str, str, float]]:
        doors = 0 if self._simulated_listeners is None else self._simulated_listeners.connections
        open_now = self._clients.listening.connections + self._ports.connections + doors
        return [
            ("connections", "Kafka connections that are open.", open_now),
            ("log_snapshot_offset", "The offset of the newest snapshot of the log.", self._snapshotting.newest),
        ]

    @property
    def failed(self) -> asyncio.Event:
        """Set once nothing more can be decided."""
        return self.controller.failed

    @property
    def ready_line(self) -> str:
        """What is printed once requests are taken, with what to type next if that is wanted."""
        http = Address(self.options.http.host, self._http_port)
        if self.options.joining is not None:
            return f"ready voter={self.options.settings.node_id} controller={self._clients.address} http={http}"
        hints = _hints(self._clients.address, http) if self.options.hints else ""
        return self._clients.ready_line(http) + hints

    async def stop(self) -> None:
        """Stop accepting, answer what is decided, flush, close; after a start that was not finished only let go of the
        log, and of the lead, which a voter may have before."""
        member = self._member
        if member is not None and (self._started or member.leads):
            await member.hand_over()
        if self._started:
            if self._simulated_listeners is not None:
                await self._simulated_listeners.stop(0)
            await self._ports.stop(0)
            await asyncio.gather(self._clients.listening.stop(process.DRAIN_S), self.http.stop())
        self._clients.users.close()
        if self._started:
            await self.controller.stop()
        if member is not None:
            await member.stop()
        self._snapshotter.shutdown()
        if self._is_open:
            self._snapshotting.close()
            self.log.close()
            self._flusher.close()


async def serve(options: ServeOptions) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code. Raises what kept the service from starting."""
    cluster = None
    if options.cluster is not None:
        cluster = await reach_cluster(options.cluster, options.settings, structlog.get_logger("topicwright"))
    service = Service(options, cluster)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, service.reload)
    return await process.run_service(service, process.stop_on_signals())


def _http_server() -> type[HttpServer]:
    """The framework takes as long to import as all else together."""
    from controller.http.server import HttpServer

    return HttpServer


def _where() -> str:
    """This process, for people."""
    return f"process {os.getpid()} of {socket.gethostname()}"


def _hints(kafka: Address, http: Address) -> str:
    where = "" if http.port == DEFAULT_HTTP_PORT else f" --http {http}"
    command, path = _typed()
    return f"""

Topicwright answers Kafka clients on {kafka} and programs on http://{http}/v1. Its page: http://{http}/
In another terminal:

  curl -s -X POST http://{http}/v1/topics -d '{{"name": "pay.orders", "num_partitions": 3}}'    create a topic
  {command} topics pay.orders{where}        what is
  {command} explain pay.orders{where}       why it is so
  {command} demo                     a story in a minute, with a real Kafka client
{path}
Any Kafka client will do: bootstrap.servers={kafka}. Ctrl-C stops; the log stays in the data folder.
"""


def _typed() -> tuple[str, str]:
    """How this command is typed, and what makes its name alone enough where that is not so yet."""
    here = Path(sys.argv[0]).absolute()
    found = shutil.which("topicwright")
    if found is not None and Path(found).resolve() == here.resolve():
        return "topicwright", ""
    return str(here), f"\n  export PATH={here.parent}:$PATH        then `topicwright` alone will do\n"
