"""Replicas of a quorum in virtual time: one thread, one seed, one heap of pending actions."""

from __future__ import annotations

import errno
import heapq
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from controller.kafka.codec import codec
from controller.kafka.messages import APIS, ZERO_UUID, Message
from controller.kafka.messages import quorum as quorum_messages
from controller.kafka.messages.cluster import ApiVersionsRequest, ApiVersionsResponse, Listener, SupportedFeatureKey
from controller.kafka.messages.quorum import AddRaftVoterRequest, RemoveRaftVoterRequest, UpdateRaftVoterRequest
from controller.quorum.node import FULL_S
from controller.quorum.raft.consensus import Consensus
from controller.quorum.raft.effects import (
    HighWatermark,
    NotLeader,
    Options,
    Peer,
    Reply,
    Role,
    RoleChanged,
    Send,
    StartFlush,
)
from controller.quorum.raft.log import SnapshotId
from controller.quorum.raft.replica import CannotPersistVote
from controller.quorum.raft.voters import Voter, VoterSet
from tests.simulation.quorum.disk import Disk
from tests.simulation.quorum.witness import Witness

CLUSTER = "simulated"
FETCH_TIMEOUT_S, ELECTION_TIMEOUT_S = 1.0, 0.5


_KEYS = {api.request: key for key, api in APIS.items()}


