"""Who the brokers are: their epochs, sessions and log directories, and how far each has applied the metadata log.

A broker's epoch is on the wire the offset of its registration in the metadata log; the machine counts registrations.
Both stand for the same registration, and are translated here.

A second process with the id of a broker is refused when it registers, but it follows the metadata log, and takes from
there the epoch of the broker that is registered. So its word on where replicas lie passes Kafka's checks, and the two
processes would undo each other's for ever. What tells them apart is that it names directories that the broker never
had. One that failed since the registration is still the broker's own: that it failed is reported with it (KIP-858).
Nothing is known so of brokers that registered before this process started.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from controller.brokers.kraft.log.projector import MetadataProjector
from controller.brokers.kraft.registration import RESERVED_DIRECTORIES
from controller.brokers.kraft.replication import QuorumReplication
from controller.brokers.port import CommandSink
from controller.machine.state import Broker, Cluster
from events.catalog import BrokerFenced, BrokerRegistered, BrokerUnfenced, BrokerUnregistered
from events.logs.log import LogClosed
from events.names import BrokerId, ShardKey


class Sessions:
    """When each broker was heard of last. A broker that was never heard of has from the start a whole session."""

    def __init__(self, timeout_s: float, now: float) -> None:
        self.timeout_s = timeout_s
        self._since = now
        self._seen: dict[BrokerId, float] = {}
        self._checked = now

    def touch(self, broker_id: BrokerId, now: float) -> None:
        """A broker was heard of."""
        self._seen[broker_id] = now

    def forget(self, broker_id: BrokerId) -> None:
        """A broker is gone, and its session with it."""
        self._seen[broker_id] = float("-inf")

    def is_valid(self, broker_id: BrokerId, now: float) -> bool:
        """Whether the broker was heard of within the timeout."""
        return now - self._seen.get(broker_id, self._since) < self.timeout_s

    def expired(self, brokers: Iterable[BrokerId], now: float) -> list[BrokerId]:
        """Those of these brokers that were not heard of in time.

        Time in which this process itself was held up (stopped, or starved) is given to all: their heartbeats may lie
        unread.
        """
        held_up = now - self._checked - self.timeout_s / 4
        self._checked = now
        if held_up > 0:
            self._since += held_up
            self._seen = {broker_id: seen + held_up for broker_id, seen in self._seen.items()}
        return [broker_id for broker_id in brokers if not self.is_valid(broker_id, now)]


ANY_EPOCH: Final = -1
"""How a broker says that it does not know another's epoch (KIP-903)."""
NO_EPOCH: Final = -2
"""An epoch that no broker has."""
TOPICS_AT_ONCE: Final = 500
"""Read without a rest: some ten milliseconds where they lie on the disk."""

logger = structlog.get_logger("topicwright.kraft")


class Directories:
    """The ids of the log directories of each broker, as of its registration."""

    def __init__(self) -> None:
        self._own: dict[BrokerId, frozenset[bytes]] = {}

    def registered(self, broker_id: BrokerId, directories: Iterable[bytes]) -> None:
        """A broker registered with these."""
        self._own[broker_id] = frozenset(directories)

    def forget(self, broker_id: BrokerId) -> None:
        """A broker is gone."""
        self._own.pop(broker_id, None)

    def is_unknown_directory(self, broker_id: int, directory: bytes) -> bool:
        """Whether the broker registered without this directory."""
        own = self._own.get(BrokerId(broker_id), frozenset())
        return bool(own) and directory not in own and directory not in RESERVED_DIRECTORIES


