"""A driver (see `driver`) on Faust (faust-streaming): feeds commands from the commands topic to the engine.

Faust assigns partitions, delivers messages and supervises tasks; the engine decides the commands. `faust_seam` changes
Faust so that no command is lost. A worker claims a partition by writing a fence, a record with the next epoch
(`worker.engine`), always in the same order: pause (`hold`), claim, seek, resume. Faust may seek and resume the consumer
meanwhile, at the end of a rebalance; messages that it fetched before the last seek do not count.

The agent only puts messages into an inbox, which the driver's loop drains in batches. It never acknowledges them, so
that Faust commits no offsets. No Faust table, web server, `take()` or static membership is used. The engine detects a
lost command as an offset gap; the driver then fetches the command again.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import faust

from controller.kafka.connections import Security
from controller.stream.log.transport import NO_SECURITY, TokenProvider
from controller.stream.worker.driver import COMMANDS_PER_BATCH_MAX, POLL_MS, Driver, DriverEnded
from controller.stream.worker.engine import Engine, IsCurrent
from controller.stream.worker.faust_seam import FaustTransport, crash_of
from controller.stream.worker.partition_decider import Sourced

INBOX_MAX = 2000  # messages that may wait for a decision; at this limit Faust must wait
REBALANCE_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 30.0


class FaustDriver(Driver):
    """Feeds an engine by a Faust app."""

    def __init__(self, engine: Engine, bootstrap: str, security: Security = NO_SECURITY) -> None:
        super().__init__(engine, bootstrap, security)
        self._inbox: asyncio.Queue[Any] = asyncio.Queue(INBOX_MAX)

    async def run(self, stopping: asyncio.Event, on_claimed: Callable[[], None]) -> None:
        app = self._app = self._make_app()
        await app.start()
        await self._drive(stopping, on_claimed)  # an exception must end the process, and Faust may be unable to stop
        await self._engine.revoke()
        await app.stop()

    def _make_app(self) -> Any:
        topic, partitions = self._topics.commands, self._topics.partitions
        app: Any = faust.App(
            self._group_id,
            broker=[f"kafka://{each.strip()}" for each in self._bootstrap.split(",")],
            broker_credentials=_credentials(self._security),
            datadir=str(self._engine.context.data / "faust").replace("{", "{{").replace("}", "}}"),  # Faust formats it
            web_enabled=False,
            topic_partitions=partitions,
            topic_disable_leader=True,
            topic_allow_declare=False,
            processing_guarantee="at_least_once",
            table_standby_replicas=0,  # with them, Faust assigns partitions by a protocol of its own
            stream_wait_empty=False,
            consumer_auto_offset_reset="earliest",
            producer_acks=-1,
            broker_session_timeout=self._session_ms / 1000,
            broker_heartbeat_interval=self._heartbeat_ms / 1000,
            broker_rebalance_timeout=REBALANCE_TIMEOUT_S,
            broker_request_timeout=max(REQUEST_TIMEOUT_S, self._session_ms / 1000),
            broker_max_poll_records=COMMANDS_PER_BATCH_MAX,
            broker_max_poll_interval=3600.0,
        )
        app.transport = FaustTransport(app.conf.broker_consumer, app)
        app.transport.positions = self._positions
        commands = app.topic(
            topic, partitions=partitions, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw"
        )
        app.agent(commands, name="deciding")(self._receive)
        app.on_partitions_revoked.connect(self._revoked)
        app.on_rebalance_complete.connect(self._complete)
        app.finalize()
        return app

    def _positions(self) -> dict[int, int]:
        return {partition: self._engine.next_source(partition) for partition in self._engine.leaders}

    # --- called by Faust

    async def _revoked(self, _app: Any, revoked: Any = None, **_: Any) -> None:
        await self._revoke()

    async def _complete(self, _app: Any, **_: Any) -> None:
        self._assign()

    async def _receive(self, stream: Any) -> None:
        async for event in stream.noack().events():
            await self._inbox.put(event)

    # --- called by the loop

    async def _check_member(self) -> None:
        """Raise DriverEnded if Faust has stopped itself after a fatal error, which it does without raising."""
        reason = crash_of(self._app)
        if reason is not None:
            raise DriverEnded(f"Faust has crashed: {reason!r}")

    def _hold(self) -> set[int]:
        self._app.consumer.hold()
        return {tp.partition for tp in self._app.consumer.assignment() if tp.topic == self._topics.commands}

    async def _resume(self, is_current: IsCurrent) -> None:
        await self._app.consumer.perform_seek()
        if is_current():
            self._app.consumer.resume_flowing()

    async def _feed(self) -> None:
        await self._check_member()
        try:
            async with asyncio.timeout(POLL_MS / 1000):
                events = [await self._inbox.get()]
        except TimeoutError:
            return
        while len(events) < COMMANDS_PER_BATCH_MAX and not self._inbox.empty():
            events.append(self._inbox.get_nowait())
        messages = [event.message for event in events if self._is_current(event.message)]
        await self._engine.handle([Sourced(each.partition, each.offset, each.value) for each in messages])

    def _is_current(self, message: Any) -> bool:
        """True if a message was fetched after the last seek, under the current assignment: an older one would look like
        a gap."""
        app = self._app
        return bool(message.seek == app.consumer.seeks and message.generation_id == app.consumer_generation_id)


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