class Replica:
    """A machine with a disk; its process runs, is paused, or is down."""

    def __init__(self, world: World, node_id: int) -> None:
        rng = world.rng
        self.world, self.id = world, node_id
        self.disk = world.new_disk()
        self.rate = rng.choice((1.0, 1.0, 0.97, 1.03))
        self.shift = rng.random() * 1e5
        self.priority = rng.choice((0, 1, 1, 2)) if world.some_claim else 0
        self.shown_priority: int | None = 9 if self.priority else None  # None: a Kafka voter
        self.vote_version = 2 if rng.random() < world.modern else 1
        self.flush_s = 0.001
        self.quorum: Consensus | None = None
        self.incarnation = 0
        self.paused: list[Callable[[], None]] | None = None
        self.watermark = -1
        self._tick_at = 0.0
        self._leads: int | None = None
        self._waiting: list[tuple[int, int, bytes]] = []

    @property
    def voter(self) -> Voter:
        return Voter(self.id, self.disk.directory, (Listener(name="CONTROLLER", host="node", port=self.id),))

    def add_request(self, **fields: Any) -> AddRaftVoterRequest:
        """The AddRaftVoter request for this replica; `fields` replace fields of the request."""
        request = AddRaftVoterRequest(
            cluster_id=CLUSTER,
            timeout_ms=1000,
            voter_id=self.id,
            voter_directory_id=self.disk.directory,
            listeners=self.voter.listeners,
        )
        return msgspec.structs.replace(request, **fields)

    def remove_request(self, directory: bytes | None = None) -> RemoveRaftVoterRequest:
        directory = directory or self.disk.directory
        return RemoveRaftVoterRequest(cluster_id=CLUSTER, voter_id=self.id, voter_directory_id=directory)

    def administer(self, request: Message) -> None:
        """Handle an administrator's request; `World.counts` gets the error code of the response."""
        self.does(lambda quorum: quorum.request(self.now(), ("admin",), request))

    def now(self) -> float:
        return self.world.now * self.rate + self.shift

    def boot(self) -> None:
        world = self.world
        self.incarnation += 1
        bootstrap = tuple(("node", each) for each in world.replicas)
        options = Options(
            cluster_id=CLUSTER,
            me=self.voter,
            bootstrap=bootstrap,
            static=tuple(world.static),
            fetch_timeout_s=FETCH_TIMEOUT_S,
            election_timeout_s=ELECTION_TIMEOUT_S,
            priority=self.priority,
        )
        self.quorum = Consensus(self.disk, options, random.Random(world.rng.random()).random)
        self.watermark, self._tick_at = self.quorum.high_watermark, 0.0
        self._waiting, self._leads = [], None
        self.does(lambda quorum: quorum.start(self.now(), int(world.now * 1000)))

    def kill(self, *, power: bool) -> None:
        if self.quorum is not None:
            self.quorum, self.paused = None, None
            self.disk.crash(self.world.rng, power=power)

    def at_once(self, incarnation: int, what: Callable[[], None]) -> None:
        """Call `what` now, or after SIGCONT of a paused process; never in another incarnation."""
        if self.quorum is None or incarnation != self.incarnation:
            return
        if self.paused is not None:
            self.paused.append(lambda: self.at_once(incarnation, what))
            return
        what()

    def resume(self) -> None:
        waiting, self.paused = self.paused or [], None
        for each in waiting:
            each()

    def does(self, what: Callable[[Consensus], object]) -> None:
        """Give the consensus an input, carry out its effects, and schedule its next tick."""
        quorum = self.quorum
        assert quorum is not None
        self.world.steps += 1
        try:
            what(quorum)
        except OSError:  # as in `QuorumNode`, which retries
            self.world.counts["no room"] += 1
        except CannotPersistVote:
            self.world.counts["no room for a vote"] += 1
            self.kill(power=False)
            self.world.after(0.2 + self.world.rng.random(), lambda: None if self.quorum is not None else self.boot())
            return
        for effect in quorum.take_effects():
            self._carry_out(quorum, effect)
        wake = quorum.next_wake if quorum.full is None else max(quorum.next_wake, self.now() + FULL_S)
        if wake < 1e18:
            at = max((wake - self.shift) / self.rate, self.world.now) + 1e-6
            if not self.world.now <= self._tick_at <= at:
                self._tick_at, incarnation = at, self.incarnation
                self.world.at(at, lambda: self.at_once(incarnation, self._tick))

    def _tick(self) -> None:
        self._tick_at = 0.0
        self.does(lambda quorum: quorum.tick(self.now()))

    def _carry_out(self, quorum: Consensus, effect: object) -> None:
        world, witness = self.world, self.world.witness
        match effect:
            case Send():
                world.send(self, effect)
            case Reply(token, response):
                world.answer(token, response)
            case StartFlush():
                end, incarnation = self.disk.end, self.incarnation
                world.after(self.flush_s * (0.5 + world.rng.random()), lambda: self._flushed(incarnation, end))
            case HighWatermark(offset):
                witness.commits(self.disk, self.watermark, offset, self._leads)
                self.watermark = offset
                self._answer_clients()
            case RoleChanged(role, epoch):
                world.counts[role.value] += 1
                self._waiting, self._leads = [], epoch if role is Role.LEADER else None
                if role is Role.LEADER:
                    for each in world.replicas.values():
                        world.shows(self, each)
                    witness.leads(self.id, self.disk.directory, epoch)
                if role is Role.FOLLOWER and world.applies_s:
                    quorum.wants_leadership = False
                    applied_s, incarnation = world.applies_s * world.rng.random(), self.incarnation
                    world.after(applied_s, lambda: self.at_once(incarnation, self._applied))

    def _applied(self) -> None:
        if self.quorum is not None:
            self.quorum.wants_leadership = True

    def _flushed(self, incarnation: int, end: int) -> None:
        if incarnation != self.incarnation or self.quorum is None:
            return
        if self.disk.is_full and self.world.rng.random() < 0.5:
            full = OSError(errno.ENOSPC, "planted")
            self.at_once(incarnation, lambda: self.does(lambda quorum: quorum.flush_failed(self.now(), full)))
            return
        self.disk.flush_to(end)  # by the kernel, even if the process is paused
        self.at_once(incarnation, lambda: self.does(lambda quorum: quorum.flushed(self.now())))

    def append(self, value: bytes) -> None:
        quorum = self.quorum
        assert quorum is not None
        try:
            self.does(lambda q: self._waiting.append((self._appended(q, value), q.epoch, value)))
        except NotLeader:
            return

    def _appended(self, quorum: Consensus, value: bytes) -> int:
        offset = quorum.append(self.now(), 0, [(None, value)], for_observers=sum(value) % 2 == 0)
        self.world.witness.begins(value, self.world.now)
        return offset

    def _answer_clients(self) -> None:
        while self._waiting and self._waiting[0][0] < self.watermark:
            offset, _, value = self._waiting.pop(0)
            self.world.witness.acknowledges(offset, value)
            self.world.witness.answers(value, self.world.now, self.disk.topic_at(offset))


