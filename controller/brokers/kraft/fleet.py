"""Real brokers as a fleet: they follow the metadata log, send heartbeats, and take over what it says.

The controller opens no connections to lead brokers; they come to it. What they ask is answered by the handlers in
`controller.kafka.handlers.kraft`, with what is here: the metadata log, who is alive, and how far each broker is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
import structlog

from controller.brokers.fleet import CommandSink
from controller.brokers.kraft.applied import Applied
from controller.brokers.kraft.balancing import balance_leaders
from controller.brokers.kraft.confirmations import Confirmations
from controller.brokers.kraft.directories import Directories
from controller.brokers.kraft.features import (
    METADATA_VERSION_SHARED,
    Features,
    features_at,
    shared_metadata_version,
)
from controller.brokers.kraft.metadata_log import MetadataLog
from controller.brokers.kraft.projection import METADATA_VERSION, is_real
from controller.brokers.kraft.raft_fetch import RaftLog
from controller.brokers.kraft.readiness import Readiness
from controller.brokers.kraft.sessions import Sessions
from controller.brokers.kraft.snapshots import make_snapshot
from controller.machine.commands import (
    BeginQuorumEpoch,
    ChangeFeatures,
    FenceBroker,
    UnregisterBroker,
)
from controller.machine.state import Broker, Cluster, Quorum, Topic
from events.catalog import BrokerFenced, BrokerRegistered, BrokerUnfenced, BrokerUnregistered, Endpoint, Recorded
from events.log import EventLog, LogClosed
from events.names import BrokerId, Offset, shard_key

CHECK_S: Final = 0.25
"""How often sessions are looked at."""
SETTLED_S: Final = 3.0
"""How long no broker may have come before the features that all of them share are taken."""
TOPICS_PER_PAGE: Final = 500


class KraftOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the controller is to real brokers; see `QuorumEpochBegun` for most of it."""

    node_id: int
    kraft_version: int
    directory_id: bytes
    session_timeout_ms: int
    snapshot_every_bytes: int = 20 << 20
    metadata_version: int | None = None
    """None: the highest that all brokers share."""
    leaders_balanced_every_s: float | None = None
    """How often leaderships go back to preferred replicas; None for never."""


