"""Generates logs of any size as a controller does: commands through the state machine, commits, live state.

    python -m benchmarks.generate DIR --events 2000000 --topics 100000 [--skewed] [--partitions 6] [--seed 1]

The history: teams create topics; a policy refuses some, and others exist already. Brokers confirm, followers fall
behind and catch up, leaders move, partitions are added, configs changed, topics deleted and recreated. Early on,
brokers fail and return. With `--skewed` half of all events concern one topic, with `--partitions` partitions.

The same arguments always give the same log.
"""

import argparse
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from controller.machine.commands.commands import (
    AlterPartition,
    AlterTopicConfigs,
    AnyCommand,
    ChangeSettings,
    ConfirmMetadata,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    FenceBroker,
    IsrReport,
    ReconcileTopics,
    RegisterBroker,
    UnfenceBroker,
)
from controller.machine.decide import decide
from controller.machine.state import Topic
from controller.store.recorder import Recorder
from controller.store.store import TopicStore
from events.catalog import Cause, ConfigOp, Endpoint, Event, Verdict
from events.logs.rocksdb_log import RocksDbLog
from events.names import BrokerId, Offset, RequestId, TopicId, TopicName, shard_key

BORN_MS = 1_700_000_000_000
BROKERS = 6
TEAMS = 20
EVENTS_PER_COMMIT = 5_000
SYNC_EVERY_COMMITS = 20
INCIDENTS_BEFORE_TOPICS = 300
HOT = "hot.spot"
PARTITIONS_AT_ONCE = 5_000
"""The partitions that one request creates; the controller allows somewhat less than 10,000."""
SETTINGS = (
    ("create.topic.policy.class.name", "rules.Owned"),
    ("default.replication.factor", "3"),
    ("enable.under.replicated.topic.creation", "true"),
    ("min.insync.replicas", "2"),
    ("num.partitions", "2"),
)
REFUSED = Verdict("refused", "rules.Owned", "policy:rules.Owned/owner", "the topic has no owner")
ALLOWED = Verdict("allowed")


