"""Brokers in the process: they register, apply metadata, lead and follow, with delay, failure and restart on demand.

They carry decisions out as real brokers would, without keeping records: a broker that is running has applied the
metadata log `delay_ms` after it became durable and then confirms it; a leader whose follower returns reports it in
sync. What they do is driven by the committed events alone, so a restart of the controller finds them as the log left
them: brokers 1 to N run, others of the log stay fenced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from controller.brokers.port import CommandSink, stamp, walk
from controller.machine.commands import commands
from controller.machine.partitions.blocks import numbered
from controller.machine.partitions.leadership import is_in_sync
from controller.machine.state import Topic
from events import catalog
from events.logs.log import LogClosed
from events.names import BrokerId, Offset, TopicName, shard_key
from projections.store.store import troubled_slices

SIMULATED_BROKERS_MAX = 1000  # each costs a task and a heartbeat
RACKS = ("rack-a", "rack-b", "rack-c")
_OF_PARTITIONS = frozenset({catalog.PlaceholderFilled, catalog.LeaderElected, catalog.IsrChanged})
_OF_BROKERS = frozenset({catalog.BrokerUnfenced, catalog.BrokerFenced, catalog.BrokerUnregistered})
"""Those that leave count too: a report that named one of them was refused as a whole."""


class UnknownBroker(Exception):
    """No simulated broker has this id."""

    def __init__(self, broker_id: int, known: Sequence[int]) -> None:
        super().__init__(f"there is no simulated broker {broker_id}; known are {', '.join(map(str, known)) or 'none'}")


class SimulatedBroker:
    """One broker: `delay_ms` passes between an event's durability and its being applied here."""

    def __init__(self, broker_id: BrokerId, rack: str) -> None:
        self.broker_id = broker_id
        self.rack = rack
        self.delay_ms = 0
        self.running = True
        self.applied = Offset(-1)
        """How far it has applied the log."""
        self.starts = 1
        """How often it was started: what it had yet to apply goes with the process that dies."""
        self.confirmed = Offset(-1)
        """Up to where it has confirmed what it applied, since it was started or its confirmations were last lost."""


