"""Coming into a running quorum and leaving it (KIP-853): what is requested of the controllers that are there.

A quorum is found by any of its controllers, changed by its leader. Right after a change of the lead that may be
another one than is said, or it may not have settled yet: both are tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from controller.brokers.cluster.security import Security
from controller.brokers.kraft.features import KRAFT_VERSION, Features, priority_of
from controller.brokers.kraft.log.batches import (
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    RecordBatch,
    decode_batches,
    scan_batches,
    whole_batches,
)
from controller.brokers.kraft.quorum.peers import Peers
from controller.brokers.kraft.quorum.raft.voters import Place, Voter
from controller.brokers.kraft.quorum.registered import without_limits
from controller.kafka.messages import Message
from controller.kafka.messages import quorum as quorum_messages
from controller.kafka.messages.cluster import (
    CONTROLLER_ENDPOINTS,
    ApiVersionsRequest,
    ApiVersionsResponse,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from controller.kafka.messages.message import Listener
from controller.kafka.messages.quorum import AddRaftVoterRequest, RemoveRaftVoterRequest, RemoveRaftVoterResponse
from controller.machine.errors import ErrorCode
from controller.release import RELEASE

PURPOSE: Final = "join"
REPLY_S: Final = 10.0
CHANGE_S: Final = 30.0
"""How long a change of voters may take to be committed."""
SHOW_S: Final = 3.0
"""For what is only shown."""
FETCH_BYTES: Final = 4096
READ_BYTES: Final = 8 << 20
AGAIN_S: Final = 0.25
SILENT_MS: Final = 3_000
"""A voter that has not fetched for so long does not count for a majority. Voters fetch twice a second."""
_AGAIN: Final = frozenset({
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT,
})  # fmt: skip

_DENIED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

R = TypeVar("R", bound=Message)
C = TypeVar("C", quorum_messages.AddRaftVoterResponse, RemoveRaftVoterResponse)


class QuorumError(Exception):
    """What keeps a change of the quorum from being made. The message is for whoever wanted it; nothing has changed."""


class Found(msgspec.Struct, frozen=True):
    """A quorum as one of its controllers shows it."""

    cluster_id: str
    kraft_version: int
    leader_id: int
    leader: Place | None
    places: Mapping[int, Place] = {}
    """Its controllers, by node id."""
    features: Features = ()
    """The finalized features."""


class Standing(msgspec.Struct, frozen=True):
    """A quorum in full: who is how far, since when its leader leads, in ms since the epoch, and how much each voter
    wants to, None of Kafka's own. What could not be seen is not there."""

    quorum: quorum_messages.DescribeQuorumPartitionResult
    led_since_ms: int | None
    priorities: Mapping[int, int | None]


