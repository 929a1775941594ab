"""A driver (see `driver`) on Faust (faust-streaming): feeds commands from the commands topic to the engine.

Faust assigns partitions, delivers messages and supervises tasks; the engine decides the commands. `faust_seam` changes
Faust so that no command is lost. A worker claims a partition by writing a fence, a record with the next epoch
(`worker.engine`). It claims partitions in `on_rebalance_complete`, before Faust seeks and resumes the consumer. If it
loses partitions between rebalances, it claims again in the same order: pause (`hold`), claim, seek, resume.

The agent only puts messages into an inbox, which one task drains in batches. Offsets are committed after the decisions,
only so that Kafka's tools show the lag: no worker reads them. No Faust table, web server, `take()` or static membership
is used. The engine detects a lost command as an offset gap; the driver then fetches the command again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import faust

from controller.kafka.connections import Security
from controller.stream.log.transport import TokenProvider
from controller.stream.worker.driver import COMMANDS_PER_BATCH_MAX, RETRY_S, DriverEnded, Group
from controller.stream.worker.engine import Engine, IsCurrent, PartitionsLost
from controller.stream.worker.faust_seam import FaustTransport, crash_of
from controller.stream.worker.partition_decider import Sourced

INBOX_MAX = 2000  # messages that may wait for a decision; at this limit Faust must wait
REBALANCE_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 30.0


class FaustDriver:
    """Feeds an engine by a Faust app."""

    def __init__(self, engine: Engine, group: Group) -> None:
        self._engine = engine
        self._group = group
        self._inbox: asyncio.Queue[Any] = asyncio.Queue(INBOX_MAX)
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._revocations = 0
        self._lost = asyncio.Event()
        """Set while assigned partitions must be claimed again."""
        engine.claim_again = self._lost.set

    async def run(self, stopping: asyncio.Event, on_claimed: Callable[[], None]) -> None:
        self._on_claimed = on_claimed
        app = self._app = self._make_app()
        working = [asyncio.create_task(each) for each in (self._drain(), self._reclaim_lost())]
        ended: list[asyncio.Task[Any]] = [asyncio.create_task(stopping.wait()), asyncio.create_task(self._crashed(app))]
        try:
            await app.start()
            await asyncio.wait([*ended, self._failed], return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                self._failed.result()  # the process must exit, and Faust may be unable to stop
            await self._engine.revoke()
        finally:
            for each in (*ended, *working):
                each.cancel()
            await asyncio.gather(*ended, *working, return_exceptions=True)
        await app.stop()

    def _make_app(self) -> Any:
        group = self._group
        app: Any = faust.App(
            group.group_id,
            broker=[f"kafka://{each.strip()}" for each in group.bootstrap.split(",")],
            broker_credentials=_credentials(group.security),
            store="memory://",
            datadir=str(self._engine.context.data / "faust").replace("{", "{{").replace("}", "}}"),  # Faust formats it
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
        app.transport = FaustTransport(app.conf.broker_consumer, app)
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
        return {partition: self._engine.next_source(partition) for partition in self._engine.leaders}

    # --- called by Faust

    async def _revoked(self, _app: Any, revoked: Any = None, **_: Any) -> None:
        self._revocations += 1
        await self._engine.revoke()

    async def _complete(self, _app: Any, **_: Any) -> None:
        """After a rebalance: claim, before Faust seeks and lets messages flow."""
        try:
            if await self._claim(self._assignment_check()):
                self._lost.clear()
                self._on_claimed()
        except Exception as error:
            self._fail(error)

    async def _claim(self, is_current: IsCurrent) -> bool:
        """Claim the assigned partitions; False if they are lost, or the assignment is not current any more."""
        consumer = self._app.consumer
        consumer.hold()
        assigned = {tp.partition for tp in consumer.assignment() if tp.topic == self._group.topic}
        try:
            return await self._engine.claim(assigned, is_current)
        except PartitionsLost:
            self._lost.set()
            return False

    def _assignment_check(self) -> IsCurrent:
        app, generation, revocations = self._app, self._app.consumer_generation_id, self._revocations
        return lambda: bool(app.consumer_generation_id == generation and self._revocations == revocations)

    async def _crashed(self, app: Any) -> None:
        """Faust stops itself after a fatal error, without raising."""
        self._fail(DriverEnded(f"Faust has crashed: {await crash_of(app)!r}"))

    async def _feed(self, stream: Any) -> None:
        async for event in stream.noack().events():
            await self._inbox.put(event)

    # --- claiming between rebalances

    async def _reclaim_lost(self) -> None:
        try:
            while True:
                await self._lost.wait()
                await asyncio.sleep(RETRY_S)
                if self._lost.is_set() and not self._app.rebalancing:
                    self._lost.clear()
                    await self._reclaim()
        except Exception as error:
            self._fail(error)

    async def _reclaim(self) -> None:
        """Claim again. A rebalance in between invalidates this claim; `_complete` then claims."""
        is_current = self._assignment_check()
        if await self._claim(is_current):
            await self._app.consumer.perform_seek()
            if is_current():
                self._app.consumer.resume_flowing()
                self._on_claimed()

    # --- deciding

    async def _drain(self) -> None:
        try:
            while True:
                events = [await self._inbox.get()]
                while len(events) < COMMANDS_PER_BATCH_MAX and not self._inbox.empty():
                    events.append(self._inbox.get_nowait())
                with suppress(PartitionsLost):
                    await self._handle([event for event in events if self._is_current(event.message)])
                    continue
                self._lost.set()
        except Exception as error:
            self._fail(error)

    def _is_current(self, message: Any) -> bool:
        """True if a message was fetched after the last seek, under the current assignment: an older one would look like
        a gap."""
        app = self._app
        return bool(message.seek == app.consumer.seeks and message.generation_id == app.consumer_generation_id)

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
    """Faust's credentials; None without any. Raises BadCredentials."""
    context = security.context()
    if security.token is not None:
        return faust.auth.OAuthCredentials(oauth_cb=TokenProvider(security.token), ssl_context=context)
    if security.mechanism:
        name, password = security.properties["sasl.username"], security.properties["sasl.password"]
        return faust.SASLCredentials(
            username=name, password=password, ssl_context=context, mechanism=security.mechanism
        )
    return None if context is None else faust.SSLCredentials(context)