class SimulatedFleet:
    """A fleet of simulated brokers, ids 1 to N, in three racks in turn.

    `endpoints` has the address at which clients find a broker, `default_endpoints` those of all the others: the
    controller's own, one a listener. Without any they have no address.
    """

    def __init__(self, count: int) -> None:
        self.brokers = {BrokerId(n): SimulatedBroker(BrokerId(n), rack_of(n)) for n in range(1, count + 1)}
        self.endpoints: dict[BrokerId, catalog.Endpoint] = {}
        self.default_endpoints: tuple[catalog.Endpoint, ...] = (catalog.Endpoint("PLAINTEXT", "localhost", 9092),)
        self._controller: CommandSink
        self._loop: asyncio.AbstractEventLoop
        self._timers: set[asyncio.TimerHandle] = set()
        self._sweeping: asyncio.Task[None] | None = None
        self._sweep_again = False
        self._stopped = False
        self.on_life: Callable[[SimulatedBroker], None] | None = None
        """Called with each broker that starts or stops."""

    # --- the port

    def start(self, controller: CommandSink) -> None:
        """Register brokers 1 to N, fence those that the log knows beside them, and report what is not in sync."""
        self._controller = controller
        self._loop = asyncio.get_running_loop()
        self.resume()

    def resume(self) -> None:
        """Report everything anew."""
        for broker_id in self._controller.store.durable_cluster.brokers:
            if broker_id not in self.brokers:
                self._fence(broker_id, "not in this fleet")
        for broker in self.brokers.values():
            broker.confirmed = Offset(-1)
            if broker.running:
                self._join(broker, "started")
            else:
                self._fence(broker.broker_id, "stopped")
        self._applied_by_all(self._controller.last_offset)
        self._sweep()

    def immediate_commands(self, records: Sequence[catalog.Recorded]) -> Sequence[commands.AnyCommand]:
        """A broker without delay has applied events when they are durable, and not before: it confirms them with the
        commit that they are in."""
        return () if self._stopped else self._confirmed(self._prompt(), records[-1].offset)

    def learn(self, records: Sequence[catalog.Recorded]) -> None:
        """Apply committed events, each broker after its delay."""
        if not self._stopped:
            self._applied_by_all(records[-1].offset)
            self._catch_up_after(records)

    async def stop(self) -> None:
        """Stop: timers are cancelled, nothing more is reported."""
        self._stopped = True
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if self._sweeping is not None:
            self._sweeping.cancel()

    # --- the script: what tests and users do to brokers

    def add(self, rack: str | None = None) -> SimulatedBroker:
        """A further broker joins; its id is the next free one."""
        broker_id = BrokerId(max([0, *self.brokers, *self._controller.store.durable_cluster.brokers]) + 1)
        broker = SimulatedBroker(broker_id, rack or rack_of(broker_id))
        self.brokers[broker_id] = broker
        self._lives(broker)
        self._join(broker, "joined")
        self._applied_by((broker,), self._controller.last_offset)
        return broker

    def stop_broker(self, broker_id: int) -> None:
        """A broker dies. Raises UnknownBroker."""
        broker = self._broker(broker_id)
        broker.running = False
        self._lives(broker)
        self._fence(broker.broker_id, "stopped")

    def start_broker(self, broker_id: int) -> None:
        """A broker comes back and applies what it missed. Raises UnknownBroker."""
        broker = self._broker(broker_id)
        if not broker.running:
            broker.running = True
            broker.starts += 1
            broker.confirmed = Offset(-1)
            self._lives(broker)
        self._join(broker, "started")
        self._later(broker, self._controller.last_offset)

    def set_delay(self, broker_id: int, delay_ms: int) -> None:
        """From now on a broker applies events this long after they are durable. Raises UnknownBroker."""
        self._broker(broker_id).delay_ms = delay_ms

    def _broker(self, broker_id: int) -> SimulatedBroker:
        broker = self.brokers.get(BrokerId(broker_id))
        if broker is None:
            raise UnknownBroker(broker_id, sorted(self.brokers))
        return broker

    # --- inside

    def _lives(self, broker: SimulatedBroker) -> None:
        if self.on_life is not None:
            self.on_life(broker)

    def _join(self, broker: SimulatedBroker, reason: str) -> None:
        sink = self._controller
        stamped = stamp(sink, f"broker-{broker.broker_id}")
        own = self.endpoints.get(broker.broker_id)
        sink.submit_internal(
            commands.RegisterBroker(
                **stamped,
                broker_id=broker.broker_id,
                incarnation=f"simulated-{broker.broker_id}",
                rack=broker.rack,
                endpoints=self.default_endpoints if own is None else (own,),
            )
        )
        sink.submit_internal(commands.UnfenceBroker(**stamped, broker_id=broker.broker_id, reason=reason))

    def _fence(self, broker_id: BrokerId, reason: str) -> None:
        stamped = stamp(self._controller, f"broker-{broker_id}")
        self._controller.submit_internal(commands.FenceBroker(**stamped, broker_id=broker_id, reason=reason))

    def _applied_by_all(self, offset: Offset) -> None:
        """Every running broker has the log up to `offset` now, and applies it after its delay."""
        self._applied_by(self._prompt(), offset)
        for broker in self.brokers.values():
            if broker.running and broker.delay_ms > 0:
                self._later(broker, offset)

    def _prompt(self) -> list[SimulatedBroker]:
        return [broker for broker in self.brokers.values() if broker.running and broker.delay_ms == 0]

    def _later(self, broker: SimulatedBroker, offset: Offset) -> None:
        timer: asyncio.TimerHandle
        start = broker.starts

        def apply_now() -> None:
            self._timers.discard(timer)
            if broker.running and broker.starts == start:
                self._applied_by((broker,), offset)

        timer = self._loop.call_later(broker.delay_ms / 1000, apply_now)
        self._timers.add(timer)

    def _applied_by(self, brokers: Sequence[SimulatedBroker], offset: Offset) -> None:
        """These brokers, which run, have applied the log up to `offset`."""
        for broker in brokers:
            broker.applied = max(broker.applied, offset)
        for command in self._confirmed(brokers, offset):
            self._controller.submit_internal(command)

    def _confirmed(self, brokers: Sequence[SimulatedBroker], offset: Offset) -> tuple[commands.ConfirmMetadata, ...]:
        """What these brokers say when they have applied the log so far, if a topic may wait for that."""
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

    def _catch_up_after(self, records: Sequence[catalog.Recorded]) -> None:
        concerned: dict[TopicName, set[int]] = {}
        for record in records:
            event: Any = record.event
            if type(event) in _OF_PARTITIONS:
                concerned.setdefault(event.topic, set()).add(event.partition)
            elif type(event) in _OF_BROKERS:
                self._sweep()
        for name, indexes in sorted(concerned.items()):
            topic = self._controller.store.durable(shard_key(name))
            if topic is not None and topic.name == name:
                there = [index for index in sorted(indexes) if index < len(topic.partitions)]
                self._report_isr(topic, [(index, topic.partitions[index]) for index in there])

    def _sweep(self) -> None:
        """Report what is not in sync, now or as soon as the sweep under way is done."""
        if self._sweeping is not None and not self._sweeping.done():
            self._sweep_again = True
        else:
            self._sweeping = self._controller.background(self._report_all())

    async def _report_all(self) -> None:
        self._sweep_again = True
        while self._sweep_again:
            self._sweep_again = False
            try:
                async for part in walk(self._controller, troubled_slices):
                    for topic in part.topics:
                        self._report_isr(topic, numbered(topic.partitions, part.span))
            except LogClosed:
                return  # the log is being recovered, after which everything is reported anyway

    def _report_isr(self, topic: Topic, partitions: Iterable[tuple[int, catalog.Partition]]) -> None:
        """Leaders of some partitions report followers that run again as in sync."""
        live = self._controller.store.durable_cluster.live
        by_leader: dict[BrokerId, list[commands.IsrReport]] = {}
        for index, partition in partitions:
            if partition.leader not in live or is_in_sync(partition, live):
                continue
            isr = tuple(replica for replica in partition.replicas if replica in live)
            report = commands.IsrReport(index, isr, partition.leader_epoch, partition.partition_epoch)
            by_leader.setdefault(partition.leader, []).append(report)
        for leader, reports in by_leader.items():
            stamped = stamp(self._controller, f"broker-{leader}")
            self._controller.submit_internal(
                commands.AlterPartition(**stamped, topic=topic.name, broker_id=leader, reports=tuple(reports))
            )


def rack_of(broker_id: int) -> str:
    """The rack of a simulated broker: three in turn."""
    return RACKS[(broker_id - 1) % len(RACKS)]
