"""`topicwright join`: a voter among the controllers of a running Kafka cluster (KIP-595, KIP-853).

It finds the quorum, follows its leader until it has caught up, has itself made a voter, and votes from then on. It does
not lead: what it would have to decide on is in the metadata log, which it keeps and does not read yet.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import msgspec
import structlog

from controller.access.authorizer import AllowAll, Authorizer, StandardAuthorizer
from controller.apis.kraft.quorum import voter_listener
from controller.brokers.cluster.security import Security
from controller.brokers.kraft.quorum.files import QuorumFiles
from controller.brokers.kraft.quorum.folder import META_PROPERTIES, NodeFolder, read_properties, uuid_text
from controller.brokers.kraft.quorum.joining import QuorumClient, QuorumError
from controller.brokers.kraft.quorum.node import QuorumNode
from controller.brokers.kraft.quorum.raft.effects import Options, RoleChanged
from controller.brokers.kraft.quorum.raft.voters import Listener, Place, Voter
from controller.brokers.kraft.quorum.snapshotting import Snapshotting
from controller.http.app import build_worker_app
from controller.http.metrics import Metrics
from controller.http.server import HttpListener
from controller.kafka.messages import ZERO_UUID
from controller.machine.acls import Acls
from controller.machine.state import Cluster
from controller.release import RELEASE
from controller.serving import process
from controller.serving.clients_entry import Address, Entrance
from controller.settings.load import ServeSettings

AGAIN_S = 1.0
"""How soon what a controller refused for now is tried again."""
FIND_S = 10.0
"""How long controllers that start at the same time are waited for."""
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Kafka's numbers (SecurityProtocol)."""


class VoterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line and the settings say of a `join`."""

    controllers: Sequence[Place]
    """Some of the quorum's controllers."""
    listen: Address
    http: Address
    data: Path
    settings: ServeSettings
    security: Security
    """Who we are at the other controllers."""


