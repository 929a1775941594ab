"""The workers and gateways of the simulated world: product code, except for Kafka, time and randomness."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from controller.apis.tables import controller_listener
from controller.engine.requests import Stamps
from controller.serving.process import PARTITION_BYTES
from controller.settings.load import load_settings
from controller.stream.gateway.members import Announcement, Members, StreamGateway
from controller.stream.gateway.node import GatewayNode
from controller.stream.log.partition import PartitionState
from controller.stream.worker.driver import PlainDriver
from controller.stream.worker.driver_faust import FaustDriver
from controller.stream.worker.engine import Engine
from controller.stream.worker.owner_tasks import WorkerContext
from controller.stream.worker.partition_decider import Fault, RequestCommand, Sourced
from events.catalog import Endpoint, Recorded
from events.logs.log import LogClosed
from events.logs.tree_heads import Head, HeadSigner
from tests.simulation.slow_policies import SlowPolicies
from tests.simulation.stream.clients_of_kafka import SimulatedFollower, SimulatedProducer, SimulatedTransport
from tests.simulation.stream.kafka import GATEWAYS, Link
from tests.simulation.virtual_time import virtual_loop
from tests.simulation.world import RELEASE, Serving

if TYPE_CHECKING:
    from tests.simulation.stream.world import StreamWorld

ANNOUNCE_S = 0.4
GATEWAY_SESSION_S = 3.0
ANSWER_TIMEOUT_S = 10.0
SETTINGS = load_settings(overrides=("log.signing.interval.ms=5000",))
_KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))


class _Signer(HeadSigner):
    """Signs tree heads until `world.signs` is false."""

    def __init__(self, world: StreamWorld) -> None:
        super().__init__(_KEY)
        self._world = world

    def signed(self, head: Head) -> Head:
        if not self._world.signs:
            raise LogClosed("no heads are signed now")
        return super().signed(head)


class WorkerProcess:
    """`topicwright worker` with either driver. The object also receives the engine's reports."""

    def __init__(self, world: StreamWorld, number: int, data: Path) -> None:
        self.world, self.number, self.data = world, number, data
        self.alive = True
        self.link, self.group_link, self.events_link = (Link(world.kafka, number) for _ in range(3))
        """Separate connections for commands and reads, for the group, and for appended events."""
        self.stopping, self.ended = asyncio.Event(), asyncio.Event()
        writer = f"w{number}"
        context = WorkerContext(
            data=data,
            topics=world.kafka.topics,
            writer=writer,
            release=RELEASE,
            where=writer,
            settings=SETTINGS,
            decision_settings=world.settings(),
            connect=lambda: SimulatedTransport(self.link, self.events_link),
            clock=virtual_loop().time,
            clock_ms=world.clock_ms,
            stamps=Stamps(writer, world.clock_ms),
            watcher=self,
            on_failure=world.failures.append,
            make_brokers=partial(world.brokers_of, world.brokers),
            judge=SlowPolicies(world.rng, world.policy_s),
            signer=_Signer(world),
        )
        self.engine = Engine(context)
        self.driver = (FaustDriver if world.is_faust else PlainDriver)(self.engine, str(number))

    async def run(self) -> None:
        """Run until `stopping` is set. Raises the error that would end the process."""
        await self.driver.run(self.stopping, lambda: None)
        await self.engine.close()

    def kill(self) -> None:
        """SIGKILL: the folders keep their last written state."""
        self.alive = False
        for link in (self.link, self.group_link, self.events_link):
            link.end()
        virtual_loop().kill(self.number)
        for state in self.engine._states.values():
            state.close()

    # --- reported by the engine

    def claimed(self, partition: int, epoch: int, read: int, seconds: float) -> None:
        self.world.counts["claimed"] += 1

    def committed(self, commands: int, records: Sequence[Recorded], seconds: float) -> None:
        self.world.counts["decided"] += commands

    def skipped(self, fault: Fault) -> None:
        self.world.failures.append(fault.error or AssertionError(f"passed over: {fault.why}"))

    def duplicate(self, sourced: Sourced, command: RequestCommand) -> None:
        self.world.counts["copies"] += 1

    def lost(self, why: str) -> None:
        self.world.counts["lost"] += 1


class GatewayProcess(Serving):
    """`topicwright gateway` without its listeners."""

    def __init__(self, world: StreamWorld, number: int, data: Path) -> None:
        super().__init__(number)
        self.world, self.data = world, data
        self.link = Link(world.kafka, number)
        topics = world.kafka.topics
        producer = SimulatedProducer(self.link)
        own = Announcement(data.name, f"p{number}", (Endpoint("PLAINTEXT", data.name, 9092),))
        members = Members(own, producer, GATEWAYS, session_s=GATEWAY_SESSION_S, clock=virtual_loop().time)
        self._members = members
        self.node = GatewayNode(
            [
                PartitionState.open(
                    data,
                    each,
                    cluster_id=topics.cluster_id,
                    topic_id=topics.events_id,
                    answers=True,
                    memory_bytes=2 * PARTITION_BYTES * world.partitions_cached,
                )
                for each in range(topics.partitions)
            ],
            topics,
            self._members,
            producer,
            boot_id=f"p{number}",
            clock_ms=world.clock_ms,
            answer_timeout_s=ANSWER_TIMEOUT_S,
            ends=[len(world.kafka.log(topics.events, each)) for each in range(topics.partitions)],
            command_failed=lambda kind: world.failures.append(AssertionError(f"{kind} could not be sent")),
        )
        self._follower = SimulatedFollower(self.link, self.node.offsets, self.node.take)
        self.api = StreamGateway(self.node, members, advertised=Endpoint("PLAINTEXT", data.name, 9092))
        self.handlers = controller_listener(self.api)
        self._tasks = [self.run(asyncio.ensure_future, each) for each in (self._follower.run(), self._announce())]

    async def _announce(self) -> None:
        while True:
            self._members.announce()
            self.node.heartbeat()
            await asyncio.sleep(ANNOUNCE_S)

    def kill(self) -> None:
        self.alive = False
        self.link.end()
        virtual_loop().kill(self.number)
        for each in self.node.partitions:
            each.close()

    async def stop(self) -> None:
        """SIGTERM, after all connections are closed."""
        self.alive = False
        self.node.stop_accepting()
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        self.run(self._members.announce, True)
        self.run(self.node.close)
