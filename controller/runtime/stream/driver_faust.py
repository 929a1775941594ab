"""A worker's partitions and commands through Faust (faust-streaming).

Faust assigns, feeds and supervises; the engine decides what counts. As it is, Faust loses messages at rebalances: after
one it seeks to the committed offsets, then clears every agent's queue, and what was delivered in between is gone though
it counts as read. So two things are changed here, in subclasses:

- `perform_seek` seeks each partition to the next command that the events prove, after any fetch under way has ended
  (it would deliver from the old position). Partitions are claimed in `on_rebalance_complete`, which Faust sends just
  before it seeks and lets messages flow.
- the fetch wait, which Faust fixes at 1.5 s and which holds up every rebalance.

The agent only hands messages to an inbox; one task drains it, a batch at a time. A message is acknowledged when it was
decided, which is a figure for Kafka's tools: committed offsets are read by nobody. No Faust table is used, no web
server, no `take()`, and no static membership. A command that was lost all the same would show as a gap, and stop the
engine.

Trouble with Kafka ends a worker with this driver, to be started again: Faust has no way to claim partitions anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import faust
from aiokafka import TopicPartition
from faust.transport.drivers import aiokafka as transport

from controller.brokers.cluster_security import Security
from controller.runtime.stream.deciding import Sourced
from controller.runtime.stream.driver import COMMANDS_PER_BATCH_MAX, Group
from controller.runtime.stream.engine import Engine

FETCH_WAIT_MS = 100
FETCH_TIMEOUT_S = 0.25
"""How long one fetch may wait: a rebalance waits for it."""
INBOX_MAX = 2000
REBALANCE_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 30.0

Positions = Callable[[], Mapping[int, int]]
"""The next command of each claimed partition."""


class ClaimsLost(Exception):
    """Partitions would have to be claimed anew, which Faust cannot do."""


class _Thread(transport.AIOKafkaConsumerThread):
    def _create_worker_consumer(self, of: Any) -> Any:
        consumer = super()._create_worker_consumer(of)
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS
        return consumer


class _Consumer(transport.Consumer):
    fetching = False

    def _new_consumer_thread(self) -> _Thread:
        return _Thread(self, loop=self.loop, beacon=self.beacon)

    async def _wait_next_records(self, timeout: float) -> Any:
        if not self.flow_active:
            await self.wait(self.can_resume_flow)  # type: ignore[arg-type]  # as Faust itself calls it
        self.fetching = True
        try:
            return await super()._wait_next_records(min(timeout, FETCH_TIMEOUT_S))
        finally:
            self.fetching = False

    async def perform_seek(self) -> None:
        """Seek to where the events prove, rather than to the committed offsets."""
        while self.fetching:
            await self.sleep(0.01)
        assert isinstance(self.transport, _Transport), "made by it"
        positions = self.transport.positions()
        to = {tp: positions[tp.partition] for tp in self.assignment() if tp.partition in positions}
        await self.seek_wait({TopicPartition(tp.topic, tp.partition): offset for tp, offset in to.items()})
        self._committed_offset.update({tp: offset or None for tp, offset in to.items()})
        for tp in to:
            self._acked[tp].clear()
            self._acked_index[tp].clear()


class _Transport(transport.Transport):
    Consumer = _Consumer
    positions: Positions


class FaustDriver:
    """Implements `driver.Driver`."""

    def __init__(self, engine: Engine, group: Group) -> None:
        self._engine = engine
        self._group = group
        self._inbox: asyncio.Queue[Any] = asyncio.Queue(INBOX_MAX)
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._revocations = 0

    async def run(self, stopping: asyncio.Event, on_claimed: Callable[[], None]) -> None:
        """Run until `stopping` is set."""
        self._on_claimed = on_claimed
        app = self._app = self._make_app()
        draining = asyncio.create_task(self._drain())
        stopped = asyncio.create_task(stopping.wait())
        try:
            await app.start()
            await asyncio.wait((stopped, self._failed), return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                self._failed.result()
        finally:
            stopped.cancel()
            await self._engine.revoke()
            draining.cancel()
            with suppress(asyncio.CancelledError):
                await draining
            await app.stop()

    def claim_anew(self) -> None:
        """End the worker: it is to be started again."""
        self._fail(ClaimsLost("partitions have to be claimed anew, for which a worker with Faust has to be restarted"))

    def _make_app(self) -> Any:
        group = self._group
        app: Any = faust.App(
            group.group_id,
            broker=[f"kafka://{each.strip()}" for each in group.bootstrap.split(",")],
            broker_credentials=_credentials(group.security),
            store="memory://",
            autodiscover=False,
            web_enabled=False,
            topic_partitions=group.partitions,
            topic_disable_leader=True,
            topic_allow_declare=False,
            processing_guarantee="at_least_once",
            table_standby_replicas=0,
            stream_wait_empty=False,
            stream_recovery_delay=0.0,
            consumer_auto_offset_reset="earliest",
            producer_acks=-1,
            broker_session_timeout=group.session_timeout_ms / 1000,
            broker_heartbeat_interval=group.heartbeat_ms / 1000,
            broker_rebalance_timeout=REBALANCE_TIMEOUT_S,
            broker_request_timeout=max(REQUEST_TIMEOUT_S, group.session_timeout_ms / 1000),
            broker_commit_interval=1.0,
            broker_max_poll_records=COMMANDS_PER_BATCH_MAX,
            broker_max_poll_interval=3600.0,
        )
        app.transport = _Transport(app.conf.broker_consumer, app)
        app.transport.positions = self._positions
        commands = app.topic(
            group.topic,
            partitions=group.partitions,
            key_type=bytes,
            value_type=bytes,
            key_serializer="raw",
            value_serializer="raw",
        )
        app.agent(commands, name="deciding")(self._feed)
        app.on_partitions_revoked.connect(self._revoked)
        app.on_rebalance_complete.connect(self._complete)
        app.finalize()
        return app

    def _positions(self) -> dict[int, int]:
        return {partition: self._engine.next_source(partition) for partition in self._engine.active}

    # --- told by Faust

    async def _revoked(self, _app: Any, revoked: Any = None, **_: Any) -> None:
        self._revocations += 1
        await self._engine.revoke()

    async def _complete(self, app: Any, **_: Any) -> None:
        """The group has shared out: claim, before Faust seeks and lets messages flow."""
        generation, revocations = app.consumer_generation_id, self._revocations
        assigned = {tp.partition for tp in app.consumer.assignment() if tp.topic == self._group.topic}

        def still() -> bool:
            return bool(app.consumer_generation_id == generation and self._revocations == revocations)

        try:
            if await self._engine.claim(assigned, still):
                self._on_claimed()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._fail(error)

    async def _feed(self, stream: Any) -> None:
        async for event in stream.noack().events():
            await self._inbox.put(event)

    # --- deciding

    async def _drain(self) -> None:
        try:
            while True:
                events = [await self._inbox.get()]
                while len(events) < COMMANDS_PER_BATCH_MAX and not self._inbox.empty():
                    events.append(self._inbox.get_nowait())
                await self._handle([event for event in events if self._is_current(event.message)])
        except Exception as error:
            self._fail(error)

    def _is_current(self, message: Any) -> bool:
        """Whether a message was fetched under the assignment that is in force: an older one may be from before a
        seek, and would look like a gap."""
        return bool(message.generation_id == self._app.consumer_generation_id)

    async def _handle(self, events: list[Any]) -> None:
        messages = [event.message for event in events]
        await self._engine.handle([Sourced(each.partition, each.offset, each.value) for each in messages])
        positions = self._positions()
        for event, message in zip(events, messages, strict=True):
            if message.offset < positions.get(message.partition, 0):
                event.ack()

    def _fail(self, error: Exception) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)


def _credentials(security: Security) -> Any:
    """An identity in Faust's words; None where none is needed. Raises BadCredentials."""
    context = security.context()
    if security.mechanism:
        name, password = security.properties["sasl.username"], security.properties["sasl.password"]
        return faust.SASLCredentials(
            username=name, password=password, ssl_context=context, mechanism=security.mechanism
        )
    return None if context is None else faust.SSLCredentials(context)
