"""One node of a quorum: runs the consensus of `raft` with real time, the log's files and the network.

`serving.quorum_member` creates the node; the KRaft APIs pass it Raft requests and append records. The consensus runs on
the event loop. Votes and truncations block the loop, as they must be durable first; flushes run in a thread.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import structlog

from controller.kafka.connections import Address, Security
from controller.kafka.messages import ApiKey, Message
from controller.kafka.messages.cluster import SupportedFeatureKey
from controller.kafka.messages.quorum import VoteRequest
from controller.quorum.features import priority_of
from controller.quorum.log.batches import Pair
from controller.quorum.peers import API_VERSIONS, Peers
from controller.quorum.raft import effects as out
from controller.quorum.raft.consensus import Consensus
from controller.quorum.raft.effects import PRE_VOTE_SINCE, NotLeader, Options, Role
from controller.quorum.raft.log import NOBODY, QuorumLog
from controller.quorum.raft.replica import is_full

T = TypeVar("T")

logger = structlog.get_logger("topicwright.quorum")

VERSIONS_S: Final = 1.0
"""Timeout for a peer to report the versions that it supports."""
FULL_S: Final = 0.2
"""Seconds until the next attempt while the disk is full."""


class QuorumNode:
    """A voter or an observer. The future `ended` is done when the node cannot continue: because of a disk error (a full
    disk is retried), CommittedLost, or a bug.

    The callbacks run on the loop, in order. `on_role` reports the role, epoch and leader. On the leader, `on_fetched`
    reports that a replica fetches.
    """

    def __init__(
        self,
        log: QuorumLog,
        options: Options,
        chance: Callable[[], float],
        now_ms: Callable[[], int],
        security: Security,
    ) -> None:
        self.quorum = Consensus(log, options, chance)
        self.on_fetched: Callable[[int], None] = lambda replica: None
        self.on_role: Callable[[out.RoleChanged], None] = lambda role: None
        self._log, self._now_ms = log, now_ms
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._peers = Peers(security, self._peer_reported, _log_failure)
        self.send = self._peers.send
        self._tasks: set[asyncio.Task[None]] = set()
        self._replies: set[asyncio.Future[Message]] = set()
        self._alarm: asyncio.TimerHandle | None = None
        self._ticked_at = self._loop.time()
        self._changed = asyncio.Event()

    def start(self) -> None:
        self._call(lambda now: self.quorum.start(now, self._now_ms()))

    async def stop(self) -> None:
        """Stop immediately, as in a crash. To transfer leadership, call `hand_over` before."""
        if not self.ended.done():
            self.ended.set_result(None)
        if self._alarm is not None:
            self._alarm.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._peers.close()
        for future in self._replies:
            future.cancel()
        self._notify()

    async def request(self, request: Message) -> Message:
        """Respond to a request of a controller, a broker or a tool. A fetch may wait."""
        future: asyncio.Future[Message] = self._loop.create_future()
        self._replies.add(future)
        try:
            self._call(lambda now: self.quorum.request(now, future, request))
            return await future
        finally:
            self._replies.discard(future)

    async def until(self, condition: Callable[[Consensus], bool]) -> None:
        """Wait for a condition. It is checked whenever role, leader or high watermark change."""
        while not condition(self.quorum):
            await self._changed.wait()

    def append(self, records: Sequence[Pair], *, for_observers: bool = True) -> int:
        """Append a batch as the leader; returns the offset of its last record. Raises NotLeader and OSError."""
        return self._call(lambda now: self.quorum.append(now, self._now_ms(), records, for_observers=for_observers))

    async def committed(self, offset: int) -> None:
        """Wait until the records just appended, up to that offset, are committed. Raises NotLeader if leadership is
        lost first; the records may then be committed or not."""
        epoch = self.quorum.epoch
        await self.until(
            lambda quorum: (
                quorum.high_watermark > offset
                or quorum.epoch != epoch
                or quorum.role is not Role.LEADER
                or self.ended.done()
            )
        )
        if self.quorum.epoch != epoch or self.quorum.high_watermark <= offset:
            raise NotLeader

    def set_can_lead(self, can_lead: bool) -> None:
        self._call(lambda now: self.quorum.set_can_lead(now, can_lead))

    async def raise_kraft_version(self) -> None:
        """As the leader, raise kraft.version from 0 to 1, and await the commit. Raises NotLeader, OSError, Refused."""
        self._call(self.quorum.raise_kraft_version)
        await self.committed(self._log.end - 1)

    async def hand_over(self, at_most_s: float) -> None:
        """Commit all appended records, resign, and wait until another node leads: in all at most `at_most_s`."""
        self.quorum.wants_leadership = False
        self._call(lambda now: self.quorum.hand_over(now, at_most_s))
        is_led = self.until(lambda quorum: quorum.leader_id not in (NOBODY, quorum.me.id))
        with suppress(TimeoutError):
            await asyncio.wait_for(is_led, at_most_s)

    # --- inputs and effects of the consensus

    def _call(self, method: Callable[[float], T]) -> T:
        if self.ended.done():
            raise NotLeader
        try:
            return method(self._loop.time())
        except (NotLeader, out.Refused):
            raise
        except Exception as failure:  # a failed disk, a lost log or a bug: this node sends nothing more
            if not is_full(failure):
                self._fail(failure)
            raise
        finally:
            if not self.ended.done():
                for effect in self.quorum.take_effects():
                    self._perform(effect)
                self._set_alarm()

    def _input(self, method: Callable[[float], None]) -> None:
        """Pass on an input for which no caller waits. Errors are dropped, because `_call` has handled them."""
        if not self.ended.done():
            with suppress(Exception):
                self._call(method)

    def _fail(self, failure: Exception) -> None:
        if not self.ended.done():
            logger.error("this controller cannot continue in its quorum", why=f"{type(failure).__name__}: {failure}")
            self.ended.set_exception(failure)
            self._notify()

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        # Fetches that fail are repeated immediately. They must not postpone the next attempt.
        soonest = self._ticked_at + FULL_S if self.quorum.full else 0.0
        self._alarm = self._loop.call_at(max(self.quorum.next_wake, soonest), self._tick)

    def _tick(self) -> None:
        self._ticked_at = self._loop.time()
        self._input(self.quorum.tick)

    def _perform(self, effect: out.Effect) -> None:
        match effect:
            case out.Send():
                self._start_task(self._send(effect))
            case out.Reply(future, response):
                if not future.done():
                    future.set_result(response)
            case out.StartFlush():
                self._start_task(self._flush())
            case out.HighWatermark():
                self._notify()
            case out.Fetched(replica):
                self.on_fetched(replica)
            case out.RoleChanged():
                self.on_role(effect)
                self._notify()
                if effect.role in (out.Role.FOLLOWER, out.Role.LEADER):
                    self._connect_to_voters()
            case out.Warned(message):
                logger.warning("quorum warning", why=message)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _start_task(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _flush(self) -> None:
        try:
            await self._loop.run_in_executor(None, self._log.flush)
        except OSError as failure:
            self._input(lambda now, failure=failure: self.quorum.flush_failed(now, failure))  # type: ignore[misc]
            return
        self._input(self.quorum.flushed)

    async def _send(self, send: out.Send) -> None:
        response = None
        if await self._supports(send):
            response = await self.send(send.address, send.request, send.timeout_s)
        self._input(lambda now: self.quorum.reply(now, send.token, response))

    async def _supports(self, send: out.Send) -> bool:
        """True if the peer supports the request. A peer without pre-votes (KIP-996) would read a pre-vote as a vote."""
        request, peers = send.request, self.quorum.peers
        if not (isinstance(request, VoteRequest) and request.topics[0].partitions[0].pre_vote):
            return True
        if send.address not in peers:
            await self.send(send.address, API_VERSIONS, min(send.timeout_s, VERSIONS_S))
        return send.address in peers and peers[send.address].vote_version >= PRE_VOTE_SINCE

    async def topicwright_voters(self) -> list[Address]:
        """The addresses of the other Topicwright voters that can be reached."""
        core = self.quorum
        addresses = [core.address_of(voter) for voter in core.others]
        for address in addresses:
            if address not in core.peers:
                await self.send(address, API_VERSIONS, VERSIONS_S)
        return [each for each in addresses if each in core.peers and core.peers[each].priority is not None]

    def _connect_to_voters(self) -> None:
        """Connect to the other voters before an election needs their votes: a leadership transfer fails if the leader
        appends before the votes arrive. Voters also report their leader priority."""
        core = self.quorum
        for voter in core.others:
            self._start_task(self.send(core.address_of(voter), API_VERSIONS, VERSIONS_S))

    def _peer_reported(
        self, address: Address, versions: Mapping[int, int], features: tuple[SupportedFeatureKey, ...]
    ) -> None:
        self.quorum.peers[address] = out.Peer(versions.get(ApiKey.VOTE, -1), priority_of(features))


def _log_failure(address: Address, reason: str | None) -> None:
    if reason is None:
        logger.info("a controller can be reached again", address=f"{address[0]}:{address[1]}")
    else:
        logger.warning("a controller cannot be reached", address=f"{address[0]}:{address[1]}", why=reason)
