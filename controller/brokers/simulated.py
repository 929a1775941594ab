"""Simulated brokers in this process, for `serve --brokers N` and tests: they register, apply metadata, lead and follow,
and they delay, fail and restart on demand.

They behave like Kafka brokers, but store no records. A running broker applies the metadata log `delay_ms` after it is
durable, then confirms it; a leader reports a returning follower as in sync. Only committed events drive them, so after
a restart of the controller they continue from the log. Brokers 1 to N run; all others of the log stay fenced.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from controller.brokers.port import CommandSink, EventTypes, report_failed, report_live, stamp
from controller.machine.commands import commands
from controller.machine.partitions.blocks import numbered
from controller.machine.state import Topic
from controller.store.store import Part
from events import catalog
from events.names import BrokerId, Offset, TopicName

SIMULATED_BROKERS_MAX = 1000  # each costs a task and a heartbeat
RACKS = ("rack-a", "rack-b", "rack-c")


class UnknownBroker(Exception):
    def __init__(self, broker_id: int, known: Sequence[int]) -> None:
        super().__init__(f"no simulated broker {broker_id}; known: {', '.join(map(str, known)) or 'none'}")


class SimulatedBroker(msgspec.Struct):
    """One simulated broker. It applies an event `delay_ms` after the event is durable."""

    broker_id: BrokerId
    rack: str
    delay_ms: int = 0
    running: bool = True
    applied: Offset = Offset(-1)
    """The offset of the newest event that this broker has applied."""
    starts: int = 1
    """Number of starts. A restart discards the events that the previous process had not applied yet."""
    confirmed: Offset = Offset(-1)
    """The newest offset that this broker has confirmed since its start, or since a failed write dropped commands."""


class SimulatedBrokers:
    """Simulated brokers with ids 1 to N, in three racks in turn.

    `endpoints` maps a broker to its advertised address. All others advertise `default_endpoints`, the controller's own
    listeners.
    """

    handles: EventTypes = frozenset({catalog.PartitionChanged})

    def __init__(self, count: int) -> None:
        self.by_id = {BrokerId(n): SimulatedBroker(BrokerId(n), rack_of(n)) for n in range(1, count + 1)}
        self.endpoints: dict[BrokerId, catalog.Endpoint] = {}
        self.default_endpoints: tuple[catalog.Endpoint, ...] = (catalog.Endpoint("PLAINTEXT", "localhost", 9092),)
        self._controller: CommandSink
        self._stopped = False
        self.on_running_changed: Callable[[SimulatedBroker], None] = lambda _: None
        """Called with each broker that starts or stops."""

    # --- the port

    def start(self, controller: CommandSink) -> None:
        """Register brokers 1 to N, and fence all others of the log."""
        self._controller = controller
        self.resume()

    def resume(self) -> None:
        """This process now leads: the log gets the present state of each simulated broker, and all others are
        fenced."""
        for broker_id in self._controller.store.durable_cluster.brokers:
            if broker_id not in self.by_id:
                report_failed(self._controller, broker_id, "not among the simulated brokers")
        for broker in self.by_id.values():
            broker.confirmed = Offset(-1)
            if broker.running:
                self._join(broker, "started")
            else:
                report_failed(self._controller, broker.broker_id, "stopped")
        self._applied_by_all(self._controller.last_offset)

    def immediate_commands(self, records: Sequence[catalog.Recorded]) -> Sequence[commands.AnyCommand]:
        """Confirm the events for all brokers without delay: they apply events as soon as these are durable."""
        return () if self._stopped else self._confirmed(self._prompt(), records[-1].offset)

    def on_events(self, records: Sequence[catalog.Recorded], end: Offset) -> None:
        if self._stopped:
            return
        self._applied_by_all(end)
        changed: dict[TopicName, set[int]] = {}
        for record in records:
            event: Any = record.event
            changed.setdefault(event.topic, set()).add(event.partition)
        for name, indexes in sorted(changed.items()):
            topic = self._controller.store.durable_named(name)
            if topic is not None:
                self._report_isr(topic, numbered(topic.partitions, sorted(indexes)))

    def report_again(self, part: Part) -> None:
        for topic in part.topics:
            self._report_isr(topic, numbered(topic.partitions, part.partitions))

    async def stop(self) -> None:
        self._stopped = True

    # --- control by users and tests

    def add(self, rack: str | None = None) -> SimulatedBroker:
        broker_id = BrokerId(max([0, *self.by_id, *self._controller.store.durable_cluster.brokers]) + 1)
        broker = SimulatedBroker(broker_id, rack or rack_of(broker_id))
        self.by_id[broker_id] = broker
        self.on_running_changed(broker)
        self._join(broker, "joined")
        self._applied_by((broker,), self._controller.last_offset)
        return broker

    def stop_broker(self, broker_id: int) -> None:
        """Stop a broker and fence it. Raises UnknownBroker."""
        broker = self._broker(broker_id)
        broker.running = False
        self.on_running_changed(broker)
        report_failed(self._controller, broker.broker_id, "stopped")

    def start_broker(self, broker_id: int) -> None:
        """Start a broker; it applies the events that it missed. Raises UnknownBroker."""
        broker = self._broker(broker_id)
        if not broker.running:
            broker.running = True
            broker.starts += 1
            broker.confirmed = Offset(-1)
            self.on_running_changed(broker)
        self._join(broker, "started")
        self._later(broker, self._controller.last_offset)

    def set_delay(self, broker_id: int, delay_ms: int) -> None:
        """Set the delay between an event's durability and its being applied. Raises UnknownBroker."""
        self._broker(broker_id).delay_ms = delay_ms

    def _broker(self, broker_id: int) -> SimulatedBroker:
        broker = self.by_id.get(BrokerId(broker_id))
        if broker is None:
            raise UnknownBroker(broker_id, sorted(self.by_id))
        return broker

    def _join(self, broker: SimulatedBroker, reason: str) -> None:
        broker_id, own = broker.broker_id, self.endpoints.get(broker.broker_id)
        endpoints = self.default_endpoints if own is None else (own,)
        report_live(self._controller, broker_id, f"simulated-{broker_id}", broker.rack, endpoints, reason)

    def _applied_by_all(self, offset: Offset) -> None:
        self._applied_by(self._prompt(), offset)
        for broker in self.by_id.values():
            if broker.running and broker.delay_ms > 0:
                self._later(broker, offset)

    def _prompt(self) -> list[SimulatedBroker]:
        return [broker for broker in self.by_id.values() if broker.running and broker.delay_ms == 0]

    def _later(self, broker: SimulatedBroker, offset: Offset) -> None:
        start = broker.starts

        async def apply_then() -> None:
            await asyncio.sleep(broker.delay_ms / 1000)
            if broker.running and broker.starts == start and not self._stopped:
                self._applied_by((broker,), offset)

        self._controller.background(apply_then())

    def _applied_by(self, brokers: Sequence[SimulatedBroker], offset: Offset) -> None:
        for broker in brokers:
            broker.applied = max(broker.applied, offset)
        for command in self._confirmed(brokers, offset):
            self._controller.submit_internal(command)

    def _confirmed(self, brokers: Sequence[SimulatedBroker], offset: Offset) -> tuple[commands.ConfirmMetadata, ...]:
        """Confirmations up to `offset`, if a topic may wait for them."""
        confirming = [broker for broker in brokers if broker.confirmed < offset]
        if not confirming:
            return ()
        after = min(broker.confirmed for broker in confirming)
        for broker in confirming:
            broker.confirmed = offset
        sink = self._controller
        if not sink.has_pending_creates():
            return ()
        ids = tuple(broker.broker_id for broker in confirming)
        return (commands.ConfirmMetadata(**stamp(sink, "applied"), brokers=ids, offset=offset, after=after),)

    def _report_isr(self, topic: Topic, partitions: Iterable[tuple[int, catalog.Partition]]) -> None:
        """Let leaders report running followers as in sync."""
        live = self._controller.store.durable_cluster.live
        by_leader: dict[BrokerId, list[commands.IsrReport]] = {}
        for index, partition in partitions:
            isr = tuple(replica for replica in partition.replicas if replica in live)
            if partition.leader not in live or set(isr) <= set(partition.isr):
                continue
            report = commands.IsrReport(index, isr, partition.leader_epoch, partition.partition_epoch)
            by_leader.setdefault(partition.leader, []).append(report)
        for leader, reports in by_leader.items():
            stamped = stamp(self._controller, f"broker-{leader}")
            self._controller.submit_internal(
                commands.AlterPartition(**stamped, topic=topic.name, broker_id=leader, reports=tuple(reports))
            )


def rack_of(broker_id: int) -> str:
    return RACKS[(broker_id - 1) % len(RACKS)]
