"""The controller's process: the parts of `serve --brokers kraft` over simulated disks."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from controller.apis.kraft.listener import kraft_listener
from controller.brokers.kraft.kraft_brokers import KraftBrokers
from controller.brokers.kraft.membership import controller_record, controller_registration
from controller.brokers.kraft.projector import MetadataProjector
from controller.brokers.kraft.replication import QuorumReplication
from controller.controller_api import ControllerApi
from controller.kafka.connections import Security
from controller.kafka.messages import ZERO_UUID
from controller.kafka.messages.cluster import Listener
from controller.quorum.log.batches import CONTROLLER_LISTENER, RecordBatch
from controller.quorum.log.metadata_codec import encode_record
from controller.quorum.node import QuorumNode
from controller.quorum.raft.effects import NotLeader, Options
from controller.quorum.raft.voters import Voter
from events.catalog import Endpoint, SettingsChanged
from tests.simulation.brokers.door import Door
from tests.simulation.faulty_log import FaultyLog
from tests.simulation.quorum.disk import Disk
from tests.simulation.virtual_time import virtual_loop
from tests.simulation.world import RELEASE, Serving

if TYPE_CHECKING:
    from tests.simulation.brokers.world import World

CLUSTER = "simulated"
NODE = 3000
FETCH_TIMEOUT_S, ELECTION_TIMEOUT_S = 2.0, 0.5


class QuorumDisk(Disk):
    """The disk of the quorum's only voter. A flush makes everything durable that was written when its thread runs."""

    def flush(self) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, "planted")
        self.flush_to(self.end)
        return self.end

    def beginning(self, epoch: int) -> RecordBatch | None:
        """The control batch that begins an epoch, or None."""
        return next((each for each in self.control_batches() if each.leader_epoch == epoch), None)


class WatchedLog(FaultyLog):
    """An event log whose commits the witness checks as soon as they are durable."""

    def __init__(self, world: World) -> None:
        super().__init__(world.disk)
        self._world = world

    def mark_durable(self) -> None:
        super().mark_durable()
        try:
            self._world.witness.look()
        except AssertionError as broken:
            self._world.failures.append(broken)
            raise


class ControllerProcess(Serving):
    """One controller process on the disks; after its death another one replaces it."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(number)
        self.world = world
        self.log = WatchedLog(world)
        self.run(self._make, world)

    def _make(self, world: World) -> None:
        disk: Any = world.quorum_disk  # in place of QuorumFiles, without snapshots
        loop, settings = virtual_loop(), tuple(sorted(world.settings.items()))
        me = Voter(
            NODE, world.quorum_disk.directory, (Listener(name=CONTROLLER_LISTENER, host="controller", port=9093),)
        )
        options = Options(
            cluster_id=CLUSTER,
            me=me,
            static=(Voter(NODE, ZERO_UUID, me.listeners),),
            fetch_timeout_s=FETCH_TIMEOUT_S,
            election_timeout_s=ELECTION_TIMEOUT_S,
        )
        self.node = QuorumNode(disk, options, world.rng.random, world.clock_ms, Security({}))
        self.projector = MetadataProjector(self.log)
        assert self.projector.mark.applied <= disk.end, "the event log is ahead of the metadata log"
        self.replication = QuorumReplication(
            self.node, disk, self.log, self.projector, SettingsChanged(settings, RELEASE)
        )
        self.node.on_role = self.replication.on_role_changed
        self.brokers = KraftBrokers(
            self.projector, self.node, self.replication, world.serve_settings, world.metadata_version, loop.time
        )
        registration = controller_record(controller_registration(me, world.rng.randbytes(16), 0))
        self.brokers.on_lead = lambda: self._register(encode_record(registration))
        self.controller = self.controller_on(
            self.log, self.brokers, world, projector=self.projector, replication=self.replication
        )
        endpoint = Endpoint(CONTROLLER_LISTENER, "controller", 9093)
        self.api = ControllerApi(self.controller, node_id=NODE, advertised=endpoint)
        self._settings = settings

    def _register(self, value: bytes) -> None:
        try:
            self.node.append([(None, value)])
        except (NotLeader, OSError):
            return

    async def start(self) -> None:
        await self.run(asyncio.ensure_future, self._start())
        self.door = Door(self.number, CONTROLLER_LISTENER, kraft_listener(self.brokers, CONTROLLER_LISTENER, self.api))

    async def _start(self) -> None:
        await self.controller.start(self._settings, RELEASE)
        self.node.start()
        self.node.ended.add_done_callback(self._ended)
        self.controller.background(self.replication.flush_periodically(self.log.flushed))

    def _ended(self, ended: asyncio.Future[None]) -> None:
        if ended.cancelled() or ended.exception() is None or not self.alive:
            return
        self.world.failed(self, ended.exception())

    @property
    def leads(self) -> bool:
        return self.alive and self.replication.leads and self.controller.storage_error is None

    def kill(self, *, power: bool) -> None:
        """SIGKILL, or a power failure, which may lose unsynced commits."""
        self.alive = False
        self.door.shut()
        virtual_loop().kill(self.number)
        self.world.disk.crash(power=power)
        self.world.quorum_disk.crash(self.world.rng, power=power)

    async def stop(self, look: Callable[[], None] = lambda: None) -> None:
        """SIGTERM, after all connections are closed."""
        self.alive = False
        self.door.shut()
        await self.run(asyncio.ensure_future, self._stop())
        look()

    async def _stop(self) -> None:
        await self.controller.stop()
        await self.node.stop()
        self.log.close()
