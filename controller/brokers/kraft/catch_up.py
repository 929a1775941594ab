"""Events that a voter missed because it was away longer than the metadata log is retained, copied from another
Topicwright voter; and the comparison of the voters' histories.

Pages of events use the voters' own connections, with their TLS and logins: a FetchSnapshot request for a topic that
Kafka does not have, sent only to known Topicwright voters. `apis.kraft.quorum` answers it. A request names the next
missing event and the metadata log offset up to which events are needed (-1: only the tree root). A page carries the
root of the event log's Merkle tree over all events before it, which proves that both logs share their history, and the
number of events below that offset. The snapshot at the start of the metadata log finally shows whether the events lead
to the current state (`applier`).

Each batch of a Topicwright leader carries the root of the tree over all events before it. If a follower has another
root at the same offset, something was changed, lost or decided differently on one side. It then asks the other voters
for their roots. A voter in the minority neither leads nor gets votes; without a majority the difference is only
reported. A voter with a gap in its history has other offsets and is not compared.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
import structlog

from controller.kafka.connections import Address
from controller.kafka.messages import Message, quorum
from controller.machine.errors import ErrorCode
from controller.quorum.files import QuorumFiles
from controller.quorum.log.batches import BrokenBatch, embedded_events
from controller.quorum.log_files import FilePart, batches_of
from controller.quorum.node import QuorumNode
from controller.store.tree import head_of, stored_head
from events.codec import decode_event
from events.external_decision import external_decision
from events.logs.log import EventLog, LogError, grouped, read_one
from events.logs.tree_heads import differing

EVENTS_TOPIC: Final = "__topicwright_events"
PAGE_EVENTS: Final = 200
"""A page occupies its sender for some milliseconds."""
PAGE_BYTES: Final = 256 << 10
REPLY_S: Final = 10.0
_FORM: Final = 1


class Page(msgspec.Struct, frozen=True, array_like=True):
    """The response: encoded events from offset `first` on. `end` is the offset after the last event below the requested
    metadata log offset; `root` is the tree root over all events before `first`."""

    form: int
    first: int
    end: int
    root: bytes
    values: tuple[bytes, ...]


_decode = msgspec.msgpack.Decoder(Page).decode


class EventPages:
    """Serves pages of a voter's event log to voters that missed events."""

    def __init__(self, log: EventLog, files: QuorumFiles) -> None:
        self._log, self._files = log, files
        self._turn = asyncio.Lock()
        self._ends: tuple[int, int] = (-1, -1)

    @staticmethod
    def takes(request: Message) -> bool:
        """True if a request is for a page."""
        if not isinstance(request, quorum.FetchSnapshotRequest) or len(request.topics) != 1:
            return False
        return request.topics[0].name == EVENTS_TOPIC and len(request.topics[0].partitions) == 1

    async def respond(self, request: quorum.FetchSnapshotRequest, applied: int) -> quorum.FetchSnapshotResponse:
        """Answer a request for a page. The metadata log below `applied` is in the event log."""
        if request.cluster_id != self._log.cluster_id:
            return quorum.FetchSnapshotResponse(error_code=int(ErrorCode.INCONSISTENT_CLUSTER_ID))
        part = request.topics[0].partitions[0]
        first, below = part.position, part.snapshot_id.end_offset
        data = None
        if 0 <= first <= self._log.next_offset and (below < 0 or self._files.start <= below <= applied):
            parts = self._files.parts(below, applied) if below >= 0 else ()
            async with self._turn:  # one at a time: each occupies a thread
                data = await asyncio.to_thread(self._page, parts, first, below, self._log.next_offset)
        answer = quorum.ResponsePartitionSnapshot(error_code=int(ErrorCode.SNAPSHOT_NOT_FOUND))
        if data is not None:
            answer = quorum.ResponsePartitionSnapshot(position=first, size=len(data), unaligned_records=data)
        topic = quorum.ResponseTopicSnapshot(name=EVENTS_TOPIC, partitions=(answer,))
        return quorum.FetchSnapshotResponse(topics=(topic,))

    def _page(self, parts: Sequence[FilePart], first: int, below: int, end: int) -> bytes | None:
        """The encoded page; None if this voter lacks the events. Runs in a thread."""
        try:
            if below >= 0 and self._ends[0] != below:
                self._ends = below, self._end_below(parts, below, end)
            end = first if below < 0 else self._ends[1]
            if end < first:
                return None
            events = (value for _, value in self._log.read(first, end))
            values = tuple(next(grouped(events, PAGE_BYTES, len, PAGE_EVENTS), ()))
            return msgspec.msgpack.encode(Page(_FORM, first, end, head_of(self._log, first)[1], values))
        except (BrokenBatch, OSError, LogError):
            return None

    def _end_below(self, parts: Sequence[FilePart], below: int, end: int) -> int:
        """The offset of the first event at `below` or later in the metadata log; -1 if unknown. The next batch with
        embedded events names it; events imported before that batch name their source offset."""
        for batch in batches_of(parts):
            embedded = None if batch.is_control or batch.base_offset < below else embedded_events(batch.records[0][1])
            if embedded is not None and embedded.values:
                if embedded.first >= end or read_one(self._log, embedded.first) != embedded.values[0]:
                    return -1
                end = embedded.first
                break
        while end > 0:
            found = external_decision(decode_event(end - 1, read_one(self._log, end - 1)).cause)
            if found is None or found.offset < below or (found.node_id < 0 and found.offset == below):
                return end
            if found.node_id < 0:
                return -1  # another gap
            end -= 1
        return end


