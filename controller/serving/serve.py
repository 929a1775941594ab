"""`topicwright serve`: one process with an event log, brokers, the Kafka protocol and HTTP.

`Service` creates the parts, and stops them in order: stop accepting, answer decided requests, flush, close.
"""

import asyncio
import os
import shutil
import signal
import sys
import time
from functools import partial
from pathlib import Path

import msgspec
import structlog

from controller.access.mutation_quotas import MutationQuotas
from controller.apis.kraft.listener import kraft_listener
from controller.brokers.cluster.link import ClusterLink
from controller.brokers.cluster.target_cluster import TargetCluster
from controller.brokers.kraft.kraft_brokers import KraftBrokers
from controller.brokers.simulated import SimulatedBrokers
from controller.controller_api import ControllerApi
from controller.engine.group_commit import Controller
from controller.engine.reports import Reports
from controller.engine.storage import Flusher
from controller.http.metrics import Metrics
from controller.machine.rules.rule import RulesError
from controller.quorum.client import QuorumClient
from controller.quorum.log.batches import CONTROLLER_LISTENER
from controller.release import RELEASE
from controller.serving import process
from controller.serving.archiving import archiving, head_signer, sign_heads
from controller.serving.client_listeners import Address, ClientListeners
from controller.serving.log_lines import write_lines
from controller.serving.quorum_member import Member, cluster_to_join
from controller.serving.reach_cluster import decision_settings, reach_cluster
from controller.settings.load import ServeSettings, SettingsError
from controller.store.recorder import WITHOUT_METADATA_LOG
from controller.store.snapshotting import Snapshotting
from controller.store.store import TopicStore
from events.logs.rocksdb_log import RocksDbLog
from projections.queries.query import Queries, Query

KRAFT = "kraft"
"""The value of `--brokers` for Kafka brokers in KRaft mode."""


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    kafka: Address
    http: Address
    data: Path
    brokers: int | str
    """The number of simulated brokers, `KRAFT`, or the target cluster (HOST:PORT[,…])."""
    joining: QuorumClient | None = None
    """The quorum of controllers to join; None for a quorum of this process alone. With `KRAFT`."""
    metadata_version: int | None = None
    """The metadata.version of KRaft brokers; None for the highest that all of them support."""
    settings: ServeSettings


