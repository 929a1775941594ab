"""A client of a running quorum: its status, its metadata log, and how nodes join and leave it (KIP-853, KIP-919).

Used by `topicwright quorum` and by a node that joins: sends DescribeCluster, DescribeQuorum, Fetch, AddRaftVoter and
RemoveRaftVoter. Any controller can name the leader; only the leader changes the quorum. Requests to a leader that has
just lost the leadership, or is not ready yet, are retried.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from controller.kafka.connections import Security
from controller.kafka.messages import Message
from controller.kafka.messages import quorum as quorum_messages
from controller.kafka.messages.cluster import (
    ApiVersionsResponse,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from controller.kafka.messages.message import CONTROLLER_ENDPOINTS
from controller.machine.errors import ErrorCode
from controller.quorum.features import KRAFT_VERSION, Features, Registered, fold, limits, priority_of, without_limits
from controller.quorum.log.batches import BrokenBatch, RecordBatch, decode_batches, scan_batches, whole_batches
from controller.quorum.log.metadata_codec import MalformedRecord
from controller.quorum.peers import API_VERSIONS, Peers
from controller.quorum.raft.role import Change, topics_of
from controller.quorum.raft.voters import Address, Voter
from events.errors import UserError

REPLY_S: Final = 10.0
CHANGE_S: Final = 30.0
"""Limit for a change of the voter set to be committed."""
READ_S: Final = 3.0
"""Timeout of a read, and limit for the time that a read of the log waits for committed records."""
FETCH_BYTES: Final = 4096
READ_BYTES: Final = 8 << 20
RETRY_S: Final = 0.25
CHANGES_MAX: Final = 20
SILENT_MS: Final = 3_000
"""A node that has not fetched for this long counts as stopped. Voters fetch twice a second."""
_RETRIABLE: Final = frozenset({
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT,
})  # fmt: skip
_DENIED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

R = TypeVar("R", bound=Message)


class QuorumError(UserError):
    """The quorum cannot be read or changed; the message has the reason. After a timeout the leader may still commit the
    change."""


class QuorumInfo(msgspec.Struct, frozen=True):
    """A quorum as a controller describes it in its responses to DescribeCluster and ApiVersions."""

    cluster_id: str
    kraft_version: int
    leader_id: int
    leader: Address | None
    controllers: Mapping[int, Address] = {}
    """By node id."""
    features: Features = ()
    """The finalized features."""


class QuorumStatus(msgspec.Struct, frozen=True):
    """The leader's description of a quorum, the start of its epoch in milliseconds, and the leader priority of each
    voter that responded; None for a Kafka voter."""

    quorum: quorum_messages.DescribeQuorumPartitionResult
    led_since_ms: int | None
    priorities: Mapping[int, int | None]


class QuorumClient(Peers):
    """Sends requests to the controllers of a running quorum. `bootstrap` has the addresses of some controllers."""

    def __init__(self, bootstrap: Sequence[Address], security: Security) -> None:
        super().__init__(security)
        self.bootstrap, self.security = tuple(bootstrap), security

    def _failure(self, address: Address) -> str:
        return self.failing.get(address, f"{address[0]}:{address[1]} does not respond")

    async def find(self) -> QuorumInfo:
        """Describe the quorum, by the first controller that responds. Raises QuorumError."""
        failures: list[str] = []
        for address in self.bootstrap:
            # DescribeCluster first: a starting controller reports no finalized features before it answers that.
            request = DescribeClusterRequest(endpoint_type=CONTROLLER_ENDPOINTS)
            cluster = await self._send(address, request, DescribeClusterResponse)
            versions = None if cluster is None else await self._send(address, API_VERSIONS, ApiVersionsResponse)
            if versions is None or cluster is None:
                failures.append(self._failure(address))
            elif cluster.error_code:
                failures.append(f"{address[0]}:{address[1]} is not a controller: {cluster.error_message}")
            else:
                levels = {each.name: each.max_version_level for each in versions.finalized_features}
                known = {each.broker_id: (each.host, each.port) for each in cluster.brokers}
                leader_id, level = cluster.controller_id, levels.get(KRAFT_VERSION, 0)
                features = tuple(levels.items())
                return QuorumInfo(cluster.cluster_id, level, leader_id, known.get(leader_id), known, features)
        raise QuorumError(f"no controller responds: {'; '.join(failures)}")

    async def describe(self) -> quorum_messages.DescribeQuorumPartitionResult:
        """The leader's description of the quorum. Raises QuorumError."""
        request = quorum_messages.DescribeQuorumRequest(topics=topics_of(quorum_messages.DescribeQuorumPartition()))
        response = await self._send_to_leader(request, quorum_messages.DescribeQuorumResponse)
        return response.topics[0].partitions[0]

    async def status(self) -> QuorumStatus:
        """The status of the quorum. Raises QuorumError."""
        quorum, found = await self.describe(), await self.find()
        voters = [each.replica_id for each in quorum.current_voters if each.replica_id in found.controllers]
        responses = await asyncio.gather(
            *(self._send(found.controllers[each], API_VERSIONS, ApiVersionsResponse, READ_S) for each in voters)
        )
        priorities = {
            voter: priority_of(each.supported_features)
            for voter, each in zip(voters, responses, strict=True)
            if each is not None
        }
        return QuorumStatus(quorum, await self._led_since(found, quorum), priorities)

    async def _led_since(self, found: QuorumInfo, quorum: quorum_messages.DescribeQuorumPartitionResult) -> int | None:
        """The timestamp of the epoch's first batch; None if it is unknown. The first fetch pretends that the
        last record is of the previous epoch, so its response contains the offset at which that epoch ended."""
        epoch = quorum.leader_epoch
        try:
            ended = (await self._fetched(found, epoch, quorum.high_watermark, epoch - 1)).diverging_epoch
            if ended.epoch < 0:
                return None
            part = await self._fetched(found, epoch, ended.end_offset, ended.epoch)
        except QuorumError:
            return None
        first = next(decode_batches(whole_batches(part.records or b"")), None)
        return first.timestamp_ms if first is not None and first.is_control else None

    async def committed(self) -> AsyncIterator[Iterator[RecordBatch]]:
        """The leader's metadata log up to its high watermark: the snapshot at its start, and the batches after it.
        Raises QuorumError, and BrokenBatch while it is read."""
        quorum, found = await self.describe(), await self.find()
        offset, last_epoch, waited_s = 0, 0, 0.0
        while offset < quorum.high_watermark:
            part = await self._fetched(found, quorum.leader_epoch, offset, last_epoch, READ_BYTES)
            snapshot = part.snapshot_id
            if snapshot.end_offset > offset:
                yield decode_batches(await self._snapshot(found, quorum.leader_epoch, snapshot))
                offset, last_epoch = snapshot.end_offset, snapshot.epoch
                continue
            data = whole_batches(part.records or b"")
            heads = tuple(scan_batches(data, "metadata log"))
            if not heads or heads[-1].last_offset < offset:
                waited_s += RETRY_S  # a Topicwright leader sends some committed records to observers later
                if waited_s > READ_S:
                    raise QuorumError(f"node {found.leader_id} does not send its metadata log from offset {offset} on")
                await asyncio.sleep(RETRY_S)
                continue
            yield decode_batches(data)
            offset, last_epoch = heads[-1].last_offset + 1, heads[-1].epoch

    async def _fetched(
        self, found: QuorumInfo, epoch: int, offset: int, last_epoch: int, max_bytes: int = FETCH_BYTES
    ) -> quorum_messages.FetchPartitionData:
        """Fetch from the leader's metadata log. Raises QuorumError."""
        part = quorum_messages.FetchPartition(
            current_leader_epoch=epoch, fetch_offset=offset, last_fetched_epoch=last_epoch
        )
        topics = topics_of(part)
        request = quorum_messages.FetchRequest(cluster_id=found.cluster_id, max_bytes=max_bytes, topics=topics)
        response = await self._read(found, request, quorum_messages.FetchResponse)
        answer = response.responses[0].partitions[0] if response.responses else None
        code = response.error_code or (answer.error_code if answer is not None else 0)
        if answer is None or code:
            needed = " (needs ClusterAction on the cluster)" if code == _DENIED else ""
            raise QuorumError(f"the metadata log cannot be read: {_error_text(code, None)}{needed}")
        return answer

    async def _snapshot(self, found: QuorumInfo, epoch: int, snapshot: quorum_messages.FetchSnapshotId) -> bytes:
        """The batches of a snapshot. Raises QuorumError."""
        data, size = bytearray(), 1
        while len(data) < size:
            part = quorum_messages.RequestPartitionSnapshot(
                current_leader_epoch=epoch, snapshot_id=snapshot, position=len(data)
            )
            request = quorum_messages.FetchSnapshotRequest(
                cluster_id=found.cluster_id, max_bytes=READ_BYTES, topics=topics_of(part)
            )
            response = await self._read(found, request, quorum_messages.FetchSnapshotResponse)
            answer = response.topics[0].partitions[0] if response.topics else None
            if answer is None or answer.error_code or not answer.unaligned_records:
                code = response.error_code if answer is None else answer.error_code
                raise QuorumError(f"the snapshot of node {found.leader_id} cannot be read: {_error_text(code, None)}")
            size = answer.size
            data += answer.unaligned_records
        return bytes(data)

    async def _read(self, found: QuorumInfo, request: Message, kind: type[R]) -> R:
        if found.leader is None:
            raise QuorumError("the quorum has no leader")
        response = await self._send(found.leader, request, kind, READ_S)
        if response is None:
            raise QuorumError(self._failure(found.leader))
        return response

    async def add(self, cluster_id: str, voter: Voter) -> None:
        """Make a caught-up node a voter. Raises QuorumError."""
        request = quorum_messages.AddRaftVoterRequest(
            cluster_id=cluster_id,
            timeout_ms=int(CHANGE_S * 1000),
            voter_id=voter.id,
            voter_directory_id=voter.directory,
            listeners=voter.listeners,
        )
        await self._change(request, quorum_messages.AddRaftVoterResponse, votes=True)

    async def remove(
        self,
        cluster_id: str,
        quorum: quorum_messages.DescribeQuorumPartitionResult,
        leaver: quorum_messages.QuorumReplica,
    ) -> None:
        """Remove a voter. Raises QuorumError, also if the other voters that fetch would not be a majority."""
        rest = [each for each in quorum.current_voters if each != leaver]
        if not rest:
            raise QuorumError(f"node {leaver.replica_id} is the only voter: without it there is no quorum")
        running = running_nodes(quorum)
        missing = [each.replica_id for each in rest if each.replica_id not in running]
        if len(rest) - len(missing) <= len(rest) // 2:
            gone = ", ".join(map(str, missing))
            raise QuorumError(
                f"without node {leaver.replica_id} the quorum would have no majority: "
                f"{len(missing)} of the {len(rest)} other voters do not fetch ({gone}): start or remove them first"
            )
        request = quorum_messages.RemoveRaftVoterRequest(
            cluster_id=cluster_id, voter_id=leaver.replica_id, voter_directory_id=leaver.replica_directory_id
        )
        await self._change(request, quorum_messages.RemoveRaftVoterResponse, votes=False)

    async def _change(self, request: Change, kind: type[R], *, votes: bool) -> None:
        """Add or remove a voter. Repeats this until the leader's voter set has the change. A Kafka controller whose
        log was truncated misses changes at offsets that its log had before (`KRaftControlRecordStateMachine`). Raises
        QuorumError."""
        for _ in range(CHANGES_MAX):
            failure: QuorumError | None = None
            try:
                await self._send_to_leader(request, kind)
            except QuorumError as error:  # the leader may have resigned before its response to a committed change
                failure = error
            quorum = await self.describe()
            known = [(each.replica_id, each.replica_directory_id) for each in quorum.current_voters]
            if ((request.voter_id, request.voter_directory_id) in known) == votes:
                return
            if failure is not None:
                raise failure
            await asyncio.sleep(RETRY_S)
        raise QuorumError(f"node {quorum.leader_id} leads, but does not apply changes of the voter set: restart it")

    async def register(self, leader: Address, request: ControllerRegistrationRequest) -> None:
        """Register a controller's listeners and features, without which the leader raises no feature level (KIP-919).
        Raises QuorumError."""
        response = await self._send(leader, request, ControllerRegistrationResponse)
        if response is None:
            raise QuorumError(self._failure(leader))
        if response.error_code:
            raise QuorumError(_error_text(response.error_code, response.error_message))

    async def features(self, leader: Address | None = None) -> tuple[str, ...]:
        """The names of the features that the leader supports. Without `leader` this first finds the leader. Raises
        QuorumError."""
        leader = leader or (await self.find()).leader
        versions = None if leader is None else await self._send(leader, API_VERSIONS, ApiVersionsResponse, READ_S)
        if versions is None:
            raise QuorumError("the quorum has no leader" if leader is None else self._failure(leader))
        return tuple(each.name for each in versions.supported_features)

    async def unblock_upgrades(self, node_id: int, features: Iterable[str]) -> None:
        """Register a node that has left the quorum once more, without limits: it then blocks no upgrade of `features`.
        Raises QuorumError."""
        await self._send_to_leader(without_limits(node_id, features), ControllerRegistrationResponse)

    async def _send_to_leader(self, request: Message, kind: type[R]) -> R:
        """Send a request to the leader; retry while there is none, and after retriable errors."""
        reason = "the quorum has no leader"
        try:
            async with asyncio.timeout(CHANGE_S):
                while True:
                    found = await self.find()
                    if found.leader is not None:
                        response = await self._send(found.leader, request, kind, CHANGE_S)
                        if response is None:
                            reason = self._failure(found.leader)
                        else:
                            part: Any = response
                            if isinstance(response, quorum_messages.DescribeQuorumResponse) and not part.error_code:
                                part = response.topics[0].partitions[0]
                            if not part.error_code:
                                return response
                            reason = _error_text(part.error_code, part.error_message)
                            if part.error_code not in _RETRIABLE:
                                raise QuorumError(reason)
                    await asyncio.sleep(RETRY_S)
        except TimeoutError:
            raise QuorumError(
                f"no success within {CHANGE_S:g} s: {reason}; `topicwright quorum` shows the state"
            ) from None

    async def _send(self, address: Address, request: Message, kind: type[R], within_s: float = REPLY_S) -> R | None:
        response = await self.send(address, request, within_s)
        assert response is None or isinstance(response, kind), "the codec returns the response of the API"
        return response


def _error_text(code: int, message: str | None) -> str:
    name = next((each.name for each in ErrorCode if each == code), f"error {code}")
    return f"{name}: {message}" if message else name


def running_nodes(quorum: quorum_messages.DescribeQuorumPartitionResult) -> frozenset[int]:
    """The nodes that fetch the leader's log."""
    states = (*quorum.current_voters, *quorum.observers)
    now = max(each.last_fetch_timestamp for each in states)  # that of the leader is its current time
    return frozenset(each.replica_id for each in states if each.last_fetch_timestamp >= now - SILENT_MS)


async def all_limits(client: QuorumClient) -> dict[int, dict[str, int]]:
    """The `limits` of each registered controller that has any, by node id. Raises QuorumError."""
    registered: Registered = {}
    try:
        async for batches in client.committed():
            fold(registered, batches)
    except (BrokenBatch, MalformedRecord) as error:
        raise QuorumError(f"the leader's metadata log is malformed: {error}") from None
    features = await client.features()
    found = {node_id: limits(each, features) for node_id, each in registered.items()}
    return {node_id: each for node_id, each in found.items() if each}
