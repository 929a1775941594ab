"""Watch the cluster: who lives, how its topics stand, who knows a new one. What is seen becomes commands.

Constraints:
- all looks at the whole go to one broker for as long as it answers, so that what is seen never goes back;
- what Topicwright itself is changing, or has just changed, is not looked at: brokers learn of it one after another;
- a topic counts as gone only when no live broker knows it;
- a look that shows what the last one showed costs no more than its bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Protocol, TypeVar

from controller.brokers.cluster.facts import Past, differs, known
from controller.brokers.cluster.link import ClusterLink, Look, SeenBroker, SeenTopic
from controller.brokers.cluster.wire import ClusterUnreachable
from controller.brokers.port import CommandSink
from controller.machine.commands.cluster import DiscoverDeletion, DiscoverTopic
from controller.machine.commands.commands import (
    ChangeLogDirs,
    ConfirmMetadata,
    FenceBroker,
    RegisterBroker,
    UnfenceBroker,
)
from controller.machine.discovering import OBSERVED, is_provisional
from controller.machine.state import Broker, Topic
from events.catalog import Configs, Endpoint
from events.names import BrokerId, Offset, RequestId, TopicId, TopicName, shard_key

TOPICS_PER_SLICE = 200  # the loop serves others in between
CONFIRM_S_MIN, CONFIRM_S_MAX = 0.01, 0.25
CREATED_HERE = "created in the cluster"
DELETED_THERE = "deleted in the cluster"
LISTENER = "PLAINTEXT"
"""The name under which a broker's address is kept: the cluster does not show the names of its listeners."""

T = TypeVar("T")
Owns = Callable[[TopicName], bool]
"""Whether a topic of the cluster is ours to report: one of several logs has only its share of them."""


class Around(Protocol):
    """What the fleet knows beside the store."""

    deleted: dict[TopicId, None]
    """Ids of topics that were deleted from here: a broker may show them a little longer."""

    def is_busy(self, name: TopicName) -> bool:
        """Whether a topic is being changed from here, or was a moment ago."""
        ...

    def left_open(self, name: TopicName) -> Past | None:
        """What the log leaves open of a topic, None where that is not in question any more."""
        ...

    def take_up(self, name: TopicName, past: Past) -> bool:
        """Have what is left open carried out; whether there was anything."""
        ...


