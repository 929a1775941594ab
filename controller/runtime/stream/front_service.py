"""`topicwright front`: one of any number of processes that answer clients, while workers decide.

Puts the parts together and ends them in order: stop accepting, answer what is decided, tell the others, let go.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
import structlog

from controller.brokers.cluster_security import Security
from controller.http.metrics import Metrics
from controller.http.server import HttpServer
from controller.kafka.listeners import cluster_listener, controller_listener
from controller.runtime.collecting import settle
from controller.runtime.entrance import Address, Entrance
from controller.runtime.listening import Speaks, reachable
from controller.runtime.mutation_quotas import MutationQuotas
from controller.runtime.serve import DRAIN_S, FAILED, PARTITION_BYTES, SWITCH_S
from controller.runtime.settings import ServeSettings
from controller.runtime.stream.following import Follower
from controller.runtime.stream.front_brokers import FrontBrokers
from controller.runtime.stream.front_cluster import FrontCluster
from controller.runtime.stream.front_members import ANNOUNCEMENT_VERSION, Announcement, Members
from controller.runtime.stream.front_node import FrontNode
from controller.runtime.stream.front_view import StreamFront
from controller.runtime.stream.partition import PartitionState
from controller.runtime.stream.producing import CommandProducer
from controller.runtime.stream.topic_watch import TopicWatch
from controller.runtime.stream.transport import NO_SECURITY, Topics

LOOK_EVERY_S = 0.02
PRODUCED_WITHIN_MS = 10_000
"""How long Kafka may take to acknowledge a command before its client is told NOT_CONTROLLER."""
_ID_FILE = "front.id"


class FrontOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `front` was asked to do. `security` says who we are at the Kafka that holds the log, `cluster_security` at
    the one that carries decisions out."""

    bootstrap: str
    kafka: Address
    http: Address
    data: Path
    settings: ServeSettings
    security: Security = NO_SECURITY
    cluster_security: Security = NO_SECURITY

    @property
    def properties(self) -> dict[str, str | int | float | bool]:
        """librdkafka's properties for reaching Kafka."""
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": "topicwright-front",
            "log_level": 2,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1000,
            "socket.keepalive.enable": True,
            **self.security.properties,
        }


