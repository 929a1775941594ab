"""Watches the target cluster for `target_cluster`: if its brokers, topics or configs differ from the log, it submits
commands. It also polls new topics until all brokers know them.

Constraints:
- full scans use one broker as long as it answers, so the view never goes back in time;
- topics that Topicwright is changing, or just changed, are skipped: brokers apply a change one after another;
- a topic counts as deleted only when no live broker knows it;
- a scan with the same response as the last one costs only the comparison of its bytes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from hashlib import blake2b
from typing import TypeVar

from controller.brokers.cluster.actions import ActionRunner
from controller.brokers.cluster.link import ClusterLink, ClusterMetadata, SeenTopic
from controller.brokers.cluster.reconciliation import differs
from controller.brokers.port import CommandSink, report_failed, report_live, stamp
from controller.kafka.connections import Address, ClusterUnreachable
from controller.kafka.messages.clients import NodeEndpoint
from controller.machine.commands.commands import ChangeLogDirs, ConfirmMetadata, DiscoverDeletion, DiscoverTopic
from controller.machine.configs.topic_configs import without_labels
from controller.machine.state import Topic
from controller.machine.target_cluster import OBSERVED, is_provisional
from controller.store.store import PARTITIONS_SHOWN_AT_ONCE, topic_slices
from events.catalog import Configs, Endpoint
from events.logs.log import grouped
from events.names import BrokerId, Offset, TopicName, shard_key

TOPICS_PER_SLICE = 200  # between slices the event loop serves others
CONFIRM_S_MIN, CONFIRM_S_MAX = 0.01, 0.25
LISTENER = "PLAINTEXT"
"""The listener name recorded for each broker: a Metadata response does not have the real names."""

T = TypeVar("T")
Owns = Callable[[TopicName], bool]
"""True if a topic belongs to this log; with several logs each has only a part of the topics."""


class ClusterWatch:
    """Scans the cluster and submits commands for the differences from the log."""

    def __init__(self, link: ClusterLink, sink: CommandSink, actions: ActionRunner, owns: Owns) -> None:
        self._link = link
        self._sink = sink
        self._actions = actions
        self._owns = owns
        self._payload: bytes | None = None
        self._confirming: dict[TopicName, None] = {}
        self._wake = asyncio.Event()

    def rescan_all(self) -> None:
        """Compare everything at the next scan."""
        self._payload = None

    # --- brokers and topics

    async def scan(self) -> None:
        """Scan brokers and topics once. Raises ClusterUnreachable."""
        payload, metadata = await self._link.all_metadata()
        await self._report_brokers(metadata.brokers)
        if payload != self._payload:
            self._payload = payload  # until there is a difference
            await self._compare(metadata)
            await self._report_deleted(metadata)

    async def _report_brokers(self, seen: Sequence[NodeEndpoint]) -> None:
        sink, cluster = self._sink, self._sink.store.durable_cluster
        for one in seen:
            broker_id = BrokerId(one.node_id)
            broker, incarnation = cluster.brokers.get(broker_id), f"cluster-{one.host}:{one.port}"
            if broker is None or broker.fenced or (broker.incarnation, broker.rack) != (incarnation, one.rack):
                endpoints = (Endpoint(LISTENER, one.host, one.port),)
                report_live(sink, broker_id, incarnation, one.rack, endpoints, "live in the cluster")
        for broker_id in sorted(set(sink.store.durable_cluster.live) - {one.node_id for one in seen}):
            report_failed(sink, broker_id, "not live in the cluster")
        await sink.decided()

    async def _compare(self, metadata: ClusterMetadata) -> None:
        """Submit all differences."""
        new_topics: list[SeenTopic] = []
        for topics in grouped(metadata.topics.values(), TOPICS_PER_SLICE, lambda _: 1):
            for seen in topics:
                if not self._owns(seen.name):
                    continue
                topic = self._sink.store.durable(shard_key(seen.name))
                if topic is not None and topic.name == seen.name and not differs(topic, seen):
                    continue
                self.rescan_all()
                if self._is_own_change(seen.name) or seen.topic_id in self._actions.deleted:
                    continue
                if topic is None or (topic.topic_id != seen.topic_id and not is_provisional(topic)):
                    new_topics.append(seen)
                elif topic.name == seen.name:
                    self.report(topic, seen)
            await asyncio.sleep(0)
            await self._sink.decided()
        for topics in grouped(new_topics, TOPICS_PER_SLICE, lambda _: 1):
            configs = await self._link.configs([seen.name for seen in topics])
            for seen in topics:
                topic = self._sink.store.durable(shard_key(seen.name))
                if seen.name in configs and not self.is_busy(seen.name):
                    self.report(topic, seen, configs[seen.name])
            await self._sink.decided()

    def _is_own_change(self, name: TopicName) -> bool:
        """True if a difference is our own change, in progress or to be resumed."""
        return self.is_busy(name) or self._actions.resume_work(name)

    def is_busy(self, name: TopicName) -> bool:
        """True if we are changing the topic, just did, or wait until all brokers know it."""
        return name in self._confirming or self._actions.is_busy(name)

    def report(self, topic: Topic | None, seen: SeenTopic, configs: Configs | None = None, why: str = OBSERVED) -> None:
        """Record the state of a topic in the target cluster; `topic` is its state in the log."""
        self._sink.submit_internal(
            DiscoverTopic(
                **stamp(self._sink, "observed"),
                topic=seen.name,
                topic_id=seen.topic_id,
                partitions=seen.partitions,
                configs=configs,
                known=None if topic is None else (len(topic.partitions), topic.configs),
                reason=why,
            )
        )

    async def _report_deleted(self, metadata: ClusterMetadata) -> None:
        for topics in topic_slices(lambda: self._sink.store, PARTITIONS_SHOWN_AT_ONCE):
            missing = [topic for topic in topics if topic.name not in metadata.topics]
            if missing:
                self.rescan_all()
            deleted = [topic for topic in missing if not is_provisional(topic) and not self.is_busy(topic.name)]
            if deleted:
                live = [BrokerId(broker.node_id) for broker in metadata.brokers]
                known_by = partial(self._link.metadata_from, topics=[topic.name for topic in deleted])
                metadata_by_broker = await self._answers(live, known_by)
                for topic in deleted:
                    if not any(topic.name in seen.topics for seen in metadata_by_broker.values()):
                        self._sink.submit_internal(
                            DiscoverDeletion(
                                **stamp(self._sink, "observed"),
                                topic=topic.name,
                                topic_id=topic.topic_id,
                                reason="deleted in the cluster",
                            )
                        )
                await self._sink.decided()
            await asyncio.sleep(0)

    # --- configs

    async def scan_configs(self) -> None:
        """Compare the explicit configs of all topics. Raises ClusterUnreachable."""
        for topics in topic_slices(lambda: self._sink.store, PARTITIONS_SHOWN_AT_ONCE):
            settled = [topic for topic in topics if topic.ready_at_ms is not None and not self.is_busy(topic.name)]
            configs = await self._link.configs([topic.name for topic in settled]) if settled else {}
            known = {topic.name: without_labels(topic.configs) for topic in settled}
            differing = [topic for topic in settled if configs.get(topic.name, known[topic.name]) != known[topic.name]]
            if differing:
                await self._report_configs(differing, configs)
            await asyncio.sleep(0)

    async def _report_configs(self, topics: Sequence[Topic], configs: dict[TopicName, Configs]) -> None:
        metadata = await self._link.metadata([topic.name for topic in topics])
        for topic in topics:
            seen = metadata.topics.get(topic.name)
            if seen is not None and seen.topic_id == topic.topic_id and not self._is_own_change(topic.name):
                self.report(topic, seen, configs[topic.name])
        await self._sink.decided()

    # --- log directories

    async def scan_log_dirs(self) -> None:
        """Report changes of cordoned log directories (KIP-1066). For Kafka our replicas are a manual assignment, which
        Kafka before 4.4 does not check against cordoned directories."""
        cluster = self._sink.store.durable_cluster
        for broker_id, found in (await self._answers(cluster.live, self._link.cordoned)).items():
            broker = cluster.brokers[broker_id]
            cordoned = tuple(sorted(_directory_id(name) for name, is_cordoned in found.items() if is_cordoned))
            log_dirs = tuple(sorted(map(_directory_id, found))) if cordoned else ()
            if (log_dirs, cordoned) != (broker.log_dirs, broker.cordoned):
                self._sink.submit_internal(
                    ChangeLogDirs(
                        **stamp(self._sink, f"broker-{broker_id}"),
                        broker_id=broker_id,
                        log_dirs=log_dirs,
                        cordoned=cordoned,
                    )
                )
        await self._sink.decided()

    async def rescan(self, name: TopicName) -> None:
        """Compare one topic now, after the cluster refused a change. Raises ClusterUnreachable."""
        topic = self._sink.store.durable_named(name)
        seen = (await self._link.metadata([name])).topics.get(name)
        configs = await self._link.configs([name])
        if seen is not None and name in configs:
            self.report(topic, seen, configs[name])
        elif topic is not None and not is_provisional(topic):
            self.rescan_all()

    # --- new topics

    def confirm(self, name: TopicName) -> None:
        """Poll a new topic until every live broker knows it."""
        self._confirming[name] = None
        self._wake.set()

    async def confirm_all(self) -> None:
        """Poll new topics until cancelled, less often while the brokers report nothing new."""
        rest_s = CONFIRM_S_MIN
        while True:
            if not self._confirming:
                self._wake.clear()
                await self._wake.wait()
                rest_s = CONFIRM_S_MIN
            progress = await self._confirm_some()
            rest_s = CONFIRM_S_MIN if progress else min(rest_s * 1.5, CONFIRM_S_MAX)
            await asyncio.sleep(rest_s)

    async def _confirm_some(self) -> bool:
        """Poll every live broker once for the oldest new topics. Returns whether anything was new."""
        names = list(self._confirming)[:TOPICS_PER_SLICE]
        topics = {name: self._sink.store.durable_named(name) for name in names}
        waiting = {name: topic for name, topic in topics.items() if topic is not None and topic.ready_at_ms is None}
        for name in names:
            if name not in waiting:
                del self._confirming[name]
        live = self._sink.store.durable_cluster.live
        request = partial(self._link.metadata_from, topics=waiting)
        seen_by = await self._answers(live, request) if waiting else {}
        confirmed = [
            self._confirm_one(
                topic, {broker: seen.topics[name] for broker, seen in seen_by.items() if name in seen.topics}
            )
            for name, topic in waiting.items()
        ]
        await self._sink.decided()
        return any(confirmed)

    def _confirm_one(self, topic: Topic, seen_by: dict[BrokerId, SeenTopic]) -> bool:
        new = {
            broker: seen
            for broker, seen in seen_by.items()
            if seen.topic_id not in self._actions.deleted and all(one.leader >= 0 for one in seen.partitions)
        }
        confirming_brokers = tuple(broker for broker in new if broker not in topic.propagated)
        if not confirming_brokers:
            return False
        seen = max(new.values(), key=lambda one: sum(part.leader_epoch for part in one.partitions))
        if differs(topic, seen):
            self.report(topic, seen, why="created in the cluster")
        at = topic.created_offset
        self._sink.submit_internal(
            ConfirmMetadata(**stamp(self._sink, "applied"), brokers=confirming_brokers, offset=at, after=Offset(at - 1))
        )
        return True

    async def _answers(
        self, brokers: Iterable[BrokerId], request: Callable[[Address], Awaitable[T]]
    ) -> dict[BrokerId, T]:
        """The answers of registered brokers to a request; unreachable brokers are left out."""
        registered = self._sink.store.durable_cluster.brokers
        places = {broker_id: registered[broker_id].endpoints[0] for broker_id in brokers if broker_id in registered}
        answers = await asyncio.gather(*(_answer_or_none(request((at.host, at.port))) for at in places.values()))
        return {broker_id: answer for broker_id, answer in zip(places, answers, strict=True) if answer is not None}


async def _answer_or_none(request: Awaitable[T]) -> T | None:
    try:
        return await request
    except ClusterUnreachable:
        return None


def _directory_id(path: str) -> bytes:
    """A log directory id, derived from the path because clients see no id."""
    return blake2b(path.encode(), digest_size=16).digest()
