"""Commands and records for tests of partitions, without Kafka."""

from typing import Any

from controller.machine.commands.commands import AnyCommand, CreateTopic, RegisterBroker, UnfenceBroker
from controller.machine.decide import decide
from controller.stream.log.partition import PartitionState
from events.catalog import EVENT_VERSION, Cause, SettingsChanged
from events.codec import encode_event
from events.logs.events_topic import Fence, encode_record
from events.names import BrokerId, RequestId, TopicId, TopicName

BORN_MS = 1_700_000_000_000
SETTINGS = (("num.partitions", "1"),)


def create(name: str, at_ms: int = BORN_MS, **fields: Any) -> CreateTopic:
    """A create of two partitions; the request id is derived from the name."""
    fields = {"num_partitions": 2, "replication_factor": 1, "timeout_ms": 1000, **fields}
    topic_id = TopicId(name.encode().rjust(16, b".")[-16:])
    return CreateTopic(
        request_id=RequestId(f"r-{name}"), at_ms=at_ms, topic=TopicName(name), topic_id=topic_id, **fields
    )


def joined(broker_id: int) -> list[AnyCommand]:
    """The commands that register a broker and unfence it."""
    stamps: dict[str, Any] = {"request_id": RequestId("b"), "at_ms": BORN_MS, "broker_id": BrokerId(broker_id)}
    return [
        RegisterBroker(**stamps, incarnation="i", rack=None, endpoints=()),
        UnfenceBroker(**stamps, reason="started"),
    ]


class Writing:
    """A worker without Kafka: it decides on a partition and collects the records that it would write."""

    def __init__(self, partition: PartitionState) -> None:
        self.partition = partition
        self.topic: list[bytes] = []

    def fence(self, epoch: int = 1, release: str = "1.0") -> None:
        """Take the partition over, and record settings."""
        event = encode_event(BORN_MS, Cause("ChangeSettings", RequestId("s")), SettingsChanged(SETTINGS, release))
        value = encode_record(Fence(epoch, f"w{epoch}", release, EVENT_VERSION, (event,)))
        assert self.partition.accept(len(self.topic), value) is not None
        self.topic.append(value)

    def decide(self, *commands: AnyCommand) -> None:
        """Decide commands in order, one record each."""
        for command in commands:
            source = self.partition.reader.next_source
            decision = decide(self.partition.state, command)
            self.partition.record_decision(command, decision.events, decision.answers)
            self.topic.append(self.partition.end_record(source, decision.answers))
