"""Kafka brokers in KRaft mode: they follow the metadata log, send heartbeats, and apply decisions.

Brokers connect to the controller, never the other way round except to probe them. `controller.apis.kraft` handles their
requests, with the parts built here: the metadata log, the membership, and how far each broker has applied.

The leader also checks sessions, raises features once all brokers support them, and returns leadership to preferred
replicas (`auto.leader.rebalance.enable`), for which it walks over all topics in slices.

`UnreadableConfigs` finds config values in the metadata log that Kafka cannot read, before a Kafka voter has to lead
with them. Each such value is logged with the command that repairs it: when the value is found, and again when this
process becomes leader. The metric `topicwright_configs_unreadable` counts the values.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import Final

import structlog

from controller.brokers.kraft.membership import Membership
from controller.brokers.kraft.projection import is_kraft_broker
from controller.brokers.kraft.projector import MetadataProjector
from controller.brokers.kraft.readiness import Confirmations, Readiness
from controller.brokers.kraft.replication import QuorumReplication
from controller.brokers.port import Brokers, CommandSink, EventTypes, stamp, walk
from controller.machine.commands.commands import (
    BalanceLeaders,
    BeginQuorumEpoch,
    ChangeFeatures,
    FenceBroker,
    UnregisterBroker,
)
from controller.machine.configs.changes import repair, unreadable
from controller.machine.partitions.blocks import numbered
from controller.machine.state import TOPICS, Topic
from controller.quorum.features import (
    METADATA_VERSION_SHARED,
    Features,
    features_at,
    shared_metadata_version,
    why_unsupported,
)
from controller.quorum.log.batches import BrokenBatch
from controller.quorum.log.metadata_codec import MalformedRecord
from controller.quorum.log.record_kinds import METADATA_VERSION_FEATURE
from controller.quorum.node import QuorumNode
from controller.settings.load import ServeSettings
from controller.store.store import TopicStore, every_topic, parts_of, topic_slices
from events.catalog import (
    BrokerFenced,
    BrokerRegistered,
    BrokerUnfenced,
    BrokerUnregistered,
    Configs,
    Event,
    QuorumEpochBegun,
    Recorded,
    ResourceConfigsChanged,
    TopicConfigsChanged,
    TopicCreated,
    TopicDeleted,
    TopicDiscovered,
    TopicVanished,
)
from events.logs.log import LogClosed
from events.names import NO_LEADER, Offset

NAMED_MAX: Final = 20
"""The maximum number of unreadable configs to log when this process becomes leader; all were logged when found."""
RECOVERY_S: Final = 1.0
"""The pause between attempts while the log is recovered."""

logger = structlog.get_logger("topicwright.kraft")


class UnreadableConfigs:
    """The unreadable configs of one cluster, updated with each event."""

    handles: EventTypes = frozenset(
        {TopicCreated, TopicDiscovered, TopicConfigsChanged, TopicDeleted, TopicVanished, ResourceConfigsChanged}
    )

    def __init__(self) -> None:
        self._found: dict[tuple[int, str], tuple[str, ...]] = {}
        """By kind and name of a resource: a line for each unreadable config, with the command that repairs it."""

    @property
    def count(self) -> int:
        return sum(map(len, self._found.values()))

    async def scan(self, controller: CommandSink) -> None:
        """Find the unreadable configs already in the log."""
        while True:
            try:
                for _ in self.walk(lambda: controller.store):
                    await asyncio.sleep(0)
            except LogClosed:  # during recovery
                await asyncio.sleep(RECOVERY_S)
            else:
                return

    def walk(self, store: Callable[[], TopicStore]) -> Iterator[None]:
        """Check all durable configs, one slice a step."""
        for (kind, name), configs in store().durable_cluster.resource_configs.items():
            self._update(kind, name, configs)
        for topics in topic_slices(store):
            for topic in topics:
                self._update(TOPICS, topic.name, topic.configs)
            yield

    def on_event(self, event: Event) -> None:
        match event:
            case TopicCreated() | TopicDiscovered() | TopicConfigsChanged():
                self._update(TOPICS, event.topic, event.configs)
            case TopicDeleted() | TopicVanished():
                self._update(TOPICS, event.topic, ())
            case ResourceConfigsChanged():
                self._update(event.kind, event.name, event.configs)

    def lines(self) -> Iterator[str]:
        return chain.from_iterable(self._found.values())

    def _update(self, kind: int, resource: str, configs: Configs) -> None:
        of = f" of {resource}" if resource else ""
        lines = tuple(
            f"Kafka cannot read {name}={text!r}{of}; repair it: {repair(kind, resource, name, text)}"
            for name, text in unreadable(kind, configs)
        )
        if lines != self._found.pop((kind, resource), ()):
            _warn(lines)
        if lines:
            self._found[kind, resource] = lines


def _warn(lines: Iterable[str]) -> None:
    for line in lines:
        logger.warning("Kafka cannot read a config value, and could not lead with it", why=line)


CHECK_S: Final = 0.25
"""Interval of session checks: a small part of the shortest useful session timeout, and far more than the few
milliseconds within which brokers that keep up confirm a commit."""
SETTLED_S: Final = 3.0
"""Features are raised after no new broker has registered for this time."""


async def balance_leaders(controller: CommandSink, every_s: float) -> None:
    """Elect preferred leaders periodically, until cancelled."""
    while True:
        await asyncio.sleep(every_s)
        with suppress(LogClosed):  # during recovery of the log
            async for part in walk(controller, parts_of(topic_slices(lambda: controller.store))):
                names = tuple(topic.name for topic in part.topics if _is_imbalanced(topic, part.partitions))
                if names:
                    controller.submit_internal(
                        BalanceLeaders(**stamp(controller, "balance"), topics=names, partitions=part.partitions)
                    )


def _is_imbalanced(topic: Topic, indexes: Iterable[int] | None) -> bool:
    """True if the preferred replica is in sync but does not lead."""
    return any(
        one.leader not in (one.replicas[0], NO_LEADER) and one.replicas[0] in one.isr
        for _, one in numbered(topic.partitions, indexes)
    )


class KraftBrokers(Brokers):
    """The `Brokers` port for the Kafka brokers of one cluster. The metadata.version is raised to `metadata_version`;
    None for the highest level that all brokers support. `clock` is monotonic, in seconds."""

    handles: EventTypes = frozenset(
        {*UnreadableConfigs.handles, BrokerRegistered, BrokerUnfenced, BrokerFenced, BrokerUnregistered}
    )

    def __init__(
        self,
        projector: MetadataProjector,
        node: QuorumNode,
        replication: QuorumReplication,
        settings: ServeSettings,
        metadata_version: int | None,
        clock: Callable[[], float],
    ) -> None:
        self.projector, self.node, self.replication = projector, node, replication
        self._settings, self._metadata_version = settings, metadata_version
        self._clock = clock
        self.on_lead: Callable[[], None] = lambda: None
        """Called when this process becomes leader."""
        self.unreadable = UnreadableConfigs()
        self._tasks: list[asyncio.Task[None]] = []
        self._stopped = False
        # Set by `start`:
        self._controller: CommandSink
        self.membership: Membership
        self.confirmations: Confirmations
        self._readiness: Readiness

    def start(self, controller: CommandSink) -> None:
        settings, projector = self._settings, self.projector
        self._controller = controller
        projector.existing_topics = lambda: every_topic(controller.store)
        session_s = settings.broker_session_timeout_ms / 1000
        self.membership = Membership(controller, projector, self.replication, session_s, self._clock)
        self.confirmations = Confirmations(controller, self.replication.applied)
        self._readiness = Readiness(controller, self.node, self.confirmations)
        self.node.on_fetched = self._readiness.fetched
        self._tasks.append(controller.background(self._check_periodically()))
        self._tasks.append(controller.background(self.unreadable.scan(controller)))
        if settings.auto_leader_rebalance_enable:
            every_s = settings.leader_imbalance_check_interval_seconds
            self._tasks.append(controller.background(balance_leaders(controller, every_s)))

    async def _check_periodically(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            if not self.replication.leads:
                continue
            self.confirmations.submit_gathered()
            for broker_id in self.membership.expired():
                logger.warning("broker session expired", broker=broker_id)
                stamped = stamp(self._controller, "kraft")
                self._controller.submit_internal(FenceBroker(**stamped, broker_id=broker_id, reason="session expired"))
            if self.membership.unchanged_for_s() > SETTLED_S:
                await self._raise_features()

    async def _raise_features(self) -> None:
        """Raise metadata.version to the configured level, or the highest that all brokers support, and the features of
        that level. No registered broker may be fenced, and all other voters must support the features."""
        cluster = self.membership.cluster
        brokers = cluster.brokers.values()
        shared = shared_metadata_version(brokers)
        if shared is None or not brokers or any(broker.fenced for broker in brokers):
            return
        configured = self._metadata_version
        if configured is None and self.projector.mark.adopted:
            return  # keep the level of the adopted cluster, so that Kafka's controller can take it back
        level = shared if configured is None else min(configured, shared)
        if level > cluster.feature(METADATA_VERSION_FEATURE):
            reason = "the highest level that all brokers support" if configured is None else "--metadata-version"
            raised = dict(features_at(level, brokers))
            for name, had in cluster.features:  # none of them is lowered
                raised[name] = max(had, raised.get(name, 0))
            features = tuple(sorted(raised.items()))
            self.membership.restart_unchanged()
            if await self._voters_support(features):
                stamped = stamp(self._controller, "kraft")
                self._controller.submit_internal(ChangeFeatures(**stamped, features=features, reason=reason))

    async def _voters_support(self, features: Features) -> bool:
        """True if all other voters support them. A Kafka controller without support exits on replay of the record."""
        others = {each.id for each in self.replication.quorum.others}
        if not others:
            return True
        try:
            registered = await self.replication.registered.all()
        except (OSError, BrokenBatch, MalformedRecord) as error:
            logger.warning("metadata.version is not raised: registrations cannot be read", why=str(error))
            return False
        for name, level in features:
            why = why_unsupported(registered, others, name, level)
            if why is not None:
                logger.warning("metadata.version is not raised", feature=name, level=level, why=why)
                return False
        return True

    def on_events(self, records: Sequence[Recorded], end: Offset) -> None:
        """Follow committed events: sessions of brokers, what each broker has confirmed, and topics whose leaders are
        awaited. `end` is the offset after them."""
        log_end = self.replication.applied
        self.confirmations.record(log_end, end)
        for record in records:
            match record.event:
                case BrokerRegistered() | BrokerUnfenced() | BrokerFenced() | BrokerUnregistered() as event:
                    self.membership.on_event(event)
                    self.confirmations.forget(event.broker_id)
                case event:
                    self.unreadable.on_event(event)
        if self.replication.leads and not self._stopped:
            self._readiness.await_created(records, end, log_end)

    def resume(self) -> None:
        """This process now leads. Each broker gets a whole session timeout; brokers in the log that are not KRaft
        brokers are unregistered."""
        self.confirmations.restart(self.replication.applied)
        self._readiness.resume()
        self.membership.resume()
        for broker in self.membership.cluster.brokers.values():
            if not is_kraft_broker(broker):
                stamped = stamp(self._controller, "kraft")
                self._controller.submit_internal(
                    UnregisterBroker(**stamped, broker_id=broker.broker_id, reason="not a KRaft broker")
                )
        self._begin_epoch()
        _warn(islice(self.unreadable.lines(), NAMED_MAX))  # a Kafka voter may lead next
        self.on_lead()

    def _begin_epoch(self) -> None:
        quorum = self.replication.quorum
        at = (*quorum.address_of(quorum.me), quorum.me.directory)
        leader = QuorumEpochBegun(quorum.epoch, quorum.me.id, quorum.kraft_version, *at, quorum.options.priority)
        features = features_at(self._metadata_version or METADATA_VERSION_SHARED)
        stamped = stamp(self._controller, "kraft")
        self._controller.submit_internal(BeginQuorumEpoch(**stamped, leader=leader, features=features))

    def gauges(self) -> list[tuple[str, str, float]]:
        return [("configs_unreadable", "Config values that Kafka's own nodes cannot read.", self.unreadable.count)]

    async def stop(self) -> None:
        self._stopped = True
        for task in self._tasks:
            task.cancel()
        self._readiness.stop()
