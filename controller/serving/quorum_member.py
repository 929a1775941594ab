"""This process as a node of a controller quorum (KIP-595, KIP-853): its folder, its vote, joining and stopping.

`serve` creates a `Member` for KRaft brokers. Without controllers to join, the node is its quorum's only voter.
Otherwise the node follows the leader of that quorum until it has caught up, and then becomes a voter.
"""

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog

from controller.apis.kraft.quorum import quorum_view
from controller.brokers.kraft.kraft_brokers import KraftBrokers
from controller.brokers.kraft.membership import controller_record, controller_registration
from controller.brokers.kraft.projector import MetadataProjector
from controller.brokers.kraft.replication import QuorumReplication
from controller.kafka.connections import PROTOCOLS, Security
from controller.kafka.messages import ZERO_UUID
from controller.kafka.messages.cluster import ControllerRegistrationRequest, Listener
from controller.quorum.client import QuorumClient, QuorumError
from controller.quorum.features import unsupported_feature, without_limits
from controller.quorum.files import LogCorrupted, QuorumFiles
from controller.quorum.folder import META_PROPERTIES, FolderError, NodeFolder, read_properties, uuid_text
from controller.quorum.log.batches import CONTROLLER_LISTENER, BrokenBatch
from controller.quorum.log.metadata_codec import encode_record
from controller.quorum.log.record_kinds import METADATA_VERSION_FEATURE
from controller.quorum.node import QuorumNode
from controller.quorum.raft.consensus import Consensus
from controller.quorum.raft.effects import NotLeader, Options, RoleChanged
from controller.quorum.raft.voters import Voter
from controller.quorum.snapshotting import Snapshotting
from controller.release import RELEASE
from controller.serving.process import reached, wall_ms
from controller.settings.load import ServeSettings, SettingsError
from controller.store.store import TopicStore
from events.catalog import Endpoint, SettingsChanged
from events.logs.log import EventLog
from projections.views.overviews import QuorumView

logger = structlog.get_logger("topicwright.quorum")

FIND_S: Final = 60.0
"""How long to wait for controllers that start at the same time."""
HAND_OVER_S: Final = 5.0
"""How long a stopping leader waits for another leader."""


async def cluster_to_join(client: QuorumClient, data: Path, settings: ServeSettings) -> str:
    """The id of the cluster of a data folder, or of the cluster to join if the folder is new. A voter starts even if no
    controller responds, because the others may need its vote to elect a leader. Raises QuorumError."""
    meta = data / META_PROPERTIES
    known = read_properties(meta)["cluster.id"] if meta.exists() else None
    if known is None:
        found = await reached("the quorum", client.find, QuorumError, within_s=FIND_S)
        why = unsupported_feature(found.features) if found.features else None
        if why is not None:  # a feature level at which this release could not lead
            raise QuorumError(f"{why}: this node could vote, but never lead; join with a release that supports it")
        await _refuse_duplicate_id(client, settings.node_id)
    else:
        try:
            found = await client.find()
        except QuorumError as error:
            logger.warning("waiting for the quorum", why=str(error))
            return known
    if known not in (None, found.cluster_id):
        raise QuorumError(f"{data} is of cluster {known}, and the controllers are of {found.cluster_id}")
    if found.kraft_version == 0 and settings.node_id not in settings.controller_quorum_voters:
        raise QuorumError(
            f"node {settings.node_id} is not in controller.quorum.voters, which lists the voters (kraft.version "
            "0): add it there, on all nodes, or raise kraft.version: "
            "kafka-features.sh upgrade --feature kraft.version=1"
        )
    return found.cluster_id


async def _refuse_duplicate_id(client: QuorumClient, node_id: int) -> None:
    """Raise QuorumError if a voter with this id has another folder."""
    for voter in (await client.describe()).current_voters:
        if voter.replica_id == node_id and any(voter.replica_directory_id):
            raise QuorumError(
                f"node {node_id} is a voter already, with another folder (directory id "
                f"{uuid_text(voter.replica_directory_id)}): choose another node.id; or, if that folder is lost, "
                f"remove the voter first: topicwright leave --id {node_id}"
            )


