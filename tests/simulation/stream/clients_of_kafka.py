"""Simulated clients of Kafka: the engine's transport, the driver's consumer, a gateway's producer and follower.

They replace aiokafka and librdkafka, over a link that may fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from aiokafka import ConsumerRebalanceListener, TopicPartition
from confluent_kafka import KafkaError

from controller.stream.gateway.kafka import CommandProducer, Done, FollowedEvents, Record
from controller.stream.log.topics import KafkaUnavailable
from controller.stream.log.transport import Transport, Values
from tests.simulation.stream.kafka import GATEWAYS, HEARTBEAT_S, NO_RECORD, Generation, Link

READ_AT_ONCE = 40
FETCH_S = 0.5
PRODUCED_WITHIN_S = 5.0


def _part(log: list[bytes], start: int, end: int) -> list[bytes]:
    return log[start:end]


class SimulatedTransport(Transport):
    """May send a batch as two requests, of which the second may get lost."""

    def __init__(self, link: Link, events_link: Link) -> None:
        self._link, self._events_link, self._kafka = link, events_link, link.kafka

    async def append(self, partition: int, values: Sequence[bytes]) -> int:
        cut = self._kafka.rng.randrange(len(values)) if self._kafka.rng.random() < 0.1 else 0
        parts = [part for part in (list(values[:cut]), list(values[cut:])) if part]
        firsts = await asyncio.gather(
            *(
                self._events_link.call(partial(self._kafka.append, partition, part), self._kafka.replicates_s)
                for part in parts
            )
        )
        ends = [first + len(part) for first, part in zip(firsts, parts, strict=True)]
        return firsts[0] if firsts[1:] == ends[:-1] else -1

    async def read(self, partition: int, start: int, end: int) -> AsyncGenerator[Values, None]:
        log = self._kafka.events[partition]
        for at in range(start, end, READ_AT_ONCE):
            to = min(at + READ_AT_ONCE, end)
            read = await self._link.call(partial(_part, log, at, to))
            yield [(offset, value) for offset, value in enumerate(read, at) if value != NO_RECORD]

    async def events_range(self, partition: int) -> tuple[int, int]:
        return await self._link.call(lambda: (0, len(self._kafka.events[partition])))

    async def commands_range(self, partition: int) -> tuple[int, int]:
        return await self._link.call(lambda: (0, len(self._kafka.commands[partition])))

    async def put(self, partition: int, key: bytes, value: bytes) -> asyncio.Future[int]:
        put = partial(self._kafka.put, self._kafka.topics.commands, partition, value)
        return asyncio.ensure_future(self._link.call(put))

    async def close(self) -> None:
        return None


class Fetched(NamedTuple):
    """The parts of a record that the driver reads."""

    offset: int
    value: bytes


class SimulatedConsumer:
    """The part of AIOKafkaConsumer that `PlainDriver` uses."""

    def __init__(self, link: Link, group_link: Link, **_: Any) -> None:
        self._link, self._group_link, self._kafka = link, group_link, link.kafka
        self._member = f"member-{link.process}"
        self._listener: ConsumerRebalanceListener
        self._at: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._task: asyncio.Task[None]

    async def start(self) -> None:
        while True:
            with suppress(KafkaUnavailable):
                return await self._link.call(lambda: None)

    def subscribe(self, topics: Sequence[str], listener: ConsumerRebalanceListener) -> None:
        self._listener = listener
        self._task = asyncio.ensure_future(self._take_part())

    async def _take_part(self) -> None:
        group, member = self._kafka.group, self._member
        while True:
            try:
                await self._group_link.call(lambda: group.join(member))
                share = await self._share()
                if share is None:
                    continue
                self._at = {TopicPartition(self._kafka.topics.commands, each): 0 for each in share.partitions}
                await self._listener.on_partitions_assigned(set(self._at))
                await self._keep(share)
            except KafkaUnavailable:
                continue
            finally:
                revoked, self._at = set(self._at), {}
                self._paused.clear()
            await self._listener.on_partitions_revoked(revoked)

    async def _share(self) -> Generation | None:
        while True:
            share = await self._group_link.call(lambda: self._kafka.group.share(self._member))
            if share is not None or not await self._group_link.call(lambda: self._kafka.group.awaits(self._member)):
                return share
            await asyncio.sleep(HEARTBEAT_S / 4)

    async def _keep(self, share: Generation) -> None:
        """Send heartbeats until the coordinator reports another generation; without a response the assignment stays."""
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            with suppress(KafkaUnavailable):
                if not await self._group_link.call(lambda: self._kafka.group.beat(self._member, share.number)):
                    return

    async def getmany(self, *, timeout_ms: int, max_records: int = 500) -> dict[TopicPartition, list[Fetched]]:
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        while True:
            places = sorted(self._at.keys() - self._paused)
            for place in places:
                found = await self._fetch(place, max_records)
                if found:
                    return {place: found}
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0:
                return {}
            await self._kafka.more(left_s)

    async def _fetch(self, place: TopicPartition, count: int) -> list[Fetched]:
        log, at = self._kafka.commands[place.partition], self._at.get(place)
        if at is None or at >= len(log):
            return []
        with suppress(KafkaUnavailable):
            values = await self._link.call(partial(_part, log, at, at + count))
            if self._at.get(place) == at and place not in self._paused:
                self._at[place] = at + len(values)
                return [Fetched(offset, value) for offset, value in enumerate(values, at)]
        return []

    def pause(self, place: TopicPartition) -> None:
        self._paused.add(place)

    def resume(self, place: TopicPartition) -> None:
        self._paused.discard(place)

    def seek(self, place: TopicPartition, offset: int) -> None:
        self._at[place] = offset

    @property
    def _client(self) -> SimulatedConsumer:
        return self

    async def close(self) -> None:
        """Does nothing: there are no connections."""

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})
        with suppress(KafkaUnavailable):
            await self._group_link.call(lambda: self._kafka.group.leave(self._member))


class SimulatedProducer(CommandProducer):
    """A record that is not acknowledged in time may still have arrived."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def produce(self, topic: str, partition: int, key: bytes, value: bytes, done: Done) -> None:
        loop = asyncio.get_running_loop()
        late = loop.call_later(PRODUCED_WITHIN_S, lambda: done(-1, KafkaError(KafkaError._MSG_TIMED_OUT)))

        def acknowledged(offset: int) -> None:
            if not late.cancelled() and loop.time() < late.when():
                late.cancel()
                done(offset, None)

        self._link.send(partial(self._link.kafka.put, topic, partition, value), acknowledged)


