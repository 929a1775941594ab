"""`topicwright gateway`: one of several processes that clients connect to, while workers decide.

`GatewayService` creates the parts, and stops them in order: stop accepting, answer decided requests, announce, close.
"""

import asyncio
import os
import signal
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import structlog

from controller.access.mutation_quotas import MutationQuotas
from controller.brokers.cluster.link import ClusterLink
from controller.engine.tasks import Background
from controller.http.metrics import Metrics
from controller.kafka.connections import ClusterUnreachable, NotAuthenticated, Security
from controller.machine.state import Cluster
from controller.serving.archiving import Archiving, archive_store, head_signer
from controller.serving.client_listeners import Address, ClientListeners
from controller.serving.process import DRAIN_S, lock_folder, reached, run_service, stop_on_signals, wall_ms
from controller.serving.reach_cluster import reach_as
from controller.settings.load import ServeSettings
from controller.store.snapshotting import Snapshotting
from controller.stream.gateway.kafka import CommandProducer, follow
from controller.stream.gateway.members import Announcement, Members, StreamGateway
from controller.stream.gateway.node import GatewayNode
from controller.stream.log.partition import PartitionState
from controller.stream.log.topics import (
    KafkaUnavailable,
    Topics,
    TopicWatch,
    offset_ranges,
    offsets_consumer,
    prepare_topics,
)

POLL_INTERVAL_S = 0.02
PRODUCED_WITHIN_MS = 10_000
"""Time for Kafka to acknowledge a command before its client is answered NOT_CONTROLLER."""
_ID_FILE = "gateway.id"


class GatewayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `gateway`. `security` holds the credentials for the Kafka with the log, `cluster_security` those
    for the target cluster."""

    bootstrap: str
    kafka: Address
    http: Address
    data: Path
    settings: ServeSettings
    security: Security = Security()
    cluster_security: Security = Security()

    @property
    def properties(self) -> dict[str, str | int | float | bool]:
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": "topicwright-gateway",
            "log_level": 2,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1000,
            "socket.keepalive.enable": True,
            **self.security.properties,
        }


class GatewayService:
    """The parts of one `gateway` process. Raises SettingsError and UsersFileError."""

    def __init__(self, options: GatewayOptions) -> None:
        self.options = options
        self.metrics = Metrics()
        self._signer = head_signer(options.settings)
        self.clients = ClientListeners(
            options.settings, options.kafka, options.http, self.metrics, lambda: self.node.store.durable_cluster
        )
        self._partitions: list[PartitionState] = []
        self._snapshots: list[Snapshotting] = []
        self._is_following = False
        self._cluster: ClusterLink | None = None
        self._cluster_error: str | None = "not reached yet"
        """Why the target cluster is unreachable; None if it is reachable."""

    def _open_partitions(self, ranges: Sequence[tuple[int, int]]) -> None:
        """`ranges` are the record offsets in each partition of the events topic."""
        topics, settings = self._topics, self.options.settings
        for number, (archive, (first, end)) in enumerate(zip(self._archives, ranges, strict=True)):
            opened = PartitionState.open(
                self.options.data,
                number,
                cluster_id=topics.cluster_id,
                topic_id=topics.events_id,
                answers=True,
                memory_bytes=settings.store_cache_bytes // topics.partitions,
                archive=archive,
                first_record=first,
            )
            self._partitions.append(opened)
            opened.check_end(end)
            self._snapshots.append(opened.snapshots(settings.log_snapshot_interval_events, archive))

    async def start(self) -> None:
        """Wait for Kafka, listen, follow, and accept requests once everything is read. Raises TopicsMismatch,
        SettingsError, LogError for an unusable data folder, and OSError for it or an unavailable address."""
        options, settings, clients = self.options, self.options.settings, self.clients
        self._topics, ranges = await reached(
            "Kafka", lambda: asyncio.to_thread(_topics, options), KafkaUnavailable, bootstrap=options.bootstrap
        )
        self._archives = [archive_store(settings, number) for number in range(self._topics.partitions)]
        self._topic_watch = TopicWatch(options.properties, self._topics, is_archived=self._archives[0] is not None)
        self._open_partitions(ranges)
        await clients.listen()
        await clients.listen_for_cluster(options.data)
        self._producer = await asyncio.to_thread(CommandProducer, options.properties, within_ms=PRODUCED_WITHIN_MS)
        self._make_node([end for _, end in ranges])
        gateway = StreamGateway(
            self.node,
            self._members,
            advertised=clients.advertised[0],
            authorizer=clients.authorizer(),
            partitions_per_response_max=settings.max_request_partition_size_limit,
        )
        gateway.static_configs = settings.static_configs()
        gateway.archive_error = lambda: self._topic_watch.error
        await clients.start_http(gateway, None, self.node.query(), self._signer)
        for gauges in (clients.gauges, self._gauges, self._topic_watch.gauges):
            self.metrics.watch(gauges)
        self._follow()
        await self._caught_up()
        await self._open(gateway)

    async def _open(self, gateway: StreamGateway) -> None:
        """Accept requests, including those that a target cluster's brokers answer."""
        if not gateway.cluster.settings.has_target_cluster:
            await self.clients.open(gateway)
            return
        gateway.brokers_error = lambda: self._cluster_error and f"the cluster cannot be reached: {self._cluster_error}"
        reach = partial(reach_as, self.options.cluster_security)
        cluster = self._cluster = await reached(
            "the target cluster", lambda: reach(_addresses(gateway.cluster)), ClusterUnreachable
        )
        self._cluster_error = None
        hidden_group = self.options.settings.stream_group_id
        await self.clients.open_for_cluster(gateway, cluster, self._background.begin, hidden_group)
        self._background.begin(self._poll_cluster(cluster))

    async def _poll_cluster(self, cluster: ClusterLink) -> None:
        """Poll the target cluster for the health check, until cancelled."""
        while True:
            try:
                await cluster.refresh_api_versions()
                why = None
            except (ClusterUnreachable, NotAuthenticated) as error:
                why = str(error)
            if (why is None) != (self._cluster_error is None):
                log = structlog.get_logger("topicwright")
                log.warning("the cluster is lost" if why else "the cluster is back", why=why)
            self._cluster_error = why
            await asyncio.sleep(self.options.settings.cluster_watch_interval_ms / 1000)

    def _make_node(self, ends: Sequence[int]) -> None:
        settings = self.options.settings
        own = Announcement(_gateway_id(self.options.data), os.urandom(5).hex(), self.clients.advertised)
        self._members = Members(
            own,
            self._producer,
            settings.stream_gateways_topic,
            session_s=settings.gateway_session_timeout_ms / 1000,
            clock=time.monotonic,
        )
        self.node = GatewayNode(
            self._partitions,
            self._topics,
            self._members,
            self._producer,
            boot_id=os.urandom(16).hex(),  # not that of the heartbeats, which publish it
            clock_ms=wall_ms,
            answer_timeout_s=settings.gateway_answer_timeout_ms / 1000,
            ends=ends,
            quotas=MutationQuotas(settings.controller_quota_window_num * settings.controller_quota_window_size_seconds),
            command_failed=self.metrics.command_failed,
            committed=lambda number: self._snapshots[number].take_if_due(),
        )
        self.failed = self.node.failed

    def _follow(self) -> None:
        self._is_following = True
        self._background = Background(self.node.fail)
        node, settings, events = self.node, self.options.settings, self._topics.events
        following = follow(self.options.properties, events, node.offsets, settings.stream_gateways_topic, node.take)
        for work in (following, self._producer.run(), self._announce()):
            self._background.begin(work)
        for each, archive in zip(self._partitions, self._archives, strict=True):
            if archive is not None:
                self._background.begin(Archiving(each.log, settings, wall_ms, archive).run())
        self._background.begin(self._topic_watch.watch(self.node.fail))

    async def _announce(self) -> None:
        while True:
            self._members.announce()
            if self.node.caught_up:
                self.clients.draw_login_secret(self.node)
            self.node.heartbeat()
            await asyncio.sleep(self.options.settings.gateway_heartbeat_interval_ms / 1000)

    async def _caught_up(self) -> None:
        log = structlog.get_logger("topicwright")
        waited_s = 0.0
        while not self.node.caught_up and self.node.failure is None:
            await asyncio.sleep(POLL_INTERVAL_S)
            waited_s += POLL_INTERVAL_S
            if waited_s % 10 < POLL_INTERVAL_S:
                events = self.node.status().events_durable
                log.info("waiting for workers, or reading the log", events=events)
        if self.node.failure is None:  # by then the other gateways have sent a heartbeat
            await asyncio.sleep(self.options.settings.gateway_heartbeat_interval_ms / 1000)

    def _gauges(self) -> Iterable[tuple[str, str, float]]:
        members = self._members
        ignored = sum(each.reader.ignored for each in self._partitions)
        yield "gateways_live", "Live gateways, as this one sees them.", len(members.live())
        yield "kafka_silent_seconds", "Since this gateway received its own heartbeat from Kafka.", members.silent_s()
        yield "records_ignored", "Records of the events topic that did not count.", ignored

    @property
    def ready_line(self) -> str:
        return self.clients.ready_line()

    async def stop(self) -> None:
        """Stop accepting, wait for decisions, send a final heartbeat, and close."""
        if self._is_following:
            self.node.stop_accepting()
        await self.clients.stop(DRAIN_S if self._is_following else 0)
        if self._is_following:
            await self._background.stop()
            self.node.refusals.stop()
            self._members.announce(leaving=True)
            await self._producer.stop()
        if self._cluster is not None:
            self._cluster.close()
        for snapshots in self._snapshots:
            snapshots.close()
        if self._is_following:
            self.node.close()
        for partition in self._partitions:
            partition.close()