class Service:
    """The parts of one `serve` process. Raises PolicyLoadError, RulesError, SettingsError and UsersFileError."""

    def __init__(self, options: ServeOptions, cluster: ClusterLink | None = None) -> None:
        self.options = options
        self._cluster = cluster
        self._log = structlog.get_logger("topicwright")
        self.metrics = Metrics()
        self._signer = head_signer(options.settings)
        self._policies = process.policy_runner(options.settings, self.metrics)
        self._rules = process.rules_of_file(options.settings)
        self._reloading = asyncio.Lock()
        self._clients = ClientListeners(
            options.settings,
            options.kafka,
            options.http,
            self.metrics,
            lambda: self.controller.store.durable_cluster,
            "PLAINTEXT" if options.joining is None else CONTROLLER_LISTENER,
        )
        self._member: Member | None = None
        self.log: RocksDbLog
        self._is_open = self._started = False

    def _open_log(self, cluster_id: str | None) -> RocksDbLog:
        log = RocksDbLog(
            self.options.data,
            cluster_id=cluster_id,
            new_cluster_id=process.new_cluster_id,
            cache_bytes=self.options.settings.store_cache_bytes // 2,
        )
        if log.truncated_at is not None:
            self._log.warning("unacknowledged torn tail of the log truncated", offset=log.truncated_at)
        return log

    async def start(self) -> None:
        """Start deciding, then accept requests. Raises LogError, and OSError for an unavailable address; as a voter
        also QuorumError, FolderError and LogCorrupted."""
        options, settings, joining = self.options, self.options.settings, self.options.joining
        joined = None if joining is None else await cluster_to_join(joining, options.data, settings)
        cluster_id = joined or settings.cluster_id if self._cluster is None else self._cluster.cluster_id
        self.log = self._open_log(cluster_id)
        self._is_open = True
        self._query = Query(self.log, lambda: self.controller.store)
        self._snapshots = Snapshotting(self.log, settings.log_snapshot_interval_events, self._query.snapshot_pairs)
        self._flusher = Flusher(self.log.flush, self._snapshots.take_if_due)
        self._archiving = archiving(self.log, settings, os.urandom(5).hex(), self._signer)
        await self._clients.listen()
        if self._cluster is not None:
            await self._clients.listen_for_cluster(options.data)
        if options.brokers == KRAFT:
            protocol, at = self._clients.listeners[0].protocol, self._clients.advertised[0]
            self._member = Member(options.data, settings, joining, protocol, self.log, at, self._flusher.flush)
        member = self._member
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
            projector=WITHOUT_METADATA_LOG if member is None else member.projector,
            replication=None if member is None else member.replication,
            clock_s=time.perf_counter,
        )
        self.failed = self.controller.failed
        self._snapshots.begin(rebuild=True)
        self._make_api()
        self.metrics.watch(self._clients.gauges)
        self.metrics.watch(self._gauges)
        await self.controller.start(decision_settings(settings, self._cluster is not None), RELEASE, self._rules)
        if isinstance(self.brokers, KraftBrokers):
            await self._join_quorum(self.brokers)
        else:
            self._clients.draw_login_secret(self.controller)
            if isinstance(self.brokers, TargetCluster):
                await self.brokers.first_scan()
            await self.controller.decided()
            if self._cluster is not None:
                await self._clients.open_for_cluster(self.api, self._cluster, self.controller.background)
            else:
                await self._clients.open(self.api)
            await self._start_http()
        self._started = True

    async def _join_quorum(self, brokers: KraftBrokers) -> None:
        member, controller = self._member, self.controller
        assert member is not None, "KRaft brokers are led by a quorum"

        def on_lead() -> None:
            self._clients.draw_login_secret(controller)
            member.register()

        brokers.on_lead = on_lead
        self.metrics.watch(member.gauges)
        self.metrics.watch(brokers.gauges)
        priority, name = self.options.settings.quorum_priority, self._clients.advertised[0].name
        await self._clients.open(self.api, partial(kraft_listener, brokers, name, priority=priority))
        member.start(controller.background)
        try:
            async with asyncio.TaskGroup() as both:  # votes must not wait for the HTTP server
                both.create_task(self._start_http())
                both.create_task(self._become_voter(member))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _become_voter(self, member: Member) -> None:
        if member.is_alone:
            await member.lead_alone()
            await self.controller.deciding.wait()
            await self.controller.decided()
        else:
            await member.become_voter()

    async def _start_http(self) -> None:
        background, archiving = self.controller.background, self._archiving
        if archiving is not None:
            background(archiving.run())
            self.metrics.watch(archiving.gauges)
            self.api.archive_error = lambda: archiving.error and f"archiving is paused: {archiving.error}"
        if self._signer is not None:
            every_s = self.options.settings.log_signing_interval_ms / 1000
            background(sign_heads(self.controller, self._query, self._signer, every_s))
        simulated = self.brokers if isinstance(self.brokers, SimulatedBrokers) else None
        await self._clients.start_http(self.api, simulated, Queries([self._query]), self._signer)

    def _make_brokers(self) -> SimulatedBrokers | TargetCluster | KraftBrokers:
        settings = self.options.settings
        if self._member is not None:
            return self._member.brokers(self.log, self.options.metadata_version)
        if TopicStore(self.log).durable_cluster.quorum is not None:  # changes would not reach its brokers
            raise SettingsError(
                "the data folder has the log of a KRaft controller: serve it with --brokers kraft, or choose another "
                "--data"
            )
        if isinstance(self.options.brokers, int):
            return SimulatedBrokers(self.options.brokers)
        assert self._cluster is not None, "it was reached"
        return TargetCluster(self._cluster, self.log, settings)

    def _make_api(self) -> None:
        settings, clients = self.options.settings, self._clients
        self.api = ControllerApi(
            self.controller,
            node_id=settings.node_id,
            advertised=clients.advertised[0],
            broker_listeners=settings.simulated_broker_listeners or self._cluster is not None,
            authorizer=clients.authorizer(),
            partitions_per_response_max=settings.max_request_partition_size_limit,
        )
        self.api.static_configs = settings.static_configs()
        brokers, member = self.brokers, self._member
        if member is not None:
            self.api.brokers_error, self.api.quorum = lambda: member.error, member.view
        elif isinstance(brokers, TargetCluster):
            self.api.brokers_error = lambda: brokers.error and f"the cluster cannot be reached: {brokers.error}"
        elif isinstance(brokers, SimulatedBrokers):
            clients.reserve_for_simulated(brokers)

    def reload(self) -> None:
        """Reload certificates, users and the rules file (SIGHUP)."""
        self._clients.reload()
        self.controller.background(self._reload_rules())

    async def _reload_rules(self) -> None:
        async with self._reloading:  # in the order of the signals; in a thread, because reading may take a second
            try:
                text = await asyncio.to_thread(process.rules_of_file, self.options.settings)
            except RulesError as error:
                self._log.error("rules not reloaded", why=str(error))
            else:
                self.controller.apply_rules_file(text)

    def leads_others(self) -> bool:
        return self._member is not None and self._member.leads_others

    def _gauges(self) -> list[tuple[str, str, float]]:
        return [("log_snapshot_offset", "The offset of the newest snapshot of the log.", self._snapshots.newest)]

    @property
    def ready_line(self) -> str:
        http = self._clients.http_address
        if self.options.joining is not None:
            return f"ready voter={self.options.settings.node_id} controller={self._clients.address} http={http}"
        is_simulated = isinstance(self.options.brokers, int)
        return self._clients.ready_line() + (_hints(http) if is_simulated and sys.stdout.isatty() else "")

    async def stop(self) -> None:
        """Stop accepting, answer decided requests, flush, close. After an unfinished start, only close the log, and
        hand over the leadership that a voter may already have."""
        member = self._member
        if member is not None and (self._started or member.leads):
            await member.hand_over()
        await self._clients.stop(process.DRAIN_S if self._started else 0)
        if self._started:
            await self.controller.stop()
        if self._cluster is not None:
            self._cluster.close()
        if member is not None:
            await member.stop()
        elif self.options.joining is not None:
            self.options.joining.close()
        if self._is_open:
            self._snapshots.close(wait=True)
            self.log.close()
            self._flusher.close()


async def serve(options: ServeOptions) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code. Raises the error that prevented the start."""
    cluster = None
    if isinstance(options.brokers, str) and options.brokers != KRAFT:
        cluster = await reach_cluster(options.brokers, options.settings)
    service = Service(options, cluster)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, service.reload)
    return await process.run_service(service, process.stop_on_signals(), service.leads_others)


def _hints(http: Address) -> str:
    """The address of the page, and a command to type in another terminal."""
    own, found = Path(sys.argv[0]).absolute(), shutil.which("topicwright")
    command = "topicwright" if found is not None and Path(found).resolve() == own.resolve() else own
    return f"""

The page: http://{http}/
In another terminal, `{command} demo --http {http}` shows a refusal, an outage and a recovery on it.
Ctrl-C stops; the log stays in the data folder."""
