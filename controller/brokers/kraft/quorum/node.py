"""One voter of a quorum at work: the consensus in `raft`, driven by real time, the log's files and the network.

All of the consensus runs on the event loop. What must be durable before it is said, votes and truncations, blocks that;
flushes run in a thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import structlog

from controller.brokers.cluster.connections import Address
from controller.brokers.cluster.security import Security
from controller.brokers.kraft.features import priority_of
from controller.brokers.kraft.log.batches import Pair
from controller.brokers.kraft.quorum.peers import Peers
from controller.brokers.kraft.quorum.raft import effects as out
from controller.brokers.kraft.quorum.raft.core import Quorum
from controller.brokers.kraft.quorum.raft.effects import PRE_VOTE_SINCE, NotLeader, Options, Role
from controller.brokers.kraft.quorum.raft.full_disk import flush_failed, is_full
from controller.brokers.kraft.quorum.raft.log import NOBODY, QuorumLog
from controller.kafka.messages import ApiKey, Message
from controller.kafka.messages.cluster import ApiVersionsRequest, SupportedFeatureKey
from controller.kafka.messages.quorum import VoteRequest
from controller.release import RELEASE

T = TypeVar("T")

logger = structlog.get_logger("topicwright.quorum")

VERSIONS_S: Final = 1.0
"""For a peer to show which versions it speaks."""
FULL_S: Final = 0.2
"""Until the next try of what a disk without room keeps from being done."""


class QuorumNode:
    """A voter, or an observer. `ended` is done when it cannot go on: OSError of its disk, but for one without room,
    CommittedLost, or a bug.

    `on_role`, `on_log` and `on_fetched` are called on the loop, in order: who leads, that the log was cut off or begun
    anew, so that what was read of it beyond the high watermark is void, and, of who leads, that a replica fetches.
    Where it cannot lead, it follows and votes.
    """

    def __init__(
        self,
        log: QuorumLog,
        options: Options,
        chance: Callable[[], float],
        now_ms: Callable[[], int],
        security: Security,
    ) -> None:
        self.quorum = Quorum(log, options, chance)
        self.on_fetched: Callable[[int], None] = lambda replica: None
        self.on_role: Callable[[out.RoleChanged], None] = lambda role: None
        self.on_log: Callable[[out.Truncated | out.SnapshotInstalled], None] = lambda change: None
        self._log, self._now_ms = log, now_ms
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._peers = Peers(security, self._spoke, _trouble)
        self._tasks: set[asyncio.Task[None]] = set()
        self._replies: dict[Hashable, asyncio.Future[Message]] = {}
        self._tokens = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._ticked_at = self._loop.time()
        self._moved = asyncio.Event()
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def start(self) -> None:
        """Begin."""
        self._does(lambda now: self.quorum.start(now, self._now_ms()))

    async def stop(self) -> None:
        """End at once, as a crash would; `hand_over` first."""
        if not self.ended.done():
            self.ended.set_result(None)
        if self._alarm is not None:
            self._alarm.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._peers.close()
        for future in self._replies.values():
            future.cancel()
        self._lost_the_lead()

    async def request(self, request: Message) -> Message:
        """The response to a request of a controller, a broker or a tool; a fetch may wait for it."""
        self._tokens += 1
        token = self._tokens
        future: asyncio.Future[Message] = self._loop.create_future()
        self._replies[token] = future
        try:
            self._does(lambda now: self.quorum.request(now, token, request))
            return await future
        finally:
            self._replies.pop(token, None)

    async def until(self, condition: Callable[[Quorum], bool]) -> None:
        """Wait until the quorum is as wanted: looked at whenever role, leader or high watermark have changed."""
        while not condition(self.quorum):
            await self._moved.wait()

    def append(self, records: Sequence[Pair], *, for_observers: bool = True) -> int:
        """Append a batch as the leader; the offset of its last record. Raises NotLeader, OSError."""
        return self._does(lambda now: self.quorum.append(now, self._now_ms(), records, for_observers=for_observers))

    async def committed(self, offset: int) -> None:
        """Wait until what was just appended, up to that record, is committed. Raises NotLeader where the lead is lost
        first: then it may be committed, or not."""
        if self.quorum.high_watermark > offset:
            return
        if self.quorum.role is not Role.LEADER:
            raise NotLeader
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((offset, future))
        await future

    def wish(self, wanted: bool) -> None:
        """Whether to claim the lead from a leader that lives."""
        self.quorum.wish(self._loop.time(), wanted)
        if self._alarm is not None:  # it has started
            self._set_alarm()

    def veto(self, can_lead: bool) -> None:
        """Whether this node understands all that it would have to decide on."""
        self._does(lambda now: self.quorum.veto(now, can_lead))

    def raise_kraft_version(self) -> None:
        """From kraft.version 0 to 1, as the leader. Raises NotLeader, Refused."""
        self._does(self.quorum.raise_kraft_version)

    async def hand_over(self, at_most_s: float) -> None:
        """Give up the lead in order, and wait until somebody else leads, at most so long."""
        self.quorum.wish(self._loop.time(), wanted=False)
        self._does(lambda now: self.quorum.hand_over(now, at_most_s))
        is_led = self.until(lambda quorum: quorum.leader_id not in (NOBODY, quorum.me.id))
        with suppress(TimeoutError):
            await asyncio.wait_for(is_led, at_most_s)

    # --- the consensus' inputs and effects

    def _does(self, what: Callable[[float], T]) -> T:
        if self.ended.done():
            raise NotLeader
        try:
            return what(self._loop.time())
        except (NotLeader, out.Refused):
            raise
        except Exception as failure:  # a disk that fails, a log that is lost, a bug: nothing more is said
            if not is_full(failure):
                self._fail(failure)
            raise
        finally:
            if not self.ended.done():
                for effect in self.quorum.take_effects():
                    self._carry_out(effect)
                self._set_alarm()

    def _input(self, what: Callable[[float], None]) -> None:
        """An input of nobody who waits for it: what fails has ended the node."""
        if not self.ended.done():
            with suppress(Exception):
                self._does(what)

    def _fail(self, failure: Exception) -> None:
        if not self.ended.done():
            logger.error("this controller cannot go on in its quorum", why=f"{type(failure).__name__}: {failure}")
            self._lost_the_lead()
            self.ended.set_exception(failure)

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        # Who fetches in vain comes again at once: that must not put the next try off.
        soonest = self._ticked_at + FULL_S if self.quorum.full else 0.0
        self._alarm = self._loop.call_at(max(self.quorum.next_wake, soonest), self._tick)

    def _tick(self) -> None:
        self._ticked_at = self._loop.time()
        self._input(self.quorum.tick)

    def _carry_out(self, effect: out.Effect) -> None:
        match effect:
            case out.Send():
                self._begin(self._send(effect))
            case out.Reply(token, response):
                future = self._replies.get(token)
                if future is not None and not future.done():
                    future.set_result(response)
            case out.StartFlush():
                self._begin(self._flush())
            case out.HighWatermark(offset):
                self._committed_below(offset)
                self._stir()
            case out.Fetched(replica):
                self.on_fetched(replica)
            case out.RoleChanged():
                self._lost_the_lead()
                self.on_role(effect)
                self._stir()
                if effect.role in (out.Role.FOLLOWER, out.Role.LEADER):
                    self._open_ways()
            case out.Truncated() | out.SnapshotInstalled():
                self.on_log(effect)
            case out.Warned(what):
                logger.warning("quorum warning", why=what)

    def _committed_below(self, offset: int) -> None:
        while self._waiting and self._waiting[0][0] < offset:
            future = self._waiting.popleft()[1]
            if not future.done():
                future.set_result(None)

    def _lost_the_lead(self) -> None:
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(NotLeader())
        self._waiting.clear()

    def _stir(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    def _begin(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _flush(self) -> None:
        try:
            await self._loop.run_in_executor(None, self._log.flush)
        except OSError as failure:
            self._input(lambda now, failure=failure: flush_failed(self.quorum, now, failure))  # type: ignore[misc]
            return
        self._input(self.quorum.flushed)

    async def _send(self, send: out.Send) -> None:
        response = None
        if await self._speaks(send):
            response = await self._peers.send(send.place, send.purpose, send.request, send.timeout_s)
        self._input(lambda now: self.quorum.reply(now, send.token, response))

    async def _speaks(self, send: out.Send) -> bool:
        """Whether the peer would understand. On the wire a pre-vote to a peer that knows none would be a vote."""
        request, peers = send.request, self.quorum.peers
        if not (isinstance(request, VoteRequest) and request.topics[0].partitions[0].pre_vote):
            return True
        if send.place not in peers:
            await self._open_way(send.place, send.purpose, min(send.timeout_s, VERSIONS_S))
        return send.place in peers and peers[send.place].vote_version >= PRE_VOTE_SINCE

    async def of_topicwright(self) -> list[Address]:
        """Where the other voters of Topicwright are, as far as they are there."""
        core = self.quorum
        places = [core.place_of(voter) for voter in core.others]
        for place in places:
            if place not in core.peers:
                await self._open_way(place, out.VOTE, VERSIONS_S)
        return [place for place in places if place in core.peers and core.peers[place].priority is not None]

    async def send(self, place: Address, purpose: str, request: Message, timeout_s: float) -> Message | None:
        """A request to another voter that is none of the consensus, and its response; None if there is none in time."""
        return await self._peers.send(place, purpose, request, timeout_s)

    def _open_ways(self) -> None:
        """Connect to those whose votes a claim will need: what the leader appends until they are in may cost it. They
        show then how much they want to lead."""
        core = self.quorum
        for voter in core.others:
            self._begin(self._open_way(core.place_of(voter), out.VOTE, VERSIONS_S))

    async def _open_way(self, place: Address, purpose: str, timeout_s: float) -> None:
        shown = ApiVersionsRequest(client_software_name="topicwright", client_software_version=RELEASE)
        await self._peers.send(place, purpose, shown, timeout_s)

    def _spoke(self, address: Address, versions: Mapping[int, int], features: tuple[SupportedFeatureKey, ...]) -> None:
        peer = out.Peer(versions.get(ApiKey.VOTE, -1), priority_of(features))
        if self.quorum.peers.get(address) != peer:
            self._input(lambda now: self.quorum.peer_speaks(now, address, peer))


def _trouble(address: Address, why: str | None) -> None:
    if why is None:
        logger.info("a controller is reached again", address=f"{address[0]}:{address[1]}")
    else:
        logger.warning("a controller cannot be reached", address=f"{address[0]}:{address[1]}", why=why)