def _addresses(cluster: Cluster) -> str:
    """The addresses of a target cluster's live brokers, or of all its brokers if none is live. Raises
    ClusterUnreachable."""
    brokers = [broker for _, broker in sorted(cluster.brokers.items())]
    chosen = [broker for broker in brokers if not broker.fenced] or brokers
    endpoints = [broker.endpoints[0] for broker in chosen if broker.endpoints]
    addresses = [f"{one.host}:{one.port}" for one in endpoints if one.port > 0]
    if not addresses:
        raise ClusterUnreachable("no worker has recorded the brokers of the target cluster yet: start a worker")
    return ",".join(addresses)


def _gateway_id(data: Path) -> str:
    """The gateway id of a data folder, created at its first start."""
    file = data / _ID_FILE
    known = file.read_text(encoding="ascii").strip() if file.exists() else ""
    if not known:
        known = os.urandom(8).hex()
        file.write_text(known + "\n", encoding="ascii")
    return known


async def run_gateway(options: GatewayOptions) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code. Raises the error that prevented the start."""
    with lock_folder(options.data):
        service = GatewayService(options)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, service.clients.reload)
        return await run_service(service, stop_on_signals())


def _topics(options: GatewayOptions) -> tuple[Topics, list[tuple[int, int]]]:
    """The topics of the log, and the record offsets of the events topic; creates missing topics, including the
    gateways'. Blocks. Raises KafkaUnavailable, TopicsMismatch."""
    topics = prepare_topics(options.properties, options.settings, options.data, for_gateway=True)
    return topics, offset_ranges(offsets_consumer(options.properties), topics.events, topics.partitions)