class VoterService:
    """Everything that one `join` runs. Raises SettingsError and UsersFileError when made."""

    def __init__(self, options: VoterOptions) -> None:
        self.options = options
        self.failed = asyncio.Event()
        self._log = structlog.get_logger("topicwright")
        self.metrics = Metrics()
        self._entrance = Entrance(options.settings, options.listen, options.http, self.metrics, Cluster, "CONTROLLER")
        self._client = QuorumClient(options.controllers, options.security)
        self._http = HttpListener(counts=self._entrance.counts)
        self._incarnation = os.urandom(16)
        self._beside: list[asyncio.Task[None]] = []
        self._doing: str | None = "looking for the quorum"
        self._folder: NodeFolder | None = None
        self._files: QuorumFiles | None = None
        self._node: QuorumNode | None = None
        self._snapshotting: Snapshotting | None = None

    async def start(self) -> None:
        """Become a voter. Raises QuorumError, FolderError, LogCorrupted and OSError."""
        options, listening = self.options, self._entrance.listening
        await listening.start()
        app = build_worker_app(lambda: self._doing, self.metrics, RELEASE, self._entrance.reach)
        self._http_at = Address(options.http.host, await self._http.start(app, options.http.host, options.http.port))
        settings, node_id = options.settings, options.settings.node_id
        cluster_id = await self._cluster_id()
        folder = self._folder = NodeFolder.open(options.data, cluster_id, node_id, lambda: os.urandom(16))
        files = self._files = QuorumFiles(folder.partition)
        at = self._entrance.advertised
        me = Voter(node_id, folder.directory_id, (Listener(at.name, at.host, at.port),))
        quorum_options = Options(
            cluster_id=cluster_id,
            me=me,
            bootstrap=tuple(options.controllers),
            static=tuple(
                Voter(each, ZERO_UUID, (Listener(at.name, *place),))
                for each, place in settings.controller_quorum_voters.items()
            ),
            fetch_timeout_s=settings.controller_quorum_fetch_timeout_ms / 1000,
            election_timeout_s=settings.controller_quorum_election_timeout_ms / 1000,
            priority=0,
        )
        chance = random.Random().random
        node = self._node = QuorumNode(files, quorum_options, chance, _clock_ms, options.security, can_lead=False)
        node.ended.add_done_callback(self._ended)
        node.on_role = self._note_role
        for server in listening.servers:
            server.handlers = voter_listener(node, cluster_id, self._authorizer(), dict(settings.api_versions_max))
        every_bytes = settings.metadata_log_max_record_bytes_between_snapshots
        self._snapshotting = Snapshotting(node.quorum, files, every_bytes)
        # Snapshots are made in a thread: it hands the interpreter back soon, so that votes and fetches do not wait.
        sys.setswitchinterval(process.SWITCH_S)
        node.start()
        self._run_beside(self._snapshotting.run())
        self.metrics.watch(self._gauges)
        self._doing = "catching up with the leader"
        await node.until(lambda quorum: quorum.leader_id >= 0 and quorum.high_watermark >= 0)
        self._run_beside(self._stay_registered(node, me))
        if not node.quorum.is_voter:
            self._doing = "being made a voter"
            await self._client.add(cluster_id, me)
            await node.until(lambda quorum: quorum.is_voter)
        self._doing = None

    async def stop(self) -> None:
        """Hand over, if need be, and end; it is a voter still, and votes again when it is back."""
        for each in self._beside:
            each.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)
        if self._node is not None:
            await self._node.stop()
        await asyncio.gather(self._entrance.listening.stop(process.DRAIN_S), self._http.stop())
        self._client.close()
        self._entrance.users.close()
        if self._files is not None:
            self._files.close()
        if self._folder is not None:
            self._folder.close()

    @property
    def ready_line(self) -> str:
        """What is printed once it votes."""
        return f"ready voter={self.options.settings.node_id} controller={self._entrance.address} http={self._http_at}"

    def reload(self) -> None:
        """Read certificates and users anew (SIGHUP)."""
        self._entrance.reload()

    async def _cluster_id(self) -> str:
        """Of the cluster that the folder belongs to, else of the one whose controllers are named. A voter comes back
        also where no controller responds: without its vote they may have no leader. Raises QuorumError."""
        meta = self.options.data / META_PROPERTIES
        known = read_properties(meta)["cluster.id"] if meta.exists() else None
        try:
            found = await self._client.find(0.0 if known else FIND_S)
        except QuorumError as error:
            if known is None:
                raise
            self._log.warning("the quorum is waited for", why=str(error))
            return known
        if known is None:
            await self._refuse_a_double()
        elif known != found.cluster_id:
            raise QuorumError(
                f"{self.options.data} is of cluster {known}, and the controllers are of {found.cluster_id}"
            )
        self._refuse_a_stranger(found.kraft_version)
        return found.cluster_id

    async def _refuse_a_double(self) -> None:
        """Raise QuorumError where a voter of this id has a folder that is not the new one that this node would make."""
        node_id = self.options.settings.node_id
        for voter in (await self._client.describe()).current_voters:
            if voter.replica_id == node_id and any(voter.replica_directory_id):
                raise QuorumError(
                    f"node {node_id} votes already, with another folder (directory id "
                    f"{uuid_text(voter.replica_directory_id)}): choose another node.id; or, if that folder is lost, "
                    f"take it out first: topicwright leave --id {node_id}"
                )

    def _refuse_a_stranger(self, kraft_version: int) -> None:
        """Raise QuorumError where the settings of all nodes say who votes, and this one is not among them."""
        settings = self.options.settings
        if kraft_version == 0 and settings.node_id not in settings.controller_quorum_voters:
            raise QuorumError(
                f"node {settings.node_id} is not in controller.quorum.voters, which says who votes (kraft.version 0): "
                "name it there, on all nodes alike, or have kraft.version raised: "
                "kafka-features.sh upgrade --feature kraft.version=1"
            )

    def _authorizer(self) -> Authorizer:
        """The access control entries are in the log that is not read: super users may come in, and nobody else."""
        settings = self.options.settings
        return (
            StandardAuthorizer(Acls, super_users=settings.super_users) if settings.authorizer_class_name else AllowAll()
        )

    def _ended(self, ended: asyncio.Future[None]) -> None:
        if not ended.cancelled() and ended.exception() is not None:
            self.failed.set()  # the node has logged why

    def _run_beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(self._ended_beside)
        self._beside.append(task)

    def _ended_beside(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._log.error("a bug: this controller ends", exc_info=bug)
            self.failed.set()

    def _note_role(self, role: RoleChanged) -> None:
        self._log.info("quorum", role=role.role.value, epoch=role.epoch, leader=role.leader_id)

    async def _stay_registered(self, node: QuorumNode, me: Voter) -> None:
        """Once for this process: the registration is in the metadata log then."""
        protocol = _PROTOCOLS.index(self._entrance.listeners[0].protocol)
        logged = ""
        while True:
            place = node.quorum.leader_place
            why: str | None = "no leader is known"
            if place is not None:
                why = await self._client.register(place, me, self._incarnation, protocol)
            if why is None:
                return
            if why != logged:
                logged = why
                self._log.warning("not registered as a controller yet", why=why)
            await asyncio.sleep(AGAIN_S)

    def _gauges(self) -> list[tuple[str, str, float]]:
        assert self._node is not None, "it is watched once it is there"
        assert self._snapshotting is not None, "it is made before that"
        core = self._node.quorum
        snapshot = core.log.snapshot
        return [
            ("quorum_epoch", "The newest epoch of the quorum that is known here.", core.epoch),
            ("quorum_leader", "The node that leads the quorum; -1 while none is known.", core.leader_id),
            ("quorum_voters", "Voters of the quorum.", len(core.voters)),
            ("quorum_is_voter", "1 when this node votes.", float(core.is_voter)),
            ("quorum_high_watermark", "All below this offset of the metadata log is committed.", core.high_watermark),
            ("quorum_log_end", "Where this node's metadata log ends.", core.log.end),
            (
                "quorum_snapshot_end",
                "The newest snapshot here stands for all below this offset; 0 where there is none.",
                snapshot.end_offset if snapshot else 0,
            ),
            (
                "quorum_unfolded",
                "1 while the metadata log has records that this release cannot fold: it is kept whole.",
                float(self._snapshotting.unfolded),
            ),
        ]


def _clock_ms() -> int:
    return time.time_ns() // 1_000_000


async def join(options: VoterOptions) -> int:
    """Vote until SIGTERM or SIGINT; returns the exit code. Raises what kept it from joining."""
    service = VoterService(options)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, service.reload)
    return await process.run_service(service, process.stop_on_signals())
