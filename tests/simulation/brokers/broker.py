"""A model of a broker's process: it follows the metadata log, registers, sends heartbeats, and shuts down.

It models Kafka's `BrokerLifecycleManager` and fetcher of the metadata log, and encodes real requests.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from controller.kafka.messages import ApiKey, Message, cluster, quorum
from controller.kafka.messages.cluster import Feature, Listener
from controller.quorum.features import SUPPORTED
from controller.quorum.raft.role import topics_of
from tests.simulation.brokers.controller import CLUSTER
from tests.simulation.brokers.door import Line
from tests.simulation.brokers.machine import PORT, Machine, decoded
from tests.simulation.brokers.replicas import Replicas
from tests.simulation.virtual_time import context_of, virtual_loop
from tests.simulation.world import ConnectionLost

HEARTBEAT_S = 1.0
AGAIN_S = 0.3
CUT_S = 1.0
"""Time until a request on a cut connection fails."""
FETCH_WAIT_MS = 500
LEAVES_S = 20.0
"""Limit of a controlled shutdown; after it the process ends without the controller's permission."""
LEVELS = tuple((name, each.lowest, each.highest) for name, each in SUPPORTED.items())


class Broker:
    """One process on a machine. `epoch` is None before its registration."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.world = machine, machine.world
        self.id = machine.id
        self.number = self.world.new_process()
        self.incarnation = self.world.rng.randbytes(16)
        self.previous_epoch = machine.take_clean_epoch()
        self.epoch: int | None = None
        self.is_fenced = True
        self.leaving_since: float | None = None
        self.failed: set[bytes] = set()
        """The directories that failed since the process started."""
        self.directories = tuple(machine.online)
        """The directories that were online when the process started."""
        self._controller_epoch = 0
        self._runs = asyncio.Event()
        self._runs.set()
        self._lines = {name: Line(self.world.door, f"broker-{self.id}-{name}") for name in ("raft", "life", "isr")}
        self.view = machine.view
        self.replicas = Replicas(self)

    # --- life and death

    def start(self) -> None:
        self.machine.broker = self
        for each in (self._follow(), self._live(), self._replicate()):
            self._run(each)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task: asyncio.Task[None] = context_of(self.number).run(asyncio.ensure_future, work)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.world.failures.append(error)

    def kill(self, *, power: bool = False) -> None:
        """SIGKILL, or a power failure, which may lose unflushed records."""
        virtual_loop().kill(self.number)
        for line in self._lines.values():
            line.close()
        if self.machine.broker is self:
            self.machine.broker = None
            if power:
                self.machine.lose_power()

    @property
    def is_paused(self) -> bool:
        return not self._runs.is_set()

    def pause(self) -> None:
        """SIGSTOP."""
        self._runs.clear()

    def go_on(self) -> None:
        """SIGCONT."""
        self._runs.set()

    def cut(self) -> None:
        """Close the connections to the controller."""
        for line in self._lines.values():
            line.close()

    async def call(self, line: str, api_key: ApiKey, version: int, request: Message) -> Any:
        """Send a request to the controller. Raises ConnectionLost."""
        await self._runs.wait()
        if self.machine.is_cut:
            await asyncio.sleep(CUT_S)
            raise ConnectionLost("the network is cut")
        await asyncio.sleep(self.world.rng.random() * self.machine.slow_s)
        answer = await self._lines[line].call(api_key, version, request)
        await self._runs.wait()
        self.world.counts["requests"] += 1
        return answer

    @property
    def is_caught_up(self) -> bool:
        """True after the broker has applied its own registration; until then it acts on no metadata."""
        return self.epoch is not None and self.view.end > self.epoch

    # --- the metadata log

    async def _follow(self) -> None:
        while True:
            try:
                response = await self.call("raft", ApiKey.FETCH, self.machine.fetch_version, self._fetch())
            except ConnectionLost:
                await asyncio.sleep(AGAIN_S)
                continue
            part = response.responses[0].partitions[0]
            self._controller_epoch = max(self._controller_epoch, part.current_leader.leader_epoch)
            if part.error_code or response.error_code:
                await asyncio.sleep(0.05)
                continue
            end = part.diverging_epoch.end_offset
            assert end < 0, f"broker {self.id} applied all below {self.view.end}, but must truncate to {end}"
            self._apply(part)

    def _fetch(self) -> quorum.FetchRequest:
        view = self.view
        part = quorum.FetchPartition(
            current_leader_epoch=self._controller_epoch,
            fetch_offset=view.end,
            last_fetched_epoch=view.epoch,
            replica_directory_id=self.machine.directories[0],
            high_watermark=view.end,
        )
        return quorum.FetchRequest(
            cluster_id=CLUSTER,
            max_wait_ms=FETCH_WAIT_MS,
            max_bytes=1 << 20,
            topics=topics_of(part),
            replica_state=quorum.ReplicaState(replica_id=self.id),
        )

    def _apply(self, part: quorum.FetchPartitionData) -> None:
        view = self.view
        for batch, records in decoded(bytes(part.records or b"")):
            if batch.last_offset < view.end:
                continue
            assert batch.base_offset == view.end, f"a batch begins at {batch.base_offset}, not at {view.end}"
            assert batch.last_offset < part.high_watermark, "a broker got an uncommitted batch"
            for record in records:
                view.image.apply(record)
            view.end, view.epoch = batch.last_offset + 1, batch.leader_epoch
            self.replicas.changed = True

    # --- registration and heartbeats

    async def _live(self) -> None:
        while self.epoch is None:
            await self._register()
        while True:
            seen = self.world.witness.end
            request = self._heartbeat(self.epoch)
            try:
                answer = await self.call("life", ApiKey.BROKER_HEARTBEAT, 1, request)
            except ConnectionLost:
                await asyncio.sleep(AGAIN_S)
                continue
            self.world.counts[f"BrokerHeartbeat {answer.error_code}"] += 1
            self.world.answers.heartbeat(seen, self, request, answer)
            if answer.error_code:
                await asyncio.sleep(AGAIN_S)
                continue
            self.is_fenced = answer.is_fenced
            if answer.should_shut_down:
                self.end_in_order()
                return
            await asyncio.sleep(self._pause_s())

    def _pause_s(self) -> float:
        if self.leaving_since is not None:
            if virtual_loop().time() - self.leaving_since > LEAVES_S:
                self.end_in_order()
            return 0.1
        return 0.2 if self.is_fenced else HEARTBEAT_S

    def _heartbeat(self, epoch: int) -> cluster.BrokerHeartbeatRequest:
        return cluster.BrokerHeartbeatRequest(
            broker_id=self.id,
            broker_epoch=epoch,
            current_metadata_offset=self.view.end - 1,
            want_fence=not self.is_caught_up,
            want_shut_down=self.leaving_since is not None,
            offline_log_dirs=tuple(sorted(self.failed)),
        )

    async def _register(self) -> None:
        seen = self.world.witness.end
        request = cluster.BrokerRegistrationRequest(
            broker_id=self.id,
            cluster_id=CLUSTER,
            incarnation_id=self.incarnation,
            listeners=(Listener(name="PLAINTEXT", host=f"machine-{self.id}", port=PORT + self.id),),
            features=tuple(
                Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, lowest, highest in LEVELS
            ),
            log_dirs=self.directories,
            previous_broker_epoch=self.previous_epoch,
        )
        try:
            version = self.machine.registration_version
            answer = await self.call("life", ApiKey.BROKER_REGISTRATION, version, request)
        except ConnectionLost:
            await asyncio.sleep(AGAIN_S)
            return
        self.world.counts[f"BrokerRegistration {answer.error_code}"] += 1
        self.world.answers.registration(seen, self, answer)
        if answer.error_code:
            await asyncio.sleep(AGAIN_S)
            return
        self.epoch = answer.broker_epoch

    def leave(self) -> None:
        """SIGTERM: begin a controlled shutdown."""
        if self.leaving_since is None:
            self.leaving_since = virtual_loop().time()

    def end_in_order(self) -> None:
        """Flush all replicas, write the clean shutdown files, and end."""
        machine = self.machine
        if machine.broker is self and self.epoch is not None:
            machine.clean = dict.fromkeys(machine.online, self.epoch)
            for replica in machine.replicas.values():
                replica.flushed = len(replica.entries)
            self.world.counts["clean end"] += 1
        self.kill()

    # --- replicas

    async def _replicate(self) -> None:
        rng = self.world.rng
        while True:
            await asyncio.sleep(self.world.replicate_s * (0.5 + rng.random()))
            await self._runs.wait()
            if not self.is_caught_up:
                continue
            reports, places = self.replicas.tick() if self.machine.broker is self else self.replicas.as_before()
            if reports or places:
                self._run(self.replicas.report(reports, places))

    def fail_directory(self, directory: bytes) -> None:
        """Fail a log directory; without an online directory the process ends."""
        self.machine.failed.add(directory)
        self.failed.add(directory)
        if not self.machine.online:
            self.kill()