class Member:
    """A node of a quorum, in a data folder. Call `start` and, to vote, `become_voter`."""

    def __init__(
        self,
        data: Path,
        settings: ServeSettings,
        joining: QuorumClient | None,
        protocol: str,
        log: EventLog,
        at: Endpoint,
        flush: Callable[[], Awaitable[object]],
    ) -> None:
        """Open the node's folder for an event log. `joining` is a client of the quorum to join; None for a quorum of
        this node alone. Others reach this node `at`, by the security protocol `protocol`; `flush` makes the event log
        durable. Raises FolderError, LogCorrupted, OSError."""
        self._protocol = PROTOCOLS.index(protocol)
        self._settings, self._joins = settings, joining is not None
        self._client = joining or QuorumClient((), Security({}))
        self._incarnation = os.urandom(16)
        self._tasks: list[asyncio.Task[None]] = []
        self._run: Callable[[Any], asyncio.Task[None]]
        self.joining_step: str | None = "looking for the quorum" if self._joins else None
        """The current step while this node joins the quorum; None once the node is a voter."""
        folder = self._folder = NodeFolder(data, log.cluster_id, settings.node_id, lambda: os.urandom(16))
        files = self._files = QuorumFiles(folder.partition, retention_bytes=settings.metadata_max_retention_bytes)
        name = at.name if self._joins else CONTROLLER_LISTENER
        me = Voter(settings.node_id, folder.directory_id, (Listener(name=name, host=at.host, port=at.port),))
        named = settings.controller_quorum_voters or ({} if self._joins else {settings.node_id: (at.host, at.port)})
        options = Options(
            cluster_id=log.cluster_id,
            me=me,
            bootstrap=self._client.bootstrap,
            static=tuple(
                Voter(each, ZERO_UUID, (Listener(name=name, host=host, port=port),))
                for each, (host, port) in named.items()
            ),
            fetch_timeout_s=settings.controller_quorum_fetch_timeout_ms / 1000,
            election_timeout_s=settings.controller_quorum_election_timeout_ms / 1000,
            priority=settings.quorum_priority,
        )
        try:
            self.node = QuorumNode(files, options, random.Random().random, wall_ms, self._client.security)
        except BrokenBatch as broken:
            raise LogCorrupted(
                f"{broken}. Restore the folder from a copy; or, if there are other voters, remove this one and let it "
                "join again with an empty folder"
            ) from broken
        self.projector = MetadataProjector(log)
        if self.projector.mark.applied > files.end:
            raise FolderError(
                f"{folder.partition} ends at offset {files.end}, and the event log next to it has applied all below "
                f"{self.projector.mark.applied}: restore the whole folder from one copy"
            )
        first = SettingsChanged(settings.decision_settings(), RELEASE)
        self.replication = QuorumReplication(self.node, files, log, self.projector, first)
        self.node.on_role = self._on_role
        self._flush = flush
        self._snapshotting = Snapshotting(
            self.node.quorum,
            files,
            settings.metadata_log_max_record_bytes_between_snapshots,
            settings.metadata_log_max_snapshot_interval_ms / 1000,
            time.monotonic,
            self._flush_applied,
        )

    # --- life

    def brokers(self, log: EventLog, metadata_version: int | None) -> KraftBrokers:
        """The KRaft brokers of this node, which is open. Raises SettingsError if the cluster was handed back to Kafka's
        controllers, or if a setting would lower a feature level."""
        cluster, had, settings = TopicStore(log).durable_cluster, self.node.quorum.kraft_version, self._settings
        back_to = "" if cluster.quorum is None else cluster.quorum.handed_back_to
        if back_to:
            raise SettingsError(
                f"the data folder was handed back to Kafka's controller, in {back_to}: served, it would be a second "
                "controller of the same brokers. To take the cluster back, stop that controller, run "
                f"`topicwright adopt --from {back_to} --data NEW`, and serve NEW"
            )
        if settings.kraft_version < had and self.is_alone:
            raise SettingsError(
                f"kraft.version={settings.kraft_version}: the cluster has {had}, which cannot be lowered"
            )
        level = cluster.feature(METADATA_VERSION_FEATURE)
        if metadata_version is not None and metadata_version < level:
            raise SettingsError(
                f"--metadata-version {metadata_version}: the cluster has {level}, which cannot be lowered"
            )
        return KraftBrokers(self.projector, self.node, self.replication, settings, metadata_version, time.monotonic)

    def start(self, run: Callable[[Any], asyncio.Task[None]]) -> None:
        """Begin to follow, and to vote if this node is a voter. `run` starts tasks whose errors end the process."""
        self._run = run
        self.node.start()
        flushing = self.replication.flush_periodically(self._flush)
        tasks = self._snapshotting.run(), flushing, self._watch(), self._keep_registered()
        self._tasks += [run(each) for each in tasks]

    async def lead_alone(self) -> None:
        """Wait until this node leads its quorum of one, and raise kraft.version to that of the settings."""
        node = self.node
        await node.until(lambda quorum: quorum.leading is not None and quorum.leading.watermark >= 0)
        if self._settings.kraft_version > node.quorum.kraft_version:
            await node.raise_kraft_version()

    @property
    def is_alone(self) -> bool:
        """True if this node is the only voter."""
        return self.node.quorum.voters.ids == (self._settings.node_id,)

    async def become_voter(self) -> None:
        """Wait until this node has caught up with the leader, then make it a voter if it is not one. Raises
        QuorumError."""
        node = self.node
        if not self._joins:
            return
        self.joining_step = "catching up with the leader"
        await node.until(lambda quorum: quorum.leader_id >= 0 and quorum.high_watermark >= 0)
        self.replication.on_unregistered = self._register_again
        if not node.quorum.is_voter:
            self.joining_step = "becoming a voter"
            await self._client.add(node.quorum.options.cluster_id, node.quorum.me)
            await node.until(lambda quorum: quorum.is_voter)
        self.joining_step = None

    def register(self) -> None:
        """As the leader, register this controller with its listeners and features."""
        with suppress(NotLeader, OSError):  # the disk is full, or its failure has ended the node
            self.node.append([(None, encode_record(controller_record(self._registration)))])

    @property
    def leads(self) -> bool:
        """True if this node leads the quorum, also before its start is finished."""
        return self.node.quorum.leading is not None

    @property
    def leads_others(self) -> bool:
        """True if this node decides for a quorum with other voters."""
        return self.replication.leads and len(self.node.quorum.voters) > 1

    async def hand_over(self) -> None:
        """Transfer leadership, if this node leads and there are other voters."""
        if self.node.quorum.others and not self.node.ended.done():
            await self.node.hand_over(HAND_OVER_S)

    async def stop(self) -> None:
        """Stop; the node stays a voter and votes again after a restart."""
        for each in self._tasks:
            each.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.node.stop()
        self._files.close()
        self._client.close()
        self._folder.close()

    # --- status

    @property
    def error(self) -> str | None:
        """The reason why this node cannot act as a voter; None if it can."""
        if self.joining_step is None and self.node.quorum.full is not None:
            return f"no room for the metadata log: {self.node.quorum.full}"
        leaderless = "no leader of the controllers is known" if self.node.quorum.leader_id < 0 else None
        return self.joining_step or self.replication.tree_heads.difference or leaderless

    def view(self) -> QuorumView:
        return quorum_view(self.node, self._files, self.replication.applied)

    def gauges(self) -> Iterable[tuple[str, str, float]]:
        core, snapshot = self.node.quorum, self.node.quorum.log.snapshot
        in_log = "All records below this metadata log offset are"
        cannot_lead, has_unsupported = bool(self.projector.unsupported), self._snapshotting.has_unsupported_records
        yield "quorum_epoch", "The newest epoch of the quorum that this node knows.", core.epoch
        yield "quorum_leader", "The node that leads the quorum; -1 while none is known.", core.leader_id
        yield "quorum_is_leader", "1 when this node leads, and decides.", self.replication.leads
        yield "quorum_voters", "Voters of the quorum.", len(core.voters)
        yield "quorum_is_voter", "1 when this node votes.", core.is_voter
        yield "quorum_high_watermark", f"{in_log} committed.", core.high_watermark
        yield "quorum_log_end", "Where this node's metadata log ends.", core.log.end
        yield "quorum_applied", f"{in_log} in this node's event log.", self.replication.applied
        end = 0 if snapshot is None else snapshot.end_offset
        yield "quorum_snapshot_end", "The end offset of the newest snapshot here; 0 without one.", end
        unsupported = "1 while the metadata log has unsupported records: this node will not lead."
        yield "quorum_cannot_lead", unsupported, cannot_lead
        yield "quorum_full", "1 while the disk has no room for the metadata log.", core.full is not None
        retained = "1 while the metadata log has records that no snapshot can hold: it is retained in full."
        yield "quorum_unsupported_records", retained, has_unsupported

    # --- tasks

    async def _watch(self) -> None:
        """Wait until the node ends. Raises the error that ended it, which is logged already."""
        await asyncio.shield(self.node.ended)

    async def _flush_applied(self) -> int:
        end = self.replication.record_applied()
        await self._flush()
        return end

    def _on_role(self, role: RoleChanged) -> None:
        logger.info("quorum", role=role.role.value, epoch=role.epoch, leader=role.leader_id)
        self.replication.on_role_changed(role)

    async def _keep_registered(self) -> None:
        """Register a voter with the features that it supports, and a removed voter with ranges that block no upgrade. A
        node that fails to become a voter is not registered."""
        while True:
            await self.node.until(lambda quorum: quorum.is_voter and quorum.leader_id >= 0)
            await self._register_at_leader(lambda _: self._registration)
            await self.node.until(_was_removed)
            logger.warning("this node is no longer a voter: it was removed from the quorum")
            await self._register_at_leader(partial(without_limits, self._settings.node_id))
            logger.info("registered without limits: this node blocks no upgrade")

    async def _register_at_leader(self, registration: Callable[[Iterable[str]], ControllerRegistrationRequest]) -> None:
        """Repeat until the registration is in the metadata log. `registration` receives the names of the leader's
        features."""
        quorum, client = self.node.quorum, self._client

        async def register() -> None:
            if quorum.leading is None:  # else `register` has done it
                if quorum.leader_address is None:
                    raise QuorumError("no leader is known")
                await client.register(quorum.leader_address, registration(await client.features(quorum.leader_address)))

        await reached("the registration as a controller", register, QuorumError)

    def _register_again(self, controller_id: int) -> None:
        """Register again after the registration was removed, as Kafka's controllers do. Otherwise a feature may be
        raised to a level that this node does not support."""
        if controller_id == self._settings.node_id and self.node.quorum.is_voter:
            logger.warning("the registration of this controller was removed: it registers again")
            self._tasks = [each for each in self._tasks if not each.done()]
            self._tasks.append(self._run(self._register_at_leader(lambda _: self._registration)))

    @property
    def _registration(self) -> ControllerRegistrationRequest:
        return controller_registration(self.node.quorum.me, self._incarnation, self._protocol)


def _was_removed(quorum: Consensus) -> bool:
    return not quorum.is_voter and quorum.leading is None and quorum.history.changed_at < quorum.high_watermark
