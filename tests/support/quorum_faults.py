"""What can happen to the leader of a quorum, and what must hold after it.

A full disk is a limit of the leader's process on the size of files (RLIMIT_FSIZE), which needs no rights: no write may
make a file longer. The network is cut for everybody, brokers too.
"""

from __future__ import annotations

import resource
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.support.churn import QUIET, Churn, Reading
from tests.support.processes import Process
from tests.support.quorum_cluster import QuorumCluster
from tests.support.quorum_load import Creates
from tests.support.quorum_logs import assert_alike, assert_snapshots_say_the_same
from tests.support.real_brokers import until

HELD_S: Final[Mapping[str, float]] = {"stop": 8.0, "cut": 6.0, "cut-in": 6.0, "cut-out": 6.0}
"""How long a fault stays: three fetch timeouts or more; a leader without a majority resigns after one and a half. The
others stay until a create works. Not these: brokers wait for 30 s for what a silent controller has not answered."""
END_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds from a fault of the leader until another led and until a create worked; and, from when the fault was
    mended, until the wanted leader led and all voters kept up."""

    fault: str
    led_s: float
    works_s: float
    back_s: float


@dataclass(slots=True)
class Load:
    """What goes on meanwhile."""

    creates: Creates
    churn: Churn
    reading: Reading

    def check(self) -> None:
        """Nothing that was acknowledged is lost."""
        self.reading.catches_up(self.churn)
        assert self.churn.failed == []
        self.creates.check()


@contextmanager
def load_on(cluster: QuorumCluster, topic: str = "kept") -> Iterator[Load]:
    """Creates, a producer with acks=all and a group that reads along, until the end of the block; and then everything
    that was acknowledged is read once more."""
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
def _terminated(cluster: QuorumCluster, leader: int) -> Iterator[None]:
    process = _process(cluster, leader)
    process.popen.terminate()
    yield
    code = process.wait(END_S)
    process.kill()
    assert code in (0, 143), f"SIGTERM: ended with {code}\n{process.output[-4000:]}"
    cluster.start(leader)


@contextmanager
def _cut(into: bool, out_of: bool, cluster: QuorumCluster, leader: int) -> Iterator[None]:
    assert cluster.network is not None, "its voters are reached over a network"
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
    "term": _terminated,
    "cut": partial(_cut, True, True),
    "cut-in": partial(_cut, True, False),
    "cut-out": partial(_cut, False, True),
    "disk": _full,
}
"""By name; each is done to the leader, and mended at the end of its block."""


def one_round(cluster: QuorumCluster, fault: str, load: Load) -> Round:
    """A fault of the leader, and all that must hold after it."""
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
    """All copies of the metadata log are the same bytes, and every snapshot says what the log says; how many bytes, and
    how many snapshots."""
    watermark = cluster.wait_ready().high_watermark
    partitions = {node_id: each.metadata for node_id, each in cluster.members.items()}
    size = assert_alike(partitions, watermark)
    whole = cluster.quorum.controllers[0].metadata  # ours lets go of what two snapshots stand for, Kafka's of 100 MB
    return size, assert_snapshots_say_the_same(partitions.values(), whole)


def _process(cluster: QuorumCluster, node_id: int) -> Process:
    process = cluster.members[node_id].process
    assert process is not None, f"voter {node_id} runs"
    return process


def _start_if_it_ends(cluster: QuorumCluster, node_id: int, within_s: float) -> None:
    """A process may end itself over what happened to it; whoever looks after it starts it again."""
    deadline = time.monotonic() + within_s
    process = _process(cluster, node_id)
    while time.monotonic() < deadline:
        if process.popen.poll() is not None:
            process.kill()
            cluster.start(node_id)
            return
        time.sleep(0.05)