class FrontService:
    """Everything that one `front` runs, once the topics are known to be there."""

    def __init__(self, options: FrontOptions, topics: Topics) -> None:
        """Raises LogError and OSError where the data folder cannot be used."""
        self.options = options
        self._topics = topics
        self._process = os.urandom(5).hex()
        self.metrics = Metrics()
        self._entrance = Entrance(
            options.settings, options.kafka, self.metrics, lambda: self.node.store.durable_cluster
        )
        self._partitions = self._open_partitions()
        self._announcing: asyncio.Task[None] | None = None
        self._cluster: FrontCluster | None = None

    def _open_partitions(self) -> list[PartitionState]:
        opened: list[PartitionState] = []
        try:
            opened.extend(map(self._open_partition, range(self._topics.partitions)))
        except BaseException:
            for each in opened:
                each.close()
            raise
        return opened

    def _open_partition(self, number: int) -> PartitionState:
        topics, share = self._topics, self.options.settings.store_cache_bytes // self._topics.partitions // 2
        return PartitionState.open(
            self.options.data,
            number,
            cluster_id=topics.cluster_id,
            topic_id=topics.events_id,
            answers=True,
            cache_bytes=share,
            partitions_cached=max(1, share // PARTITION_BYTES),
        )

    async def start(self) -> None:
        """Listen, follow, and take requests as soon as everything is known. Raises OSError when an address cannot be
        had."""
        options, settings, entrance = self.options, self.options.settings, self._entrance
        await entrance.listening.start()
        self._make_node()
        front = StreamFront(
            self.node,
            self.node.members,
            advertised=entrance.advertised,
            authorizer=entrance.authorizer(),
            partitions_per_response_max=settings.max_request_partition_size_limit,
        )
        self.http = HttpServer(
            front,
            FrontBrokers(self.node),
            self.node.query(),
            self.metrics,
            tls=entrance.http_tls,
            logins=entrance.http_logins(),
        )
        self._http_address = Address(options.http.host, await self.http.start(options.http.host, options.http.port))
        self.node.members.own = msgspec.structs.replace(
            self.node.members.own, http=f"{reachable(options.http.host)}:{self._http_address.port}"
        )
        self.metrics.watch(self._gauges)
        self._follow()
        await self._caught_up()
        entrance.listening.open(front, dict(settings.api_versions_max), await self._speaks(front))
        # Queries run in threads: they hand the interpreter back soon, so that following does not wait for them.
        sys.setswitchinterval(SWITCH_S)
        settle()

    async def _speaks(self, front: StreamFront) -> Speaks:
        """What is spoken here: where a cluster carries decisions out, also what its brokers answer."""
        if not front.cluster.settings.cluster_carries_out:
            return controller_listener
        every_s = self.options.settings.cluster_watch_interval_ms / 1000
        cluster = self._cluster = FrontCluster(front, self.options.cluster_security, every_s)
        front.fleet_trouble = lambda: cluster.trouble
        reached = await cluster.reached()
        return partial(cluster_listener, brokers=reached.spoken, pass_on=reached.link.pass_on)

    def _make_node(self) -> None:
        settings, advertised = self.options.settings, self._entrance.advertised
        own = Announcement(
            ANNOUNCEMENT_VERSION,
            front_id=_front_id(self.options.data),
            process=self._process,
            host=advertised.host,
            port=advertised.port,
            http="",
            endpoints=self._entrance.listening.advertised,
        )
        session_s = settings.front_session_timeout_ms / 1000
        self._producer = CommandProducer(self.options.properties, within_ms=PRODUCED_WITHIN_MS)
        self.node = FrontNode(
            self._partitions,
            self._topics,
            settings.stream_fronts_topic,
            Members(own, session_s=session_s, clock=time.monotonic),
            self._producer,
            boot_id=self._process,
            clock_ms=lambda: time.time_ns() // 1_000_000,
            session_s=session_s,
            answer_timeout_s=settings.front_answer_timeout_ms / 1000,
            quotas=MutationQuotas(settings.controller_quota_window_num * settings.controller_quota_window_size_seconds),
        )

    def _follow(self) -> None:
        self._producer.start()
        self._follower = Follower(self.options.properties, take=self.node.take, fail=self.node.fail)
        self._follower.start(self._topics.events, self.node.offsets, self.options.settings.stream_fronts_topic)
        self._announcing = asyncio.create_task(self._announce(), name="announce")
        topic_watch = TopicWatch(self.options.properties, self._topics)
        self._watching = asyncio.create_task(topic_watch.watch(self.node.fail), name="watch the topics")

    async def _announce(self) -> None:
        while True:
            self.node.announce()
            await asyncio.sleep(self.options.settings.front_heartbeat_interval_ms / 1000)

    async def _caught_up(self) -> None:
        log = structlog.get_logger("topicwright")
        waited_s = 0.0
        while not self.node.caught_up and self.node.failure is None:
            await asyncio.sleep(LOOK_EVERY_S)
            waited_s += LOOK_EVERY_S
            if waited_s % 10 < LOOK_EVERY_S:
                log.info("waiting for workers, or for what there is to be read", events=self.node.log.durable_offset)
        if self.node.failure is None:  # others have announced themselves by then
            await asyncio.sleep(self.options.settings.front_heartbeat_interval_ms / 1000)

    def _gauges(self) -> list[tuple[str, str, float]]:
        node = self.node
        ignored = sum(each.fold.ignored for each in node.partitions)
        return [
            ("connections", "Kafka connections that are open.", self._entrance.listening.connections),
            ("fronts_live", "Fronts that live, as this one hears.", len(node.members.live())),
            ("kafka_silent_seconds", "Since this front has heard itself through Kafka.", node.members.silent_s()),
            ("records_ignored", "Records of the events topic that did not count.", ignored),
        ]

    @property
    def ready_line(self) -> str:
        """What is printed once requests are taken."""
        return self._entrance.ready_line(self._http_address)

    def reload(self) -> None:
        """Read certificates and users anew (SIGHUP)."""
        self._entrance.reload()

    async def stop(self) -> None:
        """Stop accepting, answer what is decided in time, say good-bye, close."""
        if self._announcing is None:  # it never came to follow anything
            await self._entrance.listening.stop(0)
            self._entrance.users.close()
            for each in self._partitions:
                each.close()
            return
        self._watching.cancel()
        self.node.stop_asking()
        await asyncio.gather(self._entrance.listening.stop(DRAIN_S), self.http.stop())
        if self._cluster is not None:
            await self._cluster.stop()
        self._announcing.cancel()
        with suppress(asyncio.CancelledError):
            await self._announcing
        self.node.refusals.stop()
        self.node.announce(leaving=True)
        await self._producer.stop()
        await self._follower.stop()
        self.node.close()
        self._entrance.users.close()


def _front_id(data: Path) -> str:
    """The id of the front whose folder this is: made at its first start, and kept."""
    file = data / _ID_FILE
    with suppress(FileNotFoundError):
        known = file.read_text(encoding="ascii").strip()
        if known:
            return known
    made = os.urandom(8).hex()
    file.write_text(made + "\n", encoding="ascii")
    return made


async def run_front(options: FrontOptions, topics: Topics, told: asyncio.Event) -> int:
    """Serve until `told` to stop; returns the exit code. Raises what kept the front from starting."""
    service = FrontService(options, topics)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, service.reload)
    stopping = loop.create_task(told.wait())
    starting = loop.create_task(service.start())
    await asyncio.wait((stopping, starting), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.wait((starting,))
    if starting.cancelled() or starting.exception() is not None:
        stopping.cancel()
        await service.stop()
        with suppress(asyncio.CancelledError):
            await starting
        return 0
    if service.node.failure is None:
        print(service.ready_line, flush=True)
        failing = loop.create_task(service.node.failed.wait())
        await asyncio.wait((stopping, failing), return_when=asyncio.FIRST_COMPLETED)
        failing.cancel()
    stopping.cancel()
    code = FAILED if service.node.failure is not None else 0
    await service.stop()
    return code


def stop_when_told() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set."""
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    return told
