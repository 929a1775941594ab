"""A cluster whose controllers can be stopped and restarted: three voters, of Kafka and Topicwright, and brokers."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from controller.kafka.codec import codec
from controller.kafka.messages import ApiKey
from controller.kafka.messages import quorum as quorum_messages
from tests.support import tools
from tests.support.churn import QUIET
from tests.support.kafka_quorum import Controller, KafkaQuorum, kafka_quorum
from tests.support.network import Network
from tests.support.ports import free_ports
from tests.support.real_brokers import RealBroker, until, write_properties
from tests.support.voter import VOTER, Voter, voter
from tests.support.wire import Wire

VOTERS = 3
DESCRIBE_VERSION = 1
REPLY_S = 10.0
"""Timeout, because a stopped or ending controller does not respond."""


Member = Controller | Voter


@dataclass(slots=True)
class QuorumCluster:
    """Voters, of which `ours` are Topicwright's, and brokers by id."""

    quorum: KafkaQuorum
    network: Network | None
    ours: tuple[Voter, ...] = ()
    leads: bool = False
    """True if the first Topicwright voter must lead."""
    brokers: dict[int, RealBroker] = field(default_factory=dict)

    @property
    def members(self) -> dict[int, Member]:
        """All voters, by node id."""
        every: tuple[Member, ...] = (*self.quorum.controllers, *self.ours)
        return {each.node_id: each for each in every}

    @property
    def bootstrap(self) -> str:
        """bootstrap.servers: all brokers."""
        return ",".join(f"127.0.0.1:{each.port}" for each in self.brokers.values())

    def start(self, node_id: int) -> None:
        member = self.members[node_id]
        if isinstance(member, Controller):
            self.quorum.start(member)
        else:
            member.start()

    def described_by_leader(self, *, but: int | None = None) -> quorum_messages.DescribeQuorumPartitionResult | None:
        """The quorum as described by its leader, or None. Skips node `but`, which may still believe to lead."""
        for node_id, member in self.members.items():
            if node_id != but and (shown := describe(member.own_address)) is not None and shown.leader_id == node_id:
                return shown
        return None

    def ready(self, *, is_busy: bool = False) -> quorum_messages.DescribeQuorumPartitionResult | None:
        """The quorum if the wanted voter leads and all voters are caught up; else None. If `is_busy`, voters may lag,
        but must have caught up within the last two seconds."""
        shown = self.described_by_leader()
        if (
            shown is None
            or len(shown.current_voters) != VOTERS
            or (self.leads and shown.leader_id != self.ours[0].node_id)
        ):
            return None
        had_all = {each.replica_id: each.last_caught_up_timestamp for each in shown.current_voters}
        behind_ms = had_all[shown.leader_id] - min(had_all.values())
        behind = 0 if is_busy else max(shown.high_watermark - each.log_end_offset for each in shown.current_voters)
        return shown if shown.high_watermark > 0 and behind <= 0 and behind_ms < 2_000 else None

    def wait_ready(
        self, within_s: float = 240, *, is_busy: bool = False
    ) -> quorum_messages.DescribeQuorumPartitionResult:
        """Wait for `ready`."""
        try:
            what = "the quorum has its leader, and all voters keep up"
            found = until(lambda: self.ready(is_busy=is_busy), within_s, what)
        except AssertionError as error:
            error.add_note(f"its leader shows {self.described_by_leader()}")
            for one in self.ours:
                error.add_note(f"{one.node_id} printed\n{one.process.output[-4000:] if one.process else None}")
            raise
        assert found is not None
        return found


def describe(address: str) -> quorum_messages.DescribeQuorumPartitionResult | None:
    """A controller's response to DescribeQuorum; None if it does not lead or respond."""
    partition = quorum_messages.DescribeQuorumPartition()
    request = quorum_messages.DescribeQuorumRequest(
        topics=(quorum_messages.DescribeQuorumTopic(topic_name="__cluster_metadata", partitions=(partition,)),)
    )
    try:
        with Wire(address, timeout_s=REPLY_S) as wire:
            wire.send_bytes(codec.encode_request(ApiKey.DESCRIBE_QUORUM, DESCRIBE_VERSION, 1, "test", request))
            answer = codec.decode_response(ApiKey.DESCRIBE_QUORUM, DESCRIBE_VERSION, wire.receive_frame())[1]
    except (OSError, TimeoutError):
        return None
    assert isinstance(answer, quorum_messages.DescribeQuorumResponse)
    if answer.error_code or not answer.topics or answer.topics[0].partitions[0].error_code:
        return None
    return answer.topics[0].partitions[0]


@contextmanager
def quorum_cluster(
    folder: Path,
    *,
    ours: int,
    leads: bool = False,
    version: str = tools.KAFKA_SERVER,
    brokers: int = 3,
    heap: str = "256m",
    settings: Mapping[str, str] | None = None,
    our_settings: Sequence[str] = (),
    network: Network | None = None,
    release: str | None = None,
) -> Iterator[QuorumCluster]:
    """Run three voters, `ours` of them Topicwright's, and brokers until the end of the block; all are ready at its
    start. `settings` are for all Kafka nodes; the features are those of `release`, by default of the version."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = settings or {}
    with ExitStack() as ending:
        quorum = ending.enter_context(
            kafka_quorum(
                folder, count=VOTERS - ours, version=version, settings=settings, network=network, release=release
            )
        )
        cluster = QuorumCluster(quorum, network, leads=leads)
        for number in range(ours):
            wish = [f"quorum.priority={ours - number}"] if leads else []
            node_id, place = VOTER + number, folder / f"ours{number}"
            one = voter(quorum, place, *our_settings, *wish, node_id=node_id, network=network)
            cluster.ours += (ending.enter_context(one),)
            cluster.ours[-1].start()
            cluster.ours[-1].votes()
        cluster.wait_ready()
        ending.callback(_kill, cluster.brokers)
        for number, port in enumerate(free_ports(brokers), start=1):
            reached = ",".join(each.address for each in cluster.members.values())
            own = {"controller.quorum.bootstrap.servers": reached, **settings}
            broker = RealBroker(number, port, folder / f"broker{number}", version, own, heap=heap)
            cluster.brokers[number] = broker
            write_properties(broker, "")
            broker.start()
        until(lambda: not brokers or _known(cluster) == set(cluster.brokers), 300, "all brokers are known")
        yield cluster


def _known(cluster: QuorumCluster) -> set[int]:
    """The brokers that one broker knows, if all brokers listen; else none."""
    if not all(each.listens() for each in cluster.brokers.values()):
        return set()
    with suppress(KafkaException):
        return set(AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET}).list_topics(timeout=10).brokers)
    return set()


def _kill(brokers: Mapping[int, RealBroker]) -> None:
    for broker in brokers.values():
        if broker.process is not None:
            broker.kill()
