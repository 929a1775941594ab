"""Faults of a quorum's leader and the checks after them, while topics are created through brokers.

A full disk is simulated by a limit of the leader's process on the size of files (RLIMIT_FSIZE), which needs no
privileges: no write can extend a file. A cut network affects all nodes, also brokers.
"""

import resource
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Final, Self
from uuid import uuid4

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.reference.cases import topic
from tests.support.churn import QUIET, Churn, Reading
from tests.support.processes import Process
from tests.support.quorum_cluster import QuorumCluster
from tests.support.quorum_logs import assert_alike, assert_snapshots_say_the_same
from tests.support.real_brokers import until
from tests.support.wire import Wire

REPLY_S = 5.0
"""Timeout of a create; after it, the client uses the next broker."""
PAUSE_S = 0.1
VERSION = 7


@dataclass(frozen=True, slots=True)
class Made:
    """A successful create, with its start and end."""

    name: str
    began_s: float
    ended_s: float


@dataclass(slots=True)
class Creates:
    """Creates topics until the block ends, each through the next broker; creates in `unanswered` may have succeeded."""

    addresses: Sequence[str]
    factor: int = 3
    made: list[Made] = field(default_factory=list)
    refused: Counter[int] = field(default_factory=Counter)
    unanswered: int = 0
    _kept: int = 0
    _checked: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        assert self._thread is not None
        self._thread.join(60)

    def works_after(self, at_s: float, within_s: float = 240) -> float:
        """Seconds from `at_s` until a create that began after it succeeded."""

        def first() -> Made | None:
            return next((each for each in list(self.made) if each.began_s >= at_s), None)

        found = until(first, within_s, "a create works")
        assert found is not None
        return found.ended_s - at_s

    def check(self) -> None:
        """Check that all topics created since the check before the last exist. Deletes those of before the last."""
        count = len(self.made)
        names = [each.name for each in self.made[self._kept : count]]
        with Wire(self.addresses[0]) as wire:
            until(lambda: not _missing(wire, names), 60, f"{len(names)} topics whose creates were answered are there")
            old = [each.name for each in self.made[self._kept : self._checked]]
            deleted = wire.call("DeleteTopics", 5, topic_names=old, timeout_ms=30_000)
        assert {each["error_code"] for each in deleted["responses"]} <= {0}, deleted
        self._kept, self._checked = self._checked, count

    def _run(self) -> None:
        wires: dict[str, Wire] = {}
        prefix, number = f"load-{uuid4().hex[:8]}", 0
        while not self._ended.is_set():
            address = self.addresses[number % len(self.addresses)]
            name = f"{prefix}-{number}"
            number += 1
            began = time.monotonic()
            try:
                wire = wires.get(address) or wires.setdefault(address, Wire(address, timeout_s=REPLY_S))
                code = _create(wire, name, self.factor)
            except (OSError, TimeoutError):
                self.unanswered += 1
                if address in wires:
                    wires.pop(address).close()
                continue
            if code:
                self.refused[code] += 1
            else:
                self.made.append(Made(name, began, time.monotonic()))
            self._ended.wait(PAUSE_S)
        for wire in wires.values():
            wire.close()


def _create(wire: Wire, name: str, factor: int) -> int:
    topics = [topic(name, 1, factor)]
    answer = wire.call("CreateTopics", VERSION, topics=topics, timeout_ms=30_000, validate_only=False)
    code: int = answer["topics"][0]["error_code"]
    return code


def _missing(wire: Wire, names: Sequence[str]) -> list[str]:
    topics = [{"name": each} for each in names]
    answer = wire.call("Metadata", 8, topics=topics, allow_auto_topic_creation=False)
    return [each["name"] for each in answer["topics"] if each["error_code"]]