class Generator:
    """Writes one log."""

    def __init__(self, folder: Path, seed: int, skewed: bool, partitions: int = 6) -> None:
        self.log = RocksDbLog(folder, cluster_id="generated", new_cluster_id=lambda: "generated")
        self._store = TopicStore(self.log, 100_000)
        self._recorder = Recorder(self.log, self._store)
        self._state = self._recorder.state
        self._rng = random.Random(seed)
        self._skewed = skewed
        self._partitions = partitions
        self._now_ms = max(BORN_MS, self._recorder.last_ms)
        self._requests = 0
        self._commits = 0
        self._uncommitted = 0
        self._offset = self.log.next_offset
        self._names: list[str] = []
        self._known: set[str] = set()

    def write(self, events: int, topics: int) -> None:
        """Write about `events` events with `topics` topics, and close the log."""
        self._begin()
        if self._skewed:
            self._create(HOT, partitions=min(self._partitions, PARTITIONS_AT_ONCE))
            for count in range(2 * PARTITIONS_AT_ONCE, self._partitions + 1, PARTITIONS_AT_ONCE):
                more = CreatePartitions(topic=TopicName(HOT), count=count, principal="User:ops", **self._stamp("more"))
                self._put(more)
        for number in range(topics):
            self._create_some(number)
            if number < INCIDENTS_BEFORE_TOPICS and number % 100 == 99:
                self._incident(BrokerId(1 + number // 100 % BROKERS))
        while self._offset < events:
            self._something()
        self._commit()
        self.log.close()

    # --- commands

    def _begin(self) -> None:
        self._put(ChangeSettings(settings=SETTINGS, release="1.0", **self._stamp("settings")))
        for number in range(1, BROKERS + 1):
            broker, endpoint = BrokerId(number), Endpoint("PLAINTEXT", f"broker-{number}", 9092)
            stamp = self._stamp("broker")
            rack = f"rack-{'abc'[number % 3]}"
            self._put(
                RegisterBroker(broker_id=broker, incarnation=f"i-{number}", rack=rack, endpoints=(endpoint,), **stamp)
            )
            self._put(UnfenceBroker(broker_id=broker, reason="caught up", **stamp))

    def _create_some(self, number: int) -> None:
        if self._rng.random() < 0.03:
            self._create(f"nobody-{number}", verdict=REFUSED)
        self._create(f"team-{number % TEAMS}.topic-{number}", partitions=self._rng.choice((1, 1, 2, 3, 6)))

    def _create(self, name: str, partitions: int = 1, verdict: Verdict = ALLOWED) -> None:
        known = self._topic(name) is not None
        stamp = self._stamp("create")
        topic_id = TopicId(self._rng.randbytes(16))
        team = sum(name.encode()) % TEAMS
        command = CreateTopic(
            topic=TopicName(name),
            topic_id=topic_id,
            num_partitions=partitions,
            replication_factor=3,
            configs=(("retention.ms", "86400000"),) if self._rng.random() < 0.3 else (),
            timeout_ms=30_000,
            principal=f"User:team-{team}",
            client_id=f"client-{team}",
            verdict=verdict,
            **stamp,
        )
        self._put(command)
        if verdict is ALLOWED and not known:
            if name not in self._known:
                self._known.add(name)
                self._names.append(name)
            self._confirm()

    def _confirm(self) -> None:
        brokers = self._state.cluster.live
        self._put(ConfirmMetadata(brokers=brokers, offset=Offset(self._offset - 1), **self._stamp("applied")))

    def _incident(self, broker: BrokerId) -> None:
        self._put(FenceBroker(broker_id=broker, reason="heartbeats stopped", **self._stamp("broker")))
        self._review()
        self._create(f"team-1.during-{self._offset}", partitions=2)
        self._put(UnfenceBroker(broker_id=broker, reason="caught up", **self._stamp("broker")))
        self._review()
        for name in self._names:
            topic = self._topic(name)
            for index in range(len(topic.partitions) if topic is not None else 0):
                self._catch_up(name, index)

    def _review(self) -> None:
        for start in range(0, len(self._names), 200):
            names = tuple(TopicName(name) for name in self._names[start : start + 200])
            self._put(ReconcileTopics(topics=names, **self._stamp("review")))

    def _something(self) -> None:
        name = HOT if self._skewed and self._rng.random() < 0.5 else self._rng.choice(self._names)
        topic = self._topic(name)
        if topic is None:
            self._create(name, partitions=2)
            return
        happenings = (self._isr, self._configs, self._again, self._lead, self._more, self._gone)
        self._rng.choices(happenings, _ODDS)[0](name, topic)

    def _isr(self, name: str, topic: Topic) -> None:
        index = self._rng.randrange(len(topic.partitions))
        partition = topic.partitions[index]
        if len(partition.isr) < len(partition.replicas):
            self._catch_up(name, index)
        else:
            kept = tuple(one for one in partition.isr if one == partition.leader or self._rng.random() < 0.5)
            self._report_isr(name, index, kept)

    def _catch_up(self, name: str, index: int) -> None:
        topic = self._topic(name)
        if topic is not None:
            replicas = topic.partitions[index].replicas
            self._report_isr(name, index, tuple(one for one in replicas if one in self._state.cluster.live))

    def _report_isr(self, name: str, index: int, isr: tuple[BrokerId, ...]) -> None:
        topic = self._topic(name)
        assert topic is not None, "the topic exists"
        partition = topic.partitions[index]
        report = IsrReport(index, isr, partition.leader_epoch, partition.partition_epoch)
        stamp = self._stamp("broker")
        self._put(AlterPartition(topic=TopicName(name), broker_id=partition.leader, reports=(report,), **stamp))

    def _configs(self, name: str, topic: Topic) -> None:
        op = ConfigOp("retention.ms", 0, str(self._rng.randrange(1, 1000) * 1000))
        self._put(AlterTopicConfigs(topic=topic.name, ops=(op,), principal="User:ops", **self._stamp("configs")))

    def _again(self, name: str, topic: Topic) -> None:
        self._create(name)

    def _lead(self, name: str, topic: Topic) -> None:
        broker = self._rng.choice(topic.partitions).leader
        self._put(FenceBroker(broker_id=broker, reason="heartbeats stopped", **self._stamp("broker")))
        self._put(ReconcileTopics(topics=(topic.name,), **self._stamp("review")))
        self._put(UnfenceBroker(broker_id=broker, reason="started", **self._stamp("broker")))

    def _more(self, name: str, topic: Topic) -> None:
        if len(topic.partitions) < 8:
            count = len(topic.partitions) + 1
            self._put(CreatePartitions(topic=topic.name, count=count, principal="User:ops", **self._stamp("more")))

    def _gone(self, name: str, topic: Topic) -> None:
        if name != HOT:
            self._put(DeleteTopic(topic=topic.name, principal="User:ops", **self._stamp("delete")))

    # --- internals

    def _topic(self, name: str) -> Topic | None:
        return self._store.get(shard_key(name))

    def _stamp(self, origin: str) -> Any:
        self._requests += 1
        self._now_ms += self._rng.randrange(1, 20)
        return {"request_id": RequestId(f"{origin}-{self._requests}"), "at_ms": self._now_ms}

    def _put(self, command: AnyCommand) -> None:
        cause = Cause(type(command).__name__, command.request_id)
        self._record(command.at_ms, cause, decide(self._state, command).events)

    def _record(self, at_ms: int, cause: Cause, events: Sequence[Event]) -> None:
        self._recorded(len(self._recorder.record(at_ms, cause, events)))

    def _recorded(self, count: int) -> None:
        self._offset += count
        self._uncommitted += count
        if self._uncommitted >= EVENTS_PER_COMMIT:
            self._commit()

    def _commit(self) -> None:
        self._recorder.commit()
        self._store.became_durable(self._state)
        self._uncommitted = 0
        self._commits += 1
        if self._commits % SYNC_EVERY_COMMITS == 0:
            self.log.flush()


_ODDS = (70, 8, 6, 10, 3, 1)
"""Weights of: replicas fall behind or catch up, configs change, creates repeat, leaders move, partitions are added,
topics are deleted."""


def generate(
    folder: Path, events: int, topics: int, *, skewed: bool = False, partitions: int = 6, seed: int = 1
) -> int:
    """Write a log of about `events` events into a folder; returns their exact number."""
    one = Generator(folder, seed, skewed, partitions)
    one.write(events, topics)
    return one.log.next_offset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--skewed", action="store_true")
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    started = time.perf_counter()
    hot = {"skewed": options.skewed, "partitions": options.partitions}
    events = generate(options.folder, options.events, options.topics, **hot, seed=options.seed)
    print(f"{events:,} events in {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
