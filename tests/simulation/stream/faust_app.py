"""A model of a Faust app and its consumer, with the parts that `FaustDriver` uses, over the simulated Kafka.

It does what `test_faust.RESTED_ON` states about Faust, in that order. Before a rebalance it stops the flow and clears
the agents' queues. After it, a task of Faust's sends on_rebalance_complete, seeks, and resumes the flow, even if the
next rebalance has begun meanwhile. Faust itself does not run here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import msgspec
from aiokafka import ConsumerRebalanceListener, TopicPartition

from controller.stream.worker.driver import COMMANDS_PER_BATCH_MAX
from controller.stream.worker.driver_faust import FaustDriver
from controller.stream.worker.faust_seam import FETCH_TIMEOUT_S
from tests.simulation.stream.clients_of_kafka import SimulatedConsumer
from tests.simulation.stream.kafka import Link


class Message(msgspec.Struct, frozen=True):
    """A message of Faust, with the number of seeks before its fetch."""

    partition: int
    offset: int
    value: bytes
    seek: int
    generation_id: int


class Event(msgspec.Struct, frozen=True):
    """An element of an agent's stream."""

    message: Message


class SimulatedFaust(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """The app, its consumer and the stream of its agent in one object."""

    def __init__(self, driver: FaustDriver, link: Link, group_link: Link) -> None:
        self.consumer = self
        self.consumer_generation_id = 0
        self.rebalancing = False
        self.seeks = 0
        self.crash_reason: BaseException | None = None
        self._crashed = asyncio.Event()
        self._driver = driver
        self._kafka = SimulatedConsumer(link, group_link)
        self._flows = asyncio.Event()
        self._fetching_or_seeking = asyncio.Lock()
        self._recovery = asyncio.Lock()
        self._queue: asyncio.Queue[Event] = asyncio.Queue()
        self._working: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self._kafka.start()
        self._kafka.subscribe([], listener=self)
        self._working = [asyncio.ensure_future(each) for each in (self._fetch(), self._driver._receive(self))]

    async def stop(self) -> None:
        for each in self._working:
            each.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)
        await self._kafka.stop()

    # --- called by the group

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.rebalancing = True
        self.hold()
        while not self._queue.empty():
            self._queue.get_nowait()
        await self._driver._revoked(self, revoked)

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.consumer_generation_id += 1
        self.rebalancing = False
        self._working.append(asyncio.ensure_future(self._recover()))

    async def _recover(self) -> None:
        async with self._recovery:
            await self._driver._complete(self)
            await self.perform_seek()
            self.resume_flowing()

    # --- the consumer

    def assignment(self) -> set[TopicPartition]:
        return set(self._kafka._at)

    def hold(self) -> None:
        self._flows.clear()

    def resume_flowing(self) -> None:
        self._flows.set()

    async def perform_seek(self) -> None:
        async with self._fetching_or_seeking:
            self.seeks += 1
            positions = self._driver._positions()
            for place in self.assignment():
                if place.partition in positions:
                    self._kafka.seek(place, positions[place.partition])

    async def _fetch(self) -> None:
        while True:
            await self._flows.wait()
            async with self._fetching_or_seeking:
                timeout_ms = int(FETCH_TIMEOUT_S * 1000)
                fetched = await self._kafka.getmany(timeout_ms=timeout_ms, max_records=COMMANDS_PER_BATCH_MAX)
                seek = self.seeks
            for place, records in fetched.items():
                for record in records:
                    if self._flows.is_set() and self.seeks == seek:
                        message = Message(
                            place.partition, record.offset, record.value, seek, self.consumer_generation_id
                        )
                        self._queue.put_nowait(Event(message))
            await asyncio.sleep(0)

    # --- the agent's stream

    def noack(self) -> SimulatedFaust:
        return self

    async def events(self) -> AsyncIterator[Any]:
        with suppress(asyncio.CancelledError):
            while True:
                yield await self._queue.get()