class ClusterWatch:
    """Looks at the cluster and puts what it sees."""

    def __init__(self, link: ClusterLink, sink: CommandSink, around: Around, owns: Owns) -> None:
        self._link = link
        self._sink = sink
        self._around = around
        self._owns = owns
        self._payload: bytes | None = None
        self._confirming: dict[TopicName, None] = {}
        self._wake = asyncio.Event()

    def forget(self) -> None:
        """Compare everything at the next look."""
        self._payload = None

    # --- the whole

    async def look(self) -> None:
        """One look at brokers and topics. Raises ClusterUnreachable."""
        payload, look = await self._link.look_at_all()
        await self._report_brokers(look.brokers)
        if payload == self._payload:
            return
        agrees = await self._compare(look)
        agrees = await self._report_gone(look) and agrees
        self._payload = payload if agrees else None

    async def _report_brokers(self, seen: Sequence[SeenBroker]) -> None:
        sink, brokers = self._sink, self._sink.store.durable_cluster.brokers
        for one in seen:
            mine = brokers.get(one.broker_id)
            if mine is None or not _is_same(mine, one):
                self._register(one)
            if mine is None or mine.fenced or not _is_same(mine, one):
                self._sink.submit_internal(
                    UnfenceBroker(
                        request_id=self._id(f"broker-{one.broker_id}"),
                        at_ms=self._sink.now_ms(),
                        broker_id=one.broker_id,
                        reason="live in the cluster",
                    )
                )
        live = {one.broker_id for one in seen}
        for broker_id in sink.store.durable_cluster.live:
            if broker_id not in live:
                self._sink.submit_internal(
                    FenceBroker(
                        request_id=self._id(f"broker-{broker_id}"),
                        at_ms=self._sink.now_ms(),
                        broker_id=broker_id,
                        reason="not live in the cluster",
                    )
                )
        await sink.decided()

    def _register(self, seen: SeenBroker) -> None:
        self._sink.submit_internal(
            RegisterBroker(
                request_id=self._id(f"broker-{seen.broker_id}"),
                at_ms=self._sink.now_ms(),
                broker_id=seen.broker_id,
                incarnation=_incarnation(seen),
                rack=seen.rack,
                endpoints=(Endpoint(LISTENER, seen.host, seen.port),),
            )
        )

    async def _compare(self, look: Look) -> bool:
        """Put what differs; whether nothing did."""
        agrees, fresh = True, list[SeenTopic]()
        for topics in _slices(look.topics.values()):
            for seen in topics:
                if not self._owns(seen.name):
                    continue
                topic = self._sink.store.durable(shard_key(seen.name))
                if topic is not None and topic.name == seen.name and not differs(topic, seen):
                    continue
                agrees = False
                if self._is_ours(seen.name) or seen.topic_id in self._around.deleted:
                    continue
                if topic is None or (topic.topic_id != seen.topic_id and not is_provisional(topic)):
                    fresh.append(seen)
                elif topic.name == seen.name:
                    self.report(topic, seen)
            await asyncio.sleep(0)
            await self._sink.decided()
        for topics in _slices(fresh):
            configs = await self._link.configs([seen.name for seen in topics])
            for seen in topics:
                topic = self._sink.store.durable(shard_key(seen.name))
                if seen.name in configs and not self._around.is_busy(seen.name):
                    self.report(topic, seen, configs[seen.name])
            await self._sink.decided()
        return agrees

    def _is_ours(self, name: TopicName) -> bool:
        """Whether a difference is work that is under way from here, or that is to be taken up again."""
        if self._around.is_busy(name):
            return True
        past = self._around.left_open(name)
        return past is not None and self._around.take_up(name, past)

    def report(self, topic: Topic | None, seen: SeenTopic, configs: Configs | None = None, why: str = OBSERVED) -> None:
        """Put how the cluster has a topic; `topic` is what was known of it."""
        self._sink.submit_internal(
            DiscoverTopic(
                request_id=self._id(),
                at_ms=self._sink.now_ms(),
                topic=seen.name,
                topic_id=seen.topic_id,
                partitions=seen.partitions,
                configs=configs,
                known=known(topic),
                reason=why,
            )
        )

    async def _report_gone(self, look: Look) -> bool:
        """Put which topics are gone; whether none is missing."""
        agrees = True
        after: str | None = None
        while topics := self._sink.store.durable_slice(after, TOPICS_PER_SLICE):
            after = shard_key(topics[-1].name)
            missing = [topic for topic in topics if topic.name not in look.topics]
            agrees = agrees and not missing
            gone = [topic for topic in missing if not is_provisional(topic) and not self._around.is_busy(topic.name)]
            if gone:
                shown = await self._known_by([broker.broker_id for broker in look.brokers], [t.name for t in gone])
                for topic in gone:
                    if not any(topic.name in seen for seen in shown.values()):
                        self._sink.submit_internal(
                            DiscoverDeletion(
                                request_id=self._id(),
                                at_ms=self._sink.now_ms(),
                                topic=topic.name,
                                topic_id=topic.topic_id,
                                reason=DELETED_THERE,
                            )
                        )
                await self._sink.decided()
            await asyncio.sleep(0)
        return agrees

    # --- configs

    async def look_at_configs(self) -> None:
        """Compare the explicit configs of all topics. Raises ClusterUnreachable."""
        after: str | None = None
        while topics := self._sink.store.durable_slice(after, TOPICS_PER_SLICE):
            after = shard_key(topics[-1].name)
            calm = [topic for topic in topics if topic.ready_at_ms is not None and not self._around.is_busy(topic.name)]
            configs = await self._link.configs([topic.name for topic in calm]) if calm else {}
            differing = [topic for topic in calm if configs.get(topic.name, topic.configs) != topic.configs]
            if differing:
                await self._report_configs(differing, configs)
            await asyncio.sleep(0)

    async def _report_configs(self, topics: Sequence[Topic], configs: dict[TopicName, Configs]) -> None:
        look = await self._link.look([topic.name for topic in topics])
        for topic in topics:
            seen = look.topics.get(topic.name)
            if seen is not None and seen.topic_id == topic.topic_id and not self._is_ours(topic.name):
                self.report(topic, seen, configs[topic.name])
        await self._sink.decided()

    # --- log directories

    async def look_at_log_dirs(self) -> None:
        """Report the brokers whose log directories are cordoned, or no longer are: Kafka takes the replicas that are
        chosen here as a manual assignment, which it does not check for that before 4.4."""
        cluster = self._sink.store.durable_cluster
        brokers = [cluster.brokers[broker_id] for broker_id in cluster.live]
        addresses = [(each.endpoints[0].host, each.endpoints[0].port) for each in brokers]
        looks = await asyncio.gather(*(_or_none(self._link.cordoned(address)) for address in addresses))
        for broker, found in zip(brokers, looks, strict=True):
            if found is None:
                continue
            cordoned = tuple(sorted(_directory_id(name) for name, is_cordoned in found.items() if is_cordoned))
            log_dirs = tuple(sorted(map(_directory_id, found))) if cordoned else ()
            if (log_dirs, cordoned) != (broker.log_dirs, broker.cordoned):
                self._sink.submit_internal(
                    ChangeLogDirs(
                        request_id=self._id(f"broker-{broker.broker_id}"),
                        at_ms=self._sink.now_ms(),
                        broker_id=broker.broker_id,
                        log_dirs=log_dirs,
                        cordoned=cordoned,
                    )
                )
        await self._sink.decided()

    async def recheck(self, name: TopicName) -> None:
        """Compare one topic at once, whatever was done to it: the cluster has refused something. Raises
        ClusterUnreachable."""
        topic = self._sink.store.durable_named(name)
        seen = (await self._link.look([name])).topics.get(name)
        configs = await self._link.configs([name])
        if seen is not None and name in configs:
            self.report(topic, seen, configs[name])
        elif topic is not None and not is_provisional(topic):
            self.forget()

    # --- who knows a new topic

    def confirm(self, name: TopicName) -> None:
        """A topic was created: watch until every live broker knows it."""
        self._confirming[name] = None
        self._wake.set()

    def is_confirming(self, name: TopicName) -> bool:
        """Whether a topic is watched until it is known."""
        return name in self._confirming

    async def confirm_all(self) -> None:
        """Watch new topics until cancelled."""
        rest_s = CONFIRM_S_MIN
        while True:
            if not self._confirming:
                self._wake.clear()
                await self._wake.wait()
                rest_s = CONFIRM_S_MIN
            news = await self._confirm_some()
            rest_s = CONFIRM_S_MIN if news else min(rest_s * 1.5, CONFIRM_S_MAX)
            await asyncio.sleep(rest_s)

    async def _confirm_some(self) -> bool:
        """One look of every live broker at the oldest new topics; whether it showed anything new."""
        names = list(self._confirming)[:TOPICS_PER_SLICE]
        topics = {name: self._sink.store.durable_named(name) for name in names}
        waiting = {name: topic for name, topic in topics.items() if topic is not None and topic.ready_at_ms is None}
        for name in names:
            if name not in waiting:
                del self._confirming[name]
        live = self._sink.store.durable_cluster.live
        shown = await self._known_by(live, list(waiting)) if waiting else {}
        news = False
        for name, topic in waiting.items():
            news = (
                self._confirm_one(topic, {broker: seen[name] for broker, seen in shown.items() if name in seen}) or news
            )
        await self._sink.decided()
        return news

    def _confirm_one(self, topic: Topic, seen_by: dict[BrokerId, SeenTopic]) -> bool:
        new = {
            broker: seen
            for broker, seen in seen_by.items()
            if seen.topic_id not in self._around.deleted and all(one.leader >= 0 for one in seen.partitions)
        }
        fresh = tuple(broker for broker in new if broker not in topic.propagated)
        if not fresh:
            return False
        seen = max(new.values(), key=lambda one: sum(part.leader_epoch for part in one.partitions))
        if differs(topic, seen):
            self.report(topic, seen, why=CREATED_HERE)
        at = topic.created_offset
        self._sink.submit_internal(
            ConfirmMetadata(
                request_id=self._id("applied"),
                at_ms=self._sink.now_ms(),
                brokers=fresh,
                offset=at,
                after=Offset(at - 1),
            )
        )
        return True

    async def _known_by(
        self, brokers: Iterable[BrokerId], names: Sequence[TopicName]
    ) -> dict[BrokerId, dict[TopicName, SeenTopic]]:
        """What each of these brokers that answers knows of the topics."""
        registered = self._sink.store.durable_cluster.brokers
        ids = [broker_id for broker_id in brokers if broker_id in registered]
        addresses = [(registered[one].endpoints[0].host, registered[one].endpoints[0].port) for one in ids]
        looks = await asyncio.gather(*(_or_none(self._link.look_at(address, names)) for address in addresses))
        return {broker: dict(look.topics) for broker, look in zip(ids, looks, strict=True) if look is not None}

    def _id(self, origin: str = "observed") -> RequestId:
        return self._sink.new_request_id(origin)


async def _or_none(look: Awaitable[T]) -> T | None:
    try:
        return await look
    except ClusterUnreachable:
        return None


def _directory_id(path: str) -> bytes:
    """An id of a log directory, which a broker shows clients by its path."""
    return blake2b(path.encode(), digest_size=16).digest()


def _incarnation(seen: SeenBroker) -> str:
    return f"cluster-{seen.host}:{seen.port}"


def _is_same(mine: Broker, seen: SeenBroker) -> bool:
    return (mine.incarnation, mine.rack) == (_incarnation(seen), seen.rack)


def _slices(values: Iterable[T]) -> Iterator[list[T]]:
    some = list(values)
    for start in range(0, len(some), TOPICS_PER_SLICE):
        yield some[start : start + TOPICS_PER_SLICE]
