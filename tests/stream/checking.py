"""Checks that workers lost no command and decided none twice, whatever faults they had.

Reads both topics from the beginning. It folds the events by the rule of all readers, and checks the invariants. The
commands topic defines which decisions must exist. Each worker's cache must be a prefix of the fold.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller.machine.apply import apply
from controller.machine.commands.commands import AUTO_CREATION, CreateTopic, TopicCommand
from controller.machine.state import DictTopics, State
from controller.stream.log.codec import CommandError, CommandFromNewerVersion, decode_answers, decode_command
from events.catalog import CreateAnswered, Recorded, RulesApplied
from events.codec import decode_event
from events.logs.events_topic import Decided, Fence, PartitionReader, Record, decode_record
from events.logs.rocksdb_log import RocksDbLog
from tests.machine.audit.auditor import audit
from tests.support.partition_limits import wrong_verdicts


@dataclass
class Found:
    """Counts over all partitions, and the errors found."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def check_topics(
    commands: Sequence[Sequence[bytes | None]], events: Sequence[Sequence[bytes | None]], folders: Sequence[Path] = ()
) -> Found:
    """Check every partition; `folders` are the data folders of workers that have ended."""
    found = Found()
    for partition, (sent, written) in enumerate(zip(commands, events, strict=True)):
        records = _check_partition(found, partition, sent, written)
        for folder in folders:
            _check_cache(found, folder / f"partition-{partition:05}", records)
    return found


def fold(partition: int, written: Sequence[bytes | None]) -> tuple[PartitionReader, list[Record]]:
    """Returns the records of a partition that count, and the reader after them."""
    reader = PartitionReader(partition)
    counted: list[Record] = []
    for offset, value in enumerate(written):
        assert value is not None
        taken = reader.read(offset, value) if value else None  # an empty value marks an offset without a record
        if taken is not None:
            counted.append(taken)
    return reader, counted


def next_source(written: Sequence[bytes | None]) -> int:
    """Returns the number of commands that a partition of the events topic has decided."""
    return fold(0, written)[0].next_source


def _check_partition(
    found: Found, partition: int, sent: Sequence[bytes | None], written: Sequence[bytes | None]
) -> list[Recorded]:
    reader, counted = fold(partition, written)
    state = State(DictTopics())
    records: list[Recorded] = []
    sources: list[int] = []
    faulty: set[int] = set()
    answered: Counter[tuple[str, str]] = Counter()
    found.counts["fences"] += sum(isinstance(decode_record(value), Fence) for value in written if value)
    for taken in counted:
        for event in taken.events:
            records.append(decode_event(len(records), event))
            apply(state, records[-1])
        if isinstance(taken, Decided):
            sources.append(taken.source_offset)
            if taken.fault:
                faulty.add(taken.source_offset)
            for answer in decode_answers(taken.answers, state.topics):
                answered[answer.request_id, answer.topic_name] += 1
    found.counts["faults"] += len(faulty)
    found.counts["records"] += len(written)
    found.counts["ignored"] += reader.ignored
    found.counts["commands"] += len(sent)
    found.counts["events"] += len(records)
    found.counts["versions of rules"] += sum(isinstance(record.event, RulesApplied) for record in records)
    found.counts["refused by rules"] += sum(getattr(r.event, "rule", "").startswith("policy:rules/") for r in records)
    found.counts["lost"] += len(set(range(len(sent))) - set(sources))
    found.counts["decided twice"] += len(sources) - len(set(sources))
    found.counts["out of order"] += sources != sorted(sources)
    decided = [value for offset, value in enumerate(sent) if offset not in faulty]
    _check_requests(found, partition, decided, records, answered, state)
    found.wrong += [f"partition {partition}: {each}" for each in (*audit(records), *wrong_verdicts(records))]
    return records


def _check_requests(
    found: Found,
    partition: int,
    sent: Sequence[bytes | None],
    records: Sequence[Recorded],
    answered: Counter[tuple[str, str]],
    state: State,
) -> None:
    """Every request in the commands topic has exactly one answer, unless it is a create that is still pending.

    A copy has no answer. If the request left no event, workers cannot recognize its copy and may answer it too. So it
    is with an automatic creation: while its topic exists it leaves none, but a copy that is decided later may.
    """
    waiting: set[tuple[str, str]] = set()
    for topic in state.topics.values():  # type: ignore[attr-defined]
        if topic.pending_create is not None:
            waiting.add((topic.pending_create.request_id, topic.name))
    terminal = Counter((e.request_id, e.topic) for r in records if isinstance(e := r.event, CreateAnswered))
    requests = _requests(sent)
    copies = Counter((command.request_id, command.topic) for command in requests)
    found.counts["requests"] += len(requests)
    found.counts["copies"] += len(requests) - len(
        copies
    )  # of one produced request: Kafka may duplicate it when its brokers are killed
    remembered = {(r.cause.request_id, getattr(r.event, "topic", "")) for r in records}
    creates = [each for each in requests if isinstance(each, CreateTopic) and not each.validate_only]
    auto_created = {(each.request_id, each.topic) for each in creates if each.api == AUTO_CREATION}
    for key, count in copies.items():
        once = 1 - (key in waiting)
        if not once <= answered[key] <= (once if key in remembered - auto_created else count):
            found.wrong.append(f"partition {partition}: {key[0]} for {key[1]}: {answered[key]} answers")
    repeated = auto_created - remembered  # the topic existed, so there is no event
    for key in {(command.request_id, command.topic) for command in creates} - repeated:
        if terminal[key] != 1 - (key in waiting):
            found.wrong.append(f"partition {partition}: {key} has {terminal[key]} terminal answers")


def _requests(sent: Sequence[bytes | None]) -> list[TopicCommand]:
    commands: list[Any] = []
    for value in sent:
        try:
            commands.append(decode_command(value))
        except (CommandError, CommandFromNewerVersion):
            continue
    return [command for command in commands if isinstance(command, TopicCommand)]


def _check_cache(found: Found, folder: Path, records: Sequence[Recorded]) -> None:
    """A worker's cache is a prefix of the fold."""
    if not folder.exists():
        return
    log = RocksDbLog(folder, cluster_id=None, new_cluster_id=lambda: "none")
    try:
        kept = [decode_event(offset, value) for offset, value in log.read()]
    finally:
        log.close()
    found.counts["caches"] += 1
    if kept != list(records[: len(kept)]):
        found.wrong.append(f"{folder} is not a beginning of the events")