HELD_S: Final[Mapping[str, float]] = {"stop": 8.0, "cut": 6.0, "cut-in": 6.0, "cut-out": 6.0}
"""Duration of these faults: at least three fetch timeouts; a leader without a majority resigns after one and a half.
The other faults last until a create works. These do not, because brokers wait 30 s for a silent controller."""
END_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds from a fault of the leader until another voter led (`led_s`) and a create worked (`works_s`), and from
    its end until the wanted voter led and all were caught up (`back_s`)."""

    fault: str
    led_s: float
    works_s: float
    back_s: float


@dataclass(slots=True)
class Load:
    creates: Creates
    churn: Churn
    reading: Reading

    def check(self) -> None:
        """Check that no acknowledged record or topic is lost."""
        self.reading.catches_up(self.churn)
        assert self.churn.failed == []
        self.creates.check()


@contextmanager
def load_on(cluster: QuorumCluster, topic: str = "kept") -> Iterator[Load]:
    """Run creates, a producer with acks=all and a consumer group until the end of the block; then read all acknowledged
    records once more."""
    partitions, brokers = 3, len(cluster.brokers)
    new = NewTopic(topic, partitions, brokers, config={"min.insync.replicas": str(brokers // 2 + 1)})
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    admin.create_topics([new], request_timeout=30)[topic].result(40)
    with Reading(cluster.bootstrap, topic) as reading, Churn(cluster.bootstrap, topic, partitions) as churn:
        churn.goes_on()
        reading.has_begun()
        with Creates(cluster.bootstrap.split(","), brokers) as creates:
            yield Load(creates, churn, reading)
    assert churn.lost() == {}


@contextmanager
def _killed(cluster: QuorumCluster, leader: int) -> Iterator[None]:
    _process(cluster, leader).kill()
    yield
    cluster.start(leader)


@contextmanager
def _stopped(cluster: QuorumCluster, leader: int) -> Iterator[None]:
    process = _process(cluster, leader)
    process.popen.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.popen.send_signal(signal.SIGCONT)
    _start_if_it_ends(cluster, leader, 1.0)


@contextmanager
def _terminate_leader(cluster: QuorumCluster, leader: int) -> Iterator[None]:
    process = _process(cluster, leader)
    process.popen.terminate()
    yield
    code = process.wait(END_S)
    process.kill()
    assert code in (0, 143), f"SIGTERM: ended with {code}\n{process.output[-4000:]}"
    cluster.start(leader)


@contextmanager
def _cut(into: bool, out_of: bool, cluster: QuorumCluster, leader: int) -> Iterator[None]:
    assert cluster.network is not None, "the cluster has no network to cut"
    cluster.network.cut(leader, into=into, out_of=out_of)
    try:
        yield
    finally:
        cluster.network.mend(leader)


@contextmanager
def _full(cluster: QuorumCluster, leader: int) -> Iterator[None]:
    process = _process(cluster, leader)
    before = resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    yield
    if process.popen.poll() is None:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, before)
    _start_if_it_ends(cluster, leader, 5.0)


FAULTS: Final[Mapping[str, Callable[[QuorumCluster, int], AbstractContextManager[None]]]] = {
    "kill": _killed,
    "stop": _stopped,
    "term": _terminate_leader,
    "cut": partial(_cut, True, True),
    "cut-in": partial(_cut, True, False),
    "cut-out": partial(_cut, False, True),
    "disk": _full,
}
"""Fault name → context manager that injects it into the leader and ends it with the block."""


def one_round(cluster: QuorumCluster, fault: str, load: Load) -> Round:
    """Inject a fault into the leader and check the quorum after it."""
    leader = cluster.wait_ready(is_busy=True).leader_id
    at = time.monotonic()
    with FAULTS[fault](cluster, leader):
        until(lambda: cluster.described_by_leader(but=leader) is not None, 300, f"after {fault} another voter leads")
        led_s = time.monotonic() - at
        if fault not in HELD_S:
            load.creates.works_after(at)
        time.sleep(max(0.0, at + HELD_S.get(fault, 0.0) - time.monotonic()))
    mended = time.monotonic()
    cluster.wait_ready(is_busy=True)
    back_s = time.monotonic() - mended
    works_s = load.creates.works_after(at)
    load.check()
    return Round(fault, led_s, works_s, back_s)


def check_logs(cluster: QuorumCluster) -> tuple[int, int]:
    """Check that all copies of the metadata log have equal bytes and that each snapshot equals the log; returns the
    numbers of bytes and of snapshots."""
    watermark = cluster.wait_ready().high_watermark
    partitions = {node_id: each.metadata for node_id, each in cluster.members.items()}
    size = assert_alike(partitions, watermark)
    whole = cluster.quorum.controllers[0].metadata  # complete: Kafka retains 100 MB before a snapshot
    return size, assert_snapshots_say_the_same(partitions.values(), whole)


def _process(cluster: QuorumCluster, node_id: int) -> Process:
    process = cluster.members[node_id].process
    assert process is not None, f"voter {node_id} was never started"
    return process


def _start_if_it_ends(cluster: QuorumCluster, node_id: int, within_s: float) -> None:
    """Start a process again if it ends because of the fault, as a supervisor does."""
    deadline = time.monotonic() + within_s
    process = _process(cluster, node_id)
    while time.monotonic() < deadline:
        if process.popen.poll() is not None:
            process.kill()
            cluster.start(node_id)
            return
        time.sleep(0.05)