async def fetch_missing_events(node: QuorumNode, log: EventLog, below: int) -> Page | None:
    """The next page of events that this log lacks below that metadata log offset, from a voter with the same history so
    far; None if no voter has it. Raises LogError."""
    first = log.next_offset
    for place in await node.topicwright_voters():
        page = await _fetch_page(node, place, first, below)
        if page is not None and page.root == head_of(log, first)[1]:
            return page
    return None


async def _fetch_page(node: QuorumNode, place: Address, first: int, below: int) -> Page | None:
    part = quorum.RequestPartitionSnapshot(snapshot_id=quorum.FetchSnapshotId(end_offset=below), position=first)
    request = quorum.FetchSnapshotRequest(
        cluster_id=node.quorum.options.cluster_id,
        replica_id=node.quorum.me.id,
        topics=(quorum.RequestTopicSnapshot(name=EVENTS_TOPIC, partitions=(part,)),),
    )
    response = await node.send(place, request, REPLY_S)
    if not isinstance(response, quorum.FetchSnapshotResponse):
        return None
    try:
        answer = response.topics[0].partitions[0]
        page = None if response.error_code or answer.error_code else _decode(answer.unaligned_records)
    except (IndexError, msgspec.DecodeError):
        return None
    if page is None or page.form != _FORM or page.first != first or page.end < first + len(page.values):
        return None
    return page


COMPARE_AGAIN_S: Final = 60.0
"""A difference is permanent: compare and log it only this often."""

logger = structlog.get_logger("topicwright.quorum")


class TreeHeads:
    """Compares this voter's event log with the tree roots of the other voters."""

    def __init__(self, node: QuorumNode, log: EventLog) -> None:
        self._node, self._log = node, log
        self._looking: asyncio.Task[None] | None = None
        self._compare_at = 0.0
        self.difference: str | None = None
        """A description of where the voters' events differ; None if they agree."""
        self.is_minority = False
        """True if this voter differs from the majority."""

    def compare(self, leader_id: int, size: int, root: bytes) -> None:
        """Compare with the leader's root over its first `size` events. Raises LogError."""
        size_here, own_root = stored_head(self._log)
        loop = asyncio.get_running_loop()
        if size_here != size or own_root == root or loop.time() < self._compare_at:
            return
        self._compare_at = loop.time() + COMPARE_AGAIN_S
        self._looking = loop.create_task(self._compare(size, {leader_id: root, self._node.quorum.me.id: own_root}))

    async def _compare(self, size: int, roots: dict[int, bytes]) -> None:
        core = self._node.quorum
        for place in await self._node.topicwright_voters():
            voter = next((each.id for each in core.others if core.address_of(each) == place), None)
            if voter is not None and voter not in roots:
                page = await _fetch_page(self._node, place, size, -1)
                if page is not None:  # the voter has as many events
                    roots[voter] = page.root
        root, others = differing(roots)
        who = ", ".join(map(str, sorted(others)))
        majority = "" if root is None else " from the majority"
        self.difference = f"voters {who} differ{majority} in the events below {size}"
        logger.error(
            "voters have different histories", why=self.difference, roots={k: v.hex() for k, v in roots.items()}
        )
        self.is_minority = root is not None and core.me.id in others
        if root is not None:
            core.distrusted = others
        if self.is_minority:
            self._node.set_can_lead(False)
