"""Detects a consumer group that stalls while records are acknowledged, stores evidence, and starts a new member.

librdkafka 2.16.0 stops for good in two cases, with Kafka's controllers as with Topicwright; its log identifies them.
Any other stall fails the soak. docs/testing.md names them.
"""

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from tests.soak.stage import Stage
from tests.support.churn import GROUP, QUIET, Churn, Reading
from tests.support.real_brokers import RealBroker
from tests.support.wire import Wire

LOOK_S: Final = 1.0
STILL_LOOKS: Final = 30
"""A partition stalls after this many consecutive checks with new acknowledged records and no read."""
BROKER_LINES: Final = 1000
_TOPICS_THAT_GO: Final = re.compile(r"\bby-(broker|gateway)-\d")
OFFSETS: Final = "__consumer_offsets"
_FAULTS: Final[Mapping[str, tuple[re.Pattern[str], re.Pattern[str]]]] = {
    "it let go of its only broker, which was fenced and knew of none": (
        re.compile(r"\d+ brokers, \d+ topics"),
        re.compile(r"\b0 brokers, "),
    ),
    "it never asks again for offsets that a broker without the group refused it": (
        re.compile(r"OffsetFetch (for|returned)"),
        re.compile(r"returned Broker: (Not coordinator|Coordinator not available)"),
    ),
}
"""Known client fault → pattern of the relevant log lines, and pattern that the last of these matches."""


def fault_of_client(said: Iterable[str]) -> str:
    """The known client fault that a member's last log lines show; empty if there is none."""
    said = list(said)
    for name, (tells, bad) in _FAULTS.items():
        telling = [line for line in said if tells.search(line)]
        if telling and bad.search(telling[-1]):
            return name
    return ""


class Progress:
    """Counts for each partition the consecutive checks in which records were written but none was read."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, int]] = {}
        self._still: Counter[int] = Counter()

    def stands_still(self, acknowledged: Mapping[int, int], read: Mapping[int, int]) -> bool:
        """Check the counts of records by partition; True if a partition has stalled for `STILL_LOOKS` checks."""
        for partition, written in acknowledged.items():
            now = written, read.get(partition, 0)
            before = self._seen.get(partition, (0, 0))
            if now[1] > before[1]:
                self._still[partition] = 0
            elif now[0] > before[0]:
                self._still[partition] += 1
            self._seen[partition] = now
        if max(self._still.values(), default=0) < STILL_LOOKS:
            return False
        self._still.clear()
        return True


class Standstills(threading.Thread):
    """Checks for stalls periodically. `excused` has those caused by a known client fault, `wrong` all others."""

    def __init__(self, stage: Stage, reading: Reading, churn: Churn) -> None:
        super().__init__(name="standstills", daemon=True)
        self.excused: list[str] = []
        self.wrong: list[str] = []
        self._over = threading.Event()
        self._stage, self._reading, self._churn = stage, reading, churn

    def run(self) -> None:
        progress = Progress()
        while not self._over.wait(LOOK_S):
            if progress.stands_still(_counts(self._churn.acked), _counts(self._reading.read)):
                self._note()
                self._reading.begin_anew()

    def end(self) -> None:
        """Stop; evidence that is being written is completed first."""
        self._over.set()
        self.join(120)

    def _note(self) -> None:
        """Write the evidence to a file and classify the stall."""
        said = self._reading.said
        path = self._stage.folder / f"standstill-{len(self.excused) + len(self.wrong) + 1}.txt"
        text = evidence(self._stage, self._reading, self._churn)
        path.write_text(text, encoding="utf-8")
        if fault := fault_of_client(said):
            self.excused.append(f"{fault}: {path}")
        else:
            self.wrong.append(f"the group stood still, and nobody knows why: {path}\n{text}")


def evidence(stage: Stage, reading: Reading, churn: Churn) -> str:
    """The group's state at its coordinator, the metadata of its topics from the voter and each broker, the brokers'
    output, and the log of the group's member."""
    admin = AdminClient({"bootstrap.servers": stage.cluster.bootstrap, **QUIET})
    looks: dict[str, Callable[[], object]] = {
        "acknowledged and read, by partition": lambda: (_counts(churn.acked), _counts(reading.read)),
        "members": partial(_members, admin),
        "committed offsets": partial(_offsets, admin),
    }
    for topic in (churn.topic, OFFSETS):
        looks[f"{topic} by our voter"] = partial(stage.voter.get, f"/v1/topics/{topic}")
    for broker_id, broker in stage.cluster.brokers.items():
        looks[f"metadata of broker {broker_id}"] = partial(_metadata, f"127.0.0.1:{broker.port}", churn.topic)
        looks[f"output of broker {broker_id}"] = partial(_output, broker)
    looks["log of the member"] = lambda: "\n".join(reading.said)
    return "\n".join(f"--- {what}\n{_result_or_error(look)}" for what, look in looks.items())


def _result_or_error(look: Callable[[], object]) -> str:
    try:
        found = look()
    except Exception as error:
        return repr(error)
    return found.decode() if isinstance(found, bytes) else str(found)


def _counts(records: Mapping[int, Mapping[int, int]]) -> dict[int, int]:
    return {partition: len(each) for partition, each in list(records.items())}


def _members(admin: AdminClient) -> object:
    group = admin.describe_consumer_groups([GROUP])[GROUP].result(20)
    assigned = [(each.member_id, each.client_id, each.assignment.topic_partitions) for each in group.members]
    return [group.state, group.coordinator, *assigned]


def _offsets(admin: AdminClient) -> object:
    return admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])[GROUP].result(20).topic_partitions


def _output(broker: RealBroker) -> str:
    assert broker.process is not None, "the broker was never started"
    lines = [line for line in broker.process.output.splitlines() if not _TOPICS_THAT_GO.search(line)]
    return "\n".join(lines[-BROKER_LINES:])


def _metadata(address: str, topic: str) -> object:
    with Wire(address, timeout_s=10) as wire:
        topics = [{"name": topic}, {"name": OFFSETS}]
        return wire.call("Metadata", 8, topics=topics, allow_auto_topic_creation=False)