class QuorumClient:
    """Speaks with the controllers of a running quorum. `bootstrap` are some of them."""

    def __init__(self, bootstrap: Sequence[Place], security: Security) -> None:
        self._bootstrap = tuple(bootstrap)
        self._peers = Peers(security, trouble=self._trouble)
        self._troubles: dict[Place, str] = {}

    def close(self) -> None:
        """Let go of all connections."""
        self._peers.close()

    def _trouble(self, place: Place, why: str | None) -> None:
        self._troubles[place] = why or ""

    def _why_not(self, place: Place) -> str:
        return self._troubles.get(place) or f"{place[0]}:{place[1]} does not respond"

    async def find(self, within_s: float = 0.0) -> Found:
        """The quorum, by the first controller that responds, tried again for so long. Raises QuorumError."""
        deadline = asyncio.get_running_loop().time() + within_s
        while True:
            try:
                return await self._find()
            except QuorumError:
                if asyncio.get_running_loop().time() >= deadline:
                    raise
            await asyncio.sleep(AGAIN_S)

    async def _find(self) -> Found:
        failures: list[str] = []
        for place in self._bootstrap:
            # In this order: a controller that starts shows no finalized features before it describes the cluster.
            wanted = DescribeClusterRequest(endpoint_type=CONTROLLER_ENDPOINTS)
            cluster = await self._send(place, wanted, DescribeClusterResponse)
            versions = None if cluster is None else await self._send(place, _who(), ApiVersionsResponse)
            if versions is None or cluster is None:
                failures.append(self._why_not(place))
            elif cluster.error_code:
                failures.append(f"{place[0]}:{place[1]} is no controller: {cluster.error_message}")
            else:
                levels = {each.name: each.max_version_level for each in versions.finalized_features}
                places = {each.broker_id: (each.host, each.port) for each in cluster.brokers}
                leader_id = cluster.controller_id
                level = levels.get(KRAFT_VERSION, 0)
                return Found(cluster.cluster_id, level, leader_id, places.get(leader_id), places, tuple(levels.items()))
        raise QuorumError(f"no controller responds: {'; '.join(failures)}")

    async def describe(self) -> quorum_messages.DescribeQuorumPartitionResult:
        """The quorum as its leader shows it. Raises QuorumError."""
        request = quorum_messages.DescribeQuorumRequest(
            topics=(
                quorum_messages.DescribeQuorumTopic(
                    topic_name=METADATA_TOPIC, partitions=(quorum_messages.DescribeQuorumPartition(),)
                ),
            )
        )

        def outcome(response: quorum_messages.DescribeQuorumResponse) -> tuple[int, str | None]:
            if response.error_code:
                return response.error_code, response.error_message
            part = response.topics[0].partitions[0]
            return part.error_code, part.error_message

        response = await self._at_leader(request, quorum_messages.DescribeQuorumResponse, outcome)
        return response.topics[0].partitions[0]

    async def stand(self) -> Standing:
        """The quorum in full. Raises QuorumError."""
        quorum, found = await self.describe(), await self.find()
        voters = [each.replica_id for each in quorum.current_voters if each.replica_id in found.places]
        shown = await asyncio.gather(
            *(self._send(found.places[each], _who(), ApiVersionsResponse, SHOW_S) for each in voters)
        )
        priorities = {
            voter: priority_of(each.supported_features)
            for voter, each in zip(voters, shown, strict=True)
            if each is not None
        }
        return Standing(quorum, await self._led_since(found, quorum), priorities)

    async def _led_since(self, found: Found, quorum: quorum_messages.DescribeQuorumPartitionResult) -> int | None:
        """By the first batch of the epoch. Whoever says that it has records of the epoch before up to the end is shown
        where that ended."""
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
        """The leader's metadata log up to its high watermark: the snapshot that it begins with, and the batches since.
        Raises QuorumError, and BrokenBatch as it is read."""
        quorum, found = await self.describe(), await self.find()
        offset = last_epoch = 0
        while offset < quorum.high_watermark:
            part = await self._fetched(found, quorum.leader_epoch, offset, last_epoch, READ_BYTES)
            snapshot = part.snapshot_id
            if snapshot.end_offset > offset:
                async for data in self._snapshot(found, quorum.leader_epoch, snapshot):
                    yield decode_batches(data)
                offset, last_epoch = snapshot.end_offset, snapshot.epoch
                continue
            data = whole_batches(part.records or b"")
            heads = tuple(scan_batches(data, "metadata log"))
            if not heads or heads[-1].last_offset < offset:
                raise QuorumError(f"node {found.leader_id} does not send its metadata log from offset {offset} on")
            yield decode_batches(data)
            offset, last_epoch = heads[-1].last_offset + 1, heads[-1].epoch

    async def _fetched(
        self, found: Found, epoch: int, offset: int, last_epoch: int, max_bytes: int = FETCH_BYTES
    ) -> quorum_messages.FetchPartitionData:
        """Of the leader's metadata log. Raises QuorumError."""
        part = quorum_messages.FetchPartition(
            current_leader_epoch=epoch, fetch_offset=offset, last_fetched_epoch=last_epoch
        )
        topic = quorum_messages.FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=(part,))
        request = quorum_messages.FetchRequest(cluster_id=found.cluster_id, max_bytes=max_bytes, topics=(topic,))
        response = await self._read(found, request, quorum_messages.FetchResponse)
        answer = response.responses[0].partitions[0] if response.responses else None
        code = response.error_code or (answer.error_code if answer is not None else 0)
        if answer is None or code:
            needed = " (ClusterAction on the cluster is needed)" if code == _DENIED else ""
            raise QuorumError(f"the metadata log cannot be read: {_words(code, None)}{needed}")
        return answer

    async def _snapshot(
        self, found: Found, epoch: int, wanted: quorum_messages.FetchSnapshotId
    ) -> AsyncIterator[bytes]:
        """The batches of a snapshot. Raises QuorumError."""
        rest, position, size = b"", 0, 1
        while position < size:
            part = quorum_messages.RequestPartitionSnapshot(
                current_leader_epoch=epoch,
                snapshot_id=quorum_messages.FetchSnapshotId(end_offset=wanted.end_offset, epoch=wanted.epoch),
                position=position,
            )
            topic = quorum_messages.RequestTopicSnapshot(name=METADATA_TOPIC, partitions=(part,))
            request = quorum_messages.FetchSnapshotRequest(
                cluster_id=found.cluster_id, max_bytes=READ_BYTES, topics=(topic,)
            )
            response = await self._read(found, request, quorum_messages.FetchSnapshotResponse)
            answer = response.topics[0].partitions[0] if response.topics else None
            if answer is None or answer.error_code or not answer.unaligned_records:
                code = response.error_code if answer is None else answer.error_code
                raise QuorumError(f"the snapshot of node {found.leader_id} cannot be read: {_words(code, None)}")
            size, position = answer.size, position + len(answer.unaligned_records)
            rest += answer.unaligned_records
            whole = whole_batches(rest)
            rest = rest[len(whole) :]
            yield whole

    async def _read(self, found: Found, request: Message, kind: type[R]) -> R:
        if found.leader is None:
            raise QuorumError("the quorum has no leader")
        response = await self._send(found.leader, request, kind, SHOW_S)
        if response is None:
            raise QuorumError(self._why_not(found.leader))
        return response

    async def add(self, cluster_id: str, voter: Voter) -> None:
        """Have a node that has caught up made a voter. Raises QuorumError."""
        request = AddRaftVoterRequest(
            cluster_id=cluster_id,
            timeout_ms=int(CHANGE_S * 1000),
            voter_id=voter.id,
            voter_directory_id=voter.directory,
            listeners=tuple(Listener(name=each.name, host=each.host, port=each.port) for each in voter.listeners),
        )
        await self._change(request, quorum_messages.AddRaftVoterResponse, votes=True)

    async def remove(
        self,
        cluster_id: str,
        quorum: quorum_messages.DescribeQuorumPartitionResult,
        leaver: quorum_messages.QuorumReplica,
    ) -> None:
        """Have a voter taken out of the quorum. Raises QuorumError, also where too few of the others are there to go
        on without it."""
        rest = [each for each in quorum.current_voters if each != leaver]
        if not rest:
            raise QuorumError(f"node {leaver.replica_id} is the only voter: without it there is no quorum")
        fetched = (each.last_fetch_timestamp for each in (*quorum.current_voters, *quorum.observers))
        silent_since = max(fetched) - SILENT_MS  # the leader's is its clock; it may have left the voters
        missing = [each.replica_id for each in rest if each.last_fetch_timestamp < silent_since]
        if len(rest) - len(missing) <= len(rest) // 2:
            gone = ", ".join(map(str, missing))
            raise QuorumError(
                f"without node {leaver.replica_id} the quorum would have no majority: of its {len(rest)} other voters "
                f"{len(missing)} are silent ({gone}): start them, or take them out first"
            )
        request = RemoveRaftVoterRequest(
            cluster_id=cluster_id, voter_id=leaver.replica_id, voter_directory_id=leaver.replica_directory_id
        )
        await self._change(request, RemoveRaftVoterResponse, votes=False)

    async def _change(
        self, request: AddRaftVoterRequest | RemoveRaftVoterRequest, kind: type[C], *, votes: bool
    ) -> None:
        """Have the leader add or remove a voter, which then `votes` or does not. Raises QuorumError."""
        try:
            await self._at_leader(request, kind, lambda each: (each.error_code, each.error_message))
        except QuorumError:  # a leader that lost its leadership may have done it, and its response is lost
            voters = (await self.describe()).current_voters
            known = [(each.replica_id, each.replica_directory_id) for each in voters]
            if ((request.voter_id, request.voter_directory_id) in known) != votes:
                raise

    async def register(self, leader: Place, request: ControllerRegistrationRequest) -> str | None:
        """Have the leader write down where a controller listens and which features it works with, without which it
        raises no feature (KIP-919); what is wrong, None if it is done."""
        response = await self._send(leader, request, ControllerRegistrationResponse)
        if response is None:
            return self._why_not(leader)
        return None if not response.error_code else _words(response.error_code, response.error_message)

    async def features(self, leader: Place | None = None) -> tuple[str, ...]:
        """The names of the features that the leader supports; none if it does not respond. Raises QuorumError where no
        `leader` is given and no controller responds."""
        leader = leader or (await self.find()).leader
        versions = None if leader is None else await self._send(leader, _who(), ApiVersionsResponse, SHOW_S)
        return () if versions is None else tuple(each.name for each in versions.supported_features)

    async def free(self, node_id: int, features: Iterable[str]) -> None:
        """Register a node that left, so that it blocks no level of these features. Raises QuorumError."""
        request = without_limits(node_id, features)
        await self._at_leader(
            request, ControllerRegistrationResponse, lambda each: (each.error_code, each.error_message)
        )

    async def _at_leader(self, request: Message, kind: type[R], outcome: Callable[[R], tuple[int, str | None]]) -> R:
        """Have something done by the leader, whoever that is by then."""
        why = "the quorum has no leader"
        try:
            async with asyncio.timeout(CHANGE_S):
                while True:
                    found = await self.find()
                    if found.leader is not None:
                        response = await self._send(found.leader, request, kind, CHANGE_S)
                        if response is None:
                            why = self._why_not(found.leader)
                        else:
                            code, message = outcome(response)
                            if not code:
                                return response
                            why = _words(code, message)
                            if code not in _AGAIN:
                                raise QuorumError(why)
                    await asyncio.sleep(AGAIN_S)
        except TimeoutError:
            raise QuorumError(f"not within {CHANGE_S:g} s: {why}; `topicwright quorum` shows what holds") from None

    async def _send(self, place: Place, request: Message, kind: type[R], within_s: float = REPLY_S) -> R | None:
        response = await self._peers.send(place, PURPOSE, request, within_s)
        assert response is None or isinstance(response, kind), "the codec gives the response of the API"
        return response


def _who() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="topicwright", client_software_version=RELEASE)


def _words(code: int, message: str | None) -> str:
    name = next((each.name for each in ErrorCode if each == code), f"error {code}")
    return f"{name}: {message}" if message else name
