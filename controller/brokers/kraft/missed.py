"""Events that a voter missed, because it was away for longer than the metadata log is kept: another Topicwright has
them, with the same offsets in its event log.

They come over the connections that voters have among themselves, with their TLS and their logins: FetchSnapshot of a
topic that no Kafka has, from voters that have shown to be of Topicwright alone. Who requests them says which event it
needs next, and the offset of the metadata log up to which (-1: nothing but the root, see `heads`). A page shows the
root of the event log's tree over all events before, so that what is copied goes on from the same history, and how many
events there are below that offset. The snapshot that the metadata log begins with says in the end whether they lead to
what is (`following`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from controller.brokers.cluster.wire import Address
from controller.brokers.kraft.log.batches import BrokenBatch
from controller.brokers.kraft.log.carried import carried
from controller.brokers.kraft.quorum.files import QuorumFiles
from controller.brokers.kraft.quorum.node import QuorumNode
from controller.brokers.kraft.quorum.segment import FilePart
from controller.kafka.messages import Message
from controller.kafka.messages import fetch_snapshot as fs
from controller.machine.errors import ErrorCode
from events.codec import decode_event
from events.external_decision import external_decision
from events.logs.log import EventLog, LogError
from projections.store.tree import TreeBehind, head_of

EVENTS_TOPIC: Final = "__topicwright_events"
PAGE_EVENTS: Final = 200
"""Who takes a page is kept by it for some milliseconds."""
PAGE_BYTES: Final = 256 << 10
PURPOSE: Final = "missed"
REPLY_S: Final = 10.0
_FORM: Final = 1


class Page(msgspec.Struct, frozen=True, array_like=True):
    """Events from offset `first` on, as bytes; `end` is the offset after the last one that belongs to the metadata log
    below the requested offset, and `root` that of the tree over all events before `first`."""

    form: int
    first: int
    end: int
    root: bytes
    values: tuple[bytes, ...]


_decode = msgspec.msgpack.Decoder(Page).decode


class EventPages:
    """The events of a voter's log, for others that missed them."""

    def __init__(self, log: EventLog, files: QuorumFiles) -> None:
        self._log, self._files = log, files
        self._turn = asyncio.Lock()
        self._ends: tuple[int, int] = (-1, -1)

    @staticmethod
    def takes(request: Message) -> bool:
        """Whether a request is for a page."""
        if not isinstance(request, fs.FetchSnapshotRequest) or len(request.topics) != 1:
            return False
        return request.topics[0].name == EVENTS_TOPIC and len(request.topics[0].partitions) == 1

    async def respond(self, request: fs.FetchSnapshotRequest, applied: int) -> fs.FetchSnapshotResponse:
        """The response to a request for a page; `applied` is up to where the metadata log is in the event log."""
        if request.cluster_id != self._log.cluster_id:
            return fs.FetchSnapshotResponse(error_code=int(ErrorCode.INCONSISTENT_CLUSTER_ID))
        part = request.topics[0].partitions[0]
        first, below = part.position, part.snapshot_id.end_offset
        data = None
        if below < 0 and 0 <= first <= self._log.next_offset:
            data = await asyncio.get_running_loop().run_in_executor(None, self._root, first)
        elif self._files.start <= below <= applied and 0 <= first <= self._log.next_offset:
            parts, end = self._files.parts(below, applied), self._log.next_offset
            async with self._turn:  # one at a time: each keeps a thread
                loop = asyncio.get_running_loop()
                data = await loop.run_in_executor(None, self._page, parts, first, below, end)
        answer = fs.ResponsePartitionSnapshot(error_code=int(ErrorCode.SNAPSHOT_NOT_FOUND))
        if data is not None:
            answer = fs.ResponsePartitionSnapshot(position=first, size=len(data), unaligned_records=data)
        topic = fs.ResponseTopicSnapshot(name=EVENTS_TOPIC, partitions=(answer,))
        return fs.FetchSnapshotResponse(topics=(topic,))

    def _root(self, size: int) -> bytes | None:
        """In a thread: a page that has nothing but the root."""
        try:
            return msgspec.msgpack.encode(Page(_FORM, size, size, head_of(self._log, size)[1], ()))
        except (LogError, TreeBehind):
            return None

    def _page(self, parts: Sequence[FilePart], first: int, below: int, end: int) -> bytes | None:
        """In a thread. None where these events are not here."""
        try:
            if self._ends[0] != below:
                self._ends = below, self._end_below(parts, below, end)
            end = self._ends[1]
            if end < first:
                return None
            values = tuple(_bounded(value for _, value in self._log.read(first, end)))
            return msgspec.msgpack.encode(Page(_FORM, first, end, head_of(self._log, first)[1], values))
        except (BrokenBatch, OSError, LogError, TreeBehind):
            return None

    def _end_below(self, parts: Sequence[FilePart], below: int, end: int) -> int:
        """The offset of the first event that the metadata log has at `below` or later; -1 where that is not known. It
        is in the next batch that carries events. What others decided before that says where it was found."""
        for batch in (batch for part in parts for batch in part.batches()):
            ours = None if batch.is_control or batch.base_offset < below else carried(batch.records[0][1])
            if ours is not None and ours.values:
                if ours.first >= end or self._log.read_one(ours.first) != ours.values[0]:
                    return -1
                end = ours.first
                break
        while end > 0:
            found = external_decision(decode_event(end - 1, self._log.read_one(end - 1)).cause)
            if found is None or found.offset < below or (found.node_id < 0 and found.offset == below):
                return end
            if found.node_id < 0:
                return -1  # a gap of its own
            end -= 1
        return end


def _bounded(values: Iterator[bytes]) -> Iterator[bytes]:
    size = 0
    for count, value in enumerate(values):
        size += len(value)
        if count and (count >= PAGE_EVENTS or size > PAGE_BYTES):
            return
        yield value


async def root_at(node: QuorumNode, place: Address, size: int) -> bytes | None:
    """The root of the tree over the first `size` events of another voter; None where it has not so many."""
    page = await _requested(node, place, size, -1)
    return None if page is None else page.root


async def missed_events(node: QuorumNode, log: EventLog, below: int) -> Page | None:
    """The next page of what a log lacks of the events of the metadata log below that offset, from another voter with
    the same history up to there; None where there is none to be had. Raises LogError."""
    first = log.next_offset
    for place in await node.of_topicwright():
        page = await _requested(node, place, first, below)
        try:
            if page is not None and page.root == head_of(log, first)[1]:
                return page
        except TreeBehind:
            return None
    return None


async def _requested(node: QuorumNode, place: Address, first: int, below: int) -> Page | None:
    part = fs.RequestPartitionSnapshot(snapshot_id=fs.SnapshotId(end_offset=below), position=first)
    request = fs.FetchSnapshotRequest(
        cluster_id=node.quorum.options.cluster_id,
        replica_id=node.quorum.me.id,
        topics=(fs.RequestTopicSnapshot(name=EVENTS_TOPIC, partitions=(part,)),),
    )
    response = await node.send(place, PURPOSE, request, REPLY_S)
    if not isinstance(response, fs.FetchSnapshotResponse):
        return None
    try:
        answer = response.topics[0].partitions[0]
        page = None if response.error_code or answer.error_code else _decode(answer.unaligned_records)
    except (IndexError, msgspec.DecodeError):
        return None
    if page is None or page.form != _FORM or page.first != first or page.end < first + len(page.values):
        return None
    return page