class World:
    """The machines, the network between them, and the pending actions."""

    def __init__(self, seed: int, count: int | None = None, is_dynamic: bool | None = None) -> None:
        """`count` voters, with kraft.version 1 if `is_dynamic`, else 0; by default both are drawn from the seed."""
        rng = self.rng = random.Random(seed)
        self.now, self.steps = 0.0, 0
        self._next: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self.counts: Counter[str] = Counter()
        self.some_claim = rng.random() < 0.6
        self.modern = rng.choice((1.0, 1.0, 1.0, 0.5, 0.0))
        self.applies_s = (0.0, 0.05, 1.0)[seed % 3] if count is None else 0.0
        """Maximum time until a follower has applied the log; before that it requests no leadership transfer."""
        self.loss, self.doubling, self.latency_s = 0.0, 0.0, 0.002
        self.cut: set[tuple[int, int]] = set()
        self._calls: dict[int, tuple[Replica, int, int]] = {}
        observers = rng.choice((0, 0, 1, 2)) if count is None else 0
        count = count or rng.choice((1, 2, 3, 3, 3, 3, 4, 5, 5))
        self.is_encoded = rng.random() < 0.1
        self.first_ids = tuple(range(1, count + 1))
        self.witness = Witness()
        self.replicas = {each: Replica(self, each) for each in range(1, count + 1 + observers)}
        voters = VoterSet.of(self.replicas[each].voter for each in self.first_ids)
        self.witness.first_voters = voters
        self.is_dynamic = rng.random() < 0.8 if is_dynamic is None else is_dynamic
        named = (msgspec.structs.replace(each, directory=ZERO_UUID) for each in voters)
        self.static = VoterSet() if self.is_dynamic else VoterSet.of(named)
        for node_id in self.first_ids if self.is_dynamic else ():
            self.replicas[node_id].disk.clean(0, 0, 1, voters)

    # --- time

    def at(self, time: float, what: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._next, (time, self._number, what))

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        self.at(self.now + seconds, what)

    def run_until(self, time: float, done: Callable[[], bool] = lambda: False) -> None:
        steps = self.steps
        while self._next and self._next[0][0] <= time:
            self.now, _, what = heapq.heappop(self._next)
            what()
            if self.steps - steps > 200:
                steps = self.steps
                if done():
                    return
            assert self.steps < 1_000_000, "more than a million steps"
        self.now = time

    # --- disks and the network

    def new_disk(self) -> Disk:
        directory = self.rng.randbytes(16)
        disk = Disk(directory, self.witness.remembers)
        disk.on_truncate = partial(self.truncated, disk)
        disk.on_install = partial(self.installed, disk)
        self.witness.disks[directory] = disk
        return disk

    def replica_on(self, disk: Disk) -> Replica:
        return next(each for each in self.replicas.values() if each.disk is disk)

    def truncated(self, disk: Disk, was: int, end: int) -> None:
        self.counts["truncated"] += 1
        self.witness.truncates(end, self.replica_on(disk).watermark)

    def installed(self, disk: Disk, snapshot: SnapshotId) -> None:
        self.counts["snapshot"] += 1

    def send(self, sender: Replica, send: Send) -> None:
        """Send a request over a connection that may be cut, to a process that may be down."""
        self._number += 1
        call, incarnation = self._number, sender.incarnation
        self._calls[call] = sender, incarnation, send.token
        receiver = self.replicas.get(send.address[1])
        self.after(send.timeout_s, lambda: self._resolve(call, None))
        is_new = isinstance(send.request, UpdateRaftVoterRequest)
        if receiver is None or receiver.quorum is None or (is_new and sender.vote_version < 2):
            self.after(self._latency(), lambda: self._resolve(call, None))
            return
        if isinstance(send.request, quorum_messages.VoteRequest) and receiver.vote_version < 2:
            self.shows(sender, receiver)
            if send.request.topics[0].partitions[0].pre_vote:
                self.after(self._latency(), lambda: self._resolve(call, None))
                return
        if (sender.id, receiver.id) in self.cut or self.rng.random() < self.loss:
            return
        for _ in range(1 + (self.rng.random() < self.doubling)):
            there = receiver.incarnation
            deliver = partial(self._deliver, receiver, call, sender.id, send.request)
            self.after(self._latency(), partial(receiver.at_once, there, deliver))

    def _latency(self) -> float:
        return self.latency_s * (0.2 + self.rng.expovariate(1.0))

    def shows(self, sender: Replica, receiver: Replica) -> None:
        """After a new connection, the receiver reports its vote version and priority to the sender."""
        place, incarnation = ("node", receiver.id), sender.incarnation

        def spoke(quorum: Consensus) -> None:
            quorum.peers[place] = Peer(receiver.vote_version, receiver.shown_priority)

        self.after(self._latency(), lambda: sender.at_once(incarnation, lambda: sender.does(spoke)))

    def _deliver(self, receiver: Replica, call: int, sender_id: int, request: Any) -> None:
        self._number += 1
        version = self._version(receiver, request)
        token = (call, sender_id, receiver.id, self._number, _KEYS[type(request)], version)
        if self.is_encoded:
            frame = codec.encode_request(token[4], version, 0, None, request)[4:]
            request = codec.read_request(token[4], version, frame, codec.parse_header(frame).body_offset)[0]
        if isinstance(request, ApiVersionsRequest):
            feature = SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
            self.answer(token, ApiVersionsResponse(supported_features=(feature,)))
            return
        receiver.does(lambda quorum: quorum.request(receiver.now(), token, request))

    def _version(self, receiver: Replica, request: Message) -> int:
        """The newest version; for old peers of a static quorum the oldest, without directory ids and endpoints."""
        if isinstance(request, quorum_messages.VoteRequest):
            return receiver.vote_version
        api = APIS[_KEYS[type(request)]]
        return api.max_version if receiver.vote_version > 1 or self.is_dynamic else api.min_version

    def answer(self, token: Any, response: Any) -> None:
        if token[0] == "admin":
            self.counts[f"{type(response).__name__} {response.error_code}"] += 1
            return
        call, sender_id, receiver_id, _, key, version = token
        if self.is_encoded:
            response = codec.decode_response(key, version, codec.encode_response(key, version, 0, response)[4:])[1]
        if (receiver_id, sender_id) not in self.cut and self.rng.random() >= self.loss:
            self.after(self._latency(), lambda: self._resolve(call, response))

    def _resolve(self, call: int, response: Any) -> None:
        found = self._calls.get(call)
        if found is not None:
            sender, incarnation, _ = found
            sender.at_once(incarnation, lambda: self._resolved(call, response))

    def _resolved(self, call: int, response: Any) -> None:
        found = self._calls.pop(call, None)
        if found is None:
            return
        sender, _, token = found
        quorum = sender.quorum
        assert quorum is not None
        is_live = token in quorum._sent
        if (
            is_live
            and isinstance(response, quorum_messages.FetchResponse)
            and quorum.role is Role.FOLLOWER
            and response.responses
        ):
            part = response.responses[0].partitions[0]
            if part.current_leader.leader_epoch == quorum.epoch and not part.error_code:
                self.witness.shown(part.high_watermark, quorum.high_watermark)
        sender.does(lambda quorum: quorum.reply(sender.now(), token, response))

    # --- leadership

    @property
    def leader(self) -> Replica | None:
        """The leader of the newest epoch that has one."""
        leaders = [
            each
            for each in self.replicas.values()
            if each.quorum is not None and each.paused is None and each.quorum.role is Role.LEADER
        ]
        return max(leaders, key=lambda each: each.quorum.epoch if each.quorum else 0, default=None)