class Membership:
    """The registered brokers as of the last durable commit. `clock` gives seconds and only goes forward."""

    def __init__(
        self,
        controller: CommandSink,
        projector: MetadataProjector,
        replication: QuorumReplication,
        session_timeout_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._controller = controller
        self._projector = projector
        self._replication = replication
        self._clock = clock
        self._sessions = Sessions(session_timeout_s, clock())
        self._directories = Directories()
        self._applied_ends: dict[BrokerId, int] = {}
        """The offset after the newest that a broker has applied, by its heartbeats."""
        self._leaving: dict[BrokerId, int] = {}
        """Where the metadata log ended when it was first seen that a broker that leaves leads nothing any more."""
        self._changed_at = clock()

    @property
    def cluster(self) -> Cluster:
        """Brokers and features."""
        return self._controller.store.durable_cluster

    # --- epochs

    def broker(self, broker_id: int, epoch: int) -> Broker | None:
        """The registered broker of this id if `epoch`, as on the wire, is its own; else None."""
        broker = self.cluster.brokers.get(BrokerId(broker_id))
        return broker if broker is not None and self._projector.broker_epoch(broker_id) == epoch else None

    def machine_epoch(self, broker_id: int, epoch: int) -> int:
        """The machine's epoch of the registration that `epoch` on the wire stands for; NO_EPOCH if it is an old one."""
        if epoch == ANY_EPOCH:
            return ANY_EPOCH
        broker = self.broker(broker_id, epoch)
        return NO_EPOCH if broker is None else broker.broker_epoch

    def wire_epoch(self, broker_id: BrokerId, machine_epoch: int) -> int | None:
        """The epoch on the wire of a registration; None if the broker has gone or registered anew since."""
        broker = self.cluster.brokers.get(broker_id)
        if broker is None or broker.broker_epoch != machine_epoch:
            return None
        return self._projector.broker_epoch(broker_id)

    def shut_down_cleanly(self, broker_id: BrokerId, epoch: int) -> bool:
        """Whether a broker that registers has all that it had: it ended in order, as all its directories say, in
        `epoch`, as on the wire, which is that of its newest registration (KIP-966). It is -1 before version 3, and of
        who did not. Kafka believes no broker that it has forgotten; here one without replicas has lost nothing."""
        if broker_id in self.cluster.brokers:
            return self._projector.broker_epoch(broker_id) == epoch
        return not self._controller.store.has_replicas(broker_id)

    # --- sessions

    def has_session(self, broker_id: BrokerId) -> bool:
        """Whether the broker was heard of within the timeout."""
        return self._sessions.is_valid(broker_id, self._clock())

    def resume(self) -> None:
        """This process leads from now on: each broker has a whole session from now, and what it has applied is to be
        heard anew."""
        self._sessions = Sessions(self._sessions.timeout_s, self._clock())
        self._applied_ends.clear()
        self._leaving.clear()
        self.restart_unchanged()

    def touch(self, broker_id: BrokerId) -> None:
        """A broker was heard of."""
        self._sessions.touch(broker_id, self._clock())

    def expired(self) -> list[BrokerId]:
        """The brokers that are not fenced and whose session has ended."""
        unfenced = [each.broker_id for each in self.cluster.brokers.values() if not each.fenced]
        return self._sessions.expired(unfenced, self._clock())

    # --- how far brokers are

    def applied(self, broker_id: BrokerId, end: int) -> None:
        """A heartbeat came, from a broker that has applied the metadata log below `end`."""
        self.touch(broker_id)
        self._applied_ends[broker_id] = end

    def may_unfence(self) -> bool:
        """Whether a fenced broker may lead again: its partitions have been looked at since it lost its place."""
        return self._controller.is_settled()

    async def leads(self, broker_id: BrokerId) -> bool:
        """Whether a broker leads a partition. While the log is being recovered it is taken for one that does."""
        after: ShardKey | None = None
        try:
            while keys := self._controller.store.durable_keys_of(broker_id, after, TOPICS_AT_ONCE):
                if self._controller.store.leads(broker_id, keys):
                    return True
                after = keys[-1]
                await asyncio.sleep(0)
        except LogClosed:
            return True
        return False

    async def may_shut_down(self, broker_id: BrokerId) -> bool:
        """Whether a broker that leaves leads nothing any more, and every live broker has applied that."""
        if not self._controller.is_settled() or await self.leads(broker_id):
            return False
        end = self._replication.applied
        applied = min((self._applied_ends.get(each, 0) for each in self.cluster.live), default=end)
        return self._leaving.setdefault(broker_id, end) <= applied

    def is_unknown_directory(self, broker_id: int, directory: bytes) -> bool:
        """Whether the broker is known not to have this log directory, which is then logged."""
        anothers = self._directories.is_unknown_directory(broker_id, directory)
        if anothers:
            logger.warning(
                "replicas are reported in a log directory that the broker has not: a second process with its id?",
                broker=broker_id,
                directory=directory.hex(),
            )
        return anothers

    # --- who comes and goes

    def unchanged_for_s(self) -> float:
        """For how long no broker has come."""
        return self._clock() - self._changed_at

    def restart_unchanged(self) -> None:
        """Count from now on for how long no broker has come."""
        self._changed_at = self._clock()

    def on_event(self, event: BrokerRegistered | BrokerUnfenced | BrokerFenced | BrokerUnregistered) -> None:
        """Take note of a durable event."""
        broker_id = event.broker_id
        match event:
            case BrokerRegistered(details=details):
                self._directories.registered(broker_id, () if details is None else details.log_dirs)
                self._leaving.pop(broker_id, None)
                self._applied_ends.pop(broker_id, None)
                self.restart_unchanged()
            case BrokerUnfenced():
                self.restart_unchanged()
            case BrokerUnregistered():
                self._directories.forget(broker_id)
                self._sessions.forget(broker_id)
                self._applied_ends.pop(broker_id, None)