class SimulatedFollower:
    """Passes new events and announcements to `take`."""

    def __init__(self, link: Link, offsets: Sequence[int], take: Callable[[FollowedEvents], None]) -> None:
        kafka, self._link, self._take = link.kafka, link, take
        events = kafka.topics.events
        self._at = {(events, number): offset for number, offset in enumerate(offsets)}
        self._behind = {place: len(kafka.log(*place)) for place in self._at}
        self._at[GATEWAYS, 0] = len(kafka.gateways)

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            with suppress(KafkaUnavailable):
                records = await self._link.call(self._fetch)
                self._hand_over(records)
                if not records:
                    await self._link.kafka.more(FETCH_S)

    def _fetch(self) -> list[Record]:
        kafka = self._link.kafka
        return [
            Record(*place, offset, value)
            for place, at in self._at.items()
            for offset, value in enumerate(kafka.log(*place)[at : at + READ_AT_ONCE], at)
        ]

    def _hand_over(self, records: list[Record]) -> None:
        for record in records:
            self._at[record.topic, record.partition] = record.offset + 1
        ended = frozenset(place for place, end in self._behind.items() if self._at[place] >= end)
        for place in ended:
            del self._behind[place]
        given = tuple(record for record in records if record.value != NO_RECORD)
        if given or ended:
            self._take(FollowedEvents(given, ended))