class KraftFleet:
    """The brokers of one cluster. `clock` gives seconds and only goes forward."""

    def __init__(self, log: EventLog, options: KraftOptions, clock: Callable[[], float]) -> None:
        self.options = options
        self.metadata = MetadataLog(log)
        self.raft = RaftLog(self.metadata, self, self._now_ms)
        self.sessions = Sessions(options.session_timeout_ms / 1000, clock())
        self.clock = clock
        self.log = structlog.get_logger("topicwright.kraft")
        self.applied_ends: dict[BrokerId, int] = {}
        """The offset after the newest that a broker has applied, by its heartbeats."""
        self._cluster_id = log.cluster_id
        self._endpoint = Endpoint("CONTROLLER", "localhost", 9093)
        self._controller: CommandSink
        self._checking: asyncio.Task[None] | None = None
        self._balancing: asyncio.Task[None] | None = None
        self._joined_at = clock()
        self._confirmations: Confirmations
        self._leaving: dict[BrokerId, int] = {}
        """Where the metadata log ended when it was first seen that a broker that leaves leads nothing any more."""
        self._directories = Directories()
        self._first_epoch = 1
        """The first epoch of this process: it leads in none of before."""
        self._stopped = False

    # --- the port

    def start(self, controller: CommandSink) -> None:
        """Begin an epoch; brokers of another kind, that the log may have, are forgotten first."""
        self._controller = controller
        self.metadata.existing_topics = self._topics
        self._applied = Applied(self.metadata.mark.end, controller.last_offset)
        self._confirmations = Confirmations(self._observe, lambda: self.cluster.live)
        self.readiness = Readiness(self, controller)
        self.raft.on_diverged = self._diverged
        self.raft.on_fetched = lambda broker_id, _: self.readiness.fetched(broker_id)
        for broker in controller.store.durable_cluster.brokers.values():
            if not is_real(broker):
                self._observe(UnregisterBroker, broker_id=broker.broker_id, reason="not a real broker")
        self._first_epoch = self.metadata.mark.epoch + 1
        self._begin_epoch()
        self._checking = controller.background(self._check())
        if self.options.leaders_balanced_every_s is not None:
            every_s = self.options.leaders_balanced_every_s
            self._balancing = controller.background(balance_leaders(controller, every_s))

    def learn(self, records: Sequence[Recorded]) -> None:
        """Show brokers what became durable, and follow who comes and goes."""
        self.metadata.became_durable()
        self._applied.note(self.metadata.mark.end, records[-1].offset)
        for record in records:
            self._follow(record.event)
        self.raft.grew()
        if not self._stopped:
            self.readiness.learn(records)

    def resume(self) -> None:
        """Take the metadata log as the store has it: what was written in vain is gone."""
        self.metadata.reload()
        self._applied = Applied(self.metadata.mark.end, self._controller.last_offset)
        self._confirmations.clear()
        self.readiness.resume()
        if self.quorum is None:
            self._begin_epoch()

    async def stop(self) -> None:
        """Stop checking and probing."""
        self._stopped = True
        for task in (self._checking, self._balancing):
            if task is not None:
                task.cancel()
        self._confirmations.clear()
        await self.readiness.stop()
        self.raft.grew()

    def reachable_at(self, endpoint: Endpoint) -> None:
        """Where brokers reach the controller: to be told before the start."""
        self._endpoint = endpoint

    # --- what the handlers use

    @property
    def controller(self) -> CommandSink:
        """What is reported to."""
        return self._controller

    @property
    def cluster(self) -> Cluster:
        """Brokers and features as of the last durable commit."""
        return self._controller.store.durable_cluster

    @property
    def cluster_id(self) -> str:
        """The id of the cluster."""
        return self._cluster_id

    @property
    def quorum(self) -> Quorum | None:
        """The epoch that brokers are led in, None before it is durable."""
        return self.cluster.quorum if self.metadata.mark.epoch >= self._first_epoch else None

    def broker(self, broker_id: int, epoch: int) -> Broker | None:
        """The registered broker of this id if `epoch` is the one that it was told; else None."""
        broker = self.cluster.brokers.get(BrokerId(broker_id))
        return broker if broker is not None and self.metadata.broker_epoch(broker_id) == epoch else None

    def machine_epoch(self, broker_id: int, epoch: int) -> int:
        """The machine's own epoch of a broker that gives this one; -2, which no broker has, if it is an old one."""
        if epoch == -1:
            return -1
        broker = self.broker(broker_id, epoch)
        return -2 if broker is None else broker.broker_epoch

    def is_anothers(self, broker_id: int, directory: bytes) -> bool:
        """Whether the broker is known not to have this log directory, which is then told in our log."""
        anothers = self._directories.is_anothers(broker_id, directory)
        if anothers:
            self.log.warning(
                "replicas are told to lie where the broker has no log directory: a second process with its id?",
                broker=broker_id,
                directory=directory.hex(),
            )
        return anothers

    def heard_of(self, broker: Broker, applied: int) -> None:
        """A heartbeat came, from a broker that has applied the metadata log up to and including offset `applied`."""
        self.sessions.touch(broker.broker_id, self.clock())
        self.applied_ends[broker.broker_id] = applied + 1
        if not broker.fenced:
            self.confirm(broker.broker_id, self._applied.event_at(applied + 1))

    def confirm(self, broker_id: BrokerId, offset: Offset) -> None:
        """A broker has applied all events up to `offset`: say so, if a topic may wait for it."""
        if self._controller.has_waiting_topics():
            self._confirmations.take(broker_id, offset)

    def fetched(self, broker_id: BrokerId) -> int:
        """Up to where a broker has fetched the metadata log."""
        observer = self.raft.observers.get(broker_id)
        return observer.fetched if observer is not None else 0

    def end(self) -> int:
        """Where the metadata log ends."""
        return self.metadata.mark.end

    def lowest_applied(self) -> int:
        """Up to where every live broker has applied the metadata log, by their heartbeats."""
        ends = [self.applied_ends.get(broker_id, 0) for broker_id in self.cluster.live]
        return min(ends, default=self.metadata.mark.end)

    def leads(self, broker_id: BrokerId) -> bool:
        """Whether a broker leads a partition."""
        return self._controller.store.leads(broker_id)

    def is_settled(self) -> bool:
        """Whether every topic has been looked at since the last broker came or went."""
        return self._controller.is_settled()

    def all_applied(self, leaving: BrokerId) -> bool:
        """Whether every live broker has applied what moved the leaderships of one that leaves."""
        return self._leaving.setdefault(leaving, self.metadata.mark.end) <= self.lowest_applied()

    # --- inside

    def _diverged(self, broker_id: int, offset: int, epoch: int) -> None:
        self.log.warning(
            "metadata log of a broker diverges: it is told where to cut it",
            broker=broker_id,
            offset=offset,
            epoch=epoch,
        )

    def _now_ms(self) -> int:
        return self._controller.now_ms()

    def _observe(self, kind: Callable[..., Any], **fields: Any) -> None:
        sink = self._controller
        sink.observe(kind(request_id=sink.new_request_id("kraft"), at_ms=sink.now_ms(), **fields))

    def _begin_epoch(self) -> None:
        options = self.options
        level = options.metadata_version or METADATA_VERSION_SHARED
        self._observe(
            BeginQuorumEpoch,
            node_id=options.node_id,
            kraft_version=options.kraft_version,
            host=self._endpoint.host,
            port=self._endpoint.port,
            directory_id=options.directory_id,
            features=features_at(level),
            epoch_min=self.metadata.mark.epoch + 1,
        )

    def _topics(self) -> Iterator[Topic]:
        after: str | None = None
        while topics := self._controller.store.durable_slice(after, TOPICS_PER_PAGE):
            yield from topics
            after = shard_key(topics[-1].name)

    def _follow(self, event: Any) -> None:
        match event:
            case BrokerRegistered(broker_id=broker_id, details=details):
                self._directories.registered(broker_id, () if details is None else details.log_dirs)
                self._joined_at = self.clock()
                self._leaving.pop(broker_id, None)
                self._confirmations.forget(broker_id)
                self.applied_ends.pop(broker_id, None)
            case BrokerUnfenced(broker_id=broker_id):
                self._joined_at = self.clock()
                self._confirmations.forget(broker_id)
            case BrokerFenced(broker_id=broker_id):
                self._confirmations.forget(broker_id)
            case BrokerUnregistered(broker_id=broker_id):
                self._directories.forget(broker_id)
                self.sessions.forget(broker_id)
                self._confirmations.forget(broker_id)
                self.applied_ends.pop(broker_id, None)
                self.raft.observers.pop(broker_id, None)

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            now = self.clock()
            unfenced = [each.broker_id for each in self.cluster.brokers.values() if not each.fenced]
            for broker_id in self.sessions.expired(unfenced, now):
                self.log.warning("broker session expired", broker=broker_id)
                self._observe(FenceBroker, broker_id=broker_id, reason="session expired")
            if now - self._joined_at > SETTLED_S:
                self._raise_features()
            if self.metadata.mark.bytes_since_snapshot > self.options.snapshot_every_bytes:
                await self._snapshot()

    async def _snapshot(self) -> None:
        """Have a snapshot of all that is durable, with the next commit."""
        if self.metadata.has_snapshot_pending():
            return
        mark = self.metadata.mark
        try:
            snapshot = await asyncio.to_thread(make_snapshot, self.metadata, mark.end, mark.epoch)
        except LogClosed:
            return  # the log is being recovered: at the next check
        if self.metadata.mark.end >= mark.end:
            self.metadata.offer_snapshot(snapshot)
            self.log.info("metadata snapshot", end=snapshot.end_offset, bytes=len(snapshot.data))

    def _raise_features(self) -> None:
        """Take the metadata.version that was asked for, or the highest that all brokers share, with the features that
        go with it, once the brokers that are coming have come and all support it."""
        brokers = self.cluster.brokers.values()
        shared = shared_metadata_version(brokers)
        if shared is None or not brokers or any(broker.fenced for broker in brokers):
            return
        wanted = self.options.metadata_version
        if wanted is None and self.metadata.mark.adopted:
            return  # the cluster's own controller left it at its level, and may come back
        level = shared if wanted is None else min(wanted, shared)
        if level > self.cluster.feature(METADATA_VERSION):
            reason = "the highest that all brokers share" if wanted is None else "--metadata-version"
            self._observe(ChangeFeatures, features=self._features_with(level), reason=reason)
            self._joined_at = self.clock()

    def _features_with(self, level: int) -> Features:
        """The features at a level, none of them below what it is."""
        features = dict(features_at(level, self.cluster.brokers.values()))
        for name, had in self.cluster.features:
            features[name] = max(had, features.get(name, 0))
        return tuple(sorted(features.items()))
