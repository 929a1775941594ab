"""Random damage of sound logs, and what the auditor and the SQL find in each.

    python -m tests.replay.checks.damaged [--seeds 200]

prints the violations that only one of the two finds, by check. Events are dropped, repeated, swapped or changed in one
field, up to three of them in a log. Half of the logs have a gap where an event was dropped.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from msgspec.structs import replace

from events import catalog
from events.catalog import Recorded
from events.codec import encode_event
from projections.replay.checks.checking import check
from projections.replay.checks.history import COLUMNS, history_of
from projections.replay.log.columns import Columns, arrow_schema
from tests.machine.audit.auditor import audit
from tests.machine.audit.planted import Log, clean, renumbered

FIELDS = {
    catalog.CreateRequested: ("num_partitions", "replication_factor", "timeout_ms", "deadline_ms", "request_id"),
    catalog.CreateRejected: ("error_code", "message", "rule", "request_id"),
    catalog.TopicCreated: ("replication_factor", "live_brokers", "request_id", "deadline_ms", "topic"),
    catalog.PartitionsAdded: ("first", "live_brokers", "topic"),
    catalog.PartitionChanged: (
        "partition", "topic", "after.leader", "after.isr", "after.replicas", "after.leader_epoch",
        "after.partition_epoch",
    ),
    catalog.MetadataPropagated: ("brokers", "topic"),
    catalog.TopicReady: ("topic",),
    catalog.TopicDeleted: ("topic", "request_id"),
    catalog.CreateAnswered: ("error_code", "message", "request_id", "topic"),
    catalog.BrokerRegistered: ("broker_id", "broker_epoch"),
    catalog.BrokerFenced: ("broker_id",),
    catalog.BrokerUnfenced: ("broker_id",),
}  # fmt: skip
"""The fields to change."""


class Damaged(NamedTuple):
    """A damaged log, and a description of its faults."""

    done: tuple[str, ...]
    log: Log


def damaged(seed: int) -> Damaged:
    """Returns a log with one to three faults. A seed always gives the same log."""
    rng, log, done = random.Random(seed), list(SOUND[seed % len(SOUND)]), list[str]()
    for _ in range(rng.choice((1, 1, 2, 3))):
        kind, place = (
            rng.choice(("drop", "repeat", "swap", "change", "change", "change")),
            rng.randrange(1, len(log) - 1),
        )
        done.append(f"{kind} {type(log[place].event).__name__} at {place}")
        if kind == "drop":
            del log[place]
        elif kind == "repeat":
            log[place:place] = [log[place]]
            log = renumbered(log)
        elif kind == "swap":
            first, second = log[place : place + 2]
            log[place : place + 2] = replace(second, offset=first.offset), replace(first, offset=second.offset)
        else:
            log[place], field = changed(log[place], log, rng)
            done[-1] += f" {field}"
    return Damaged(tuple(done), log if rng.random() < 0.5 else renumbered(log))


SOUND = (clean(),)


def changed(record: Recorded, log: Log, rng: random.Random) -> tuple[Recorded, str]:
    """Returns the record with another value in one field, and the name of the field."""
    fields = FIELDS.get(type(record.event))
    if fields is None:
        return replace(record, cause=catalog.Cause("Guess", record.cause.request_id)), "cause"
    field = rng.choice(fields)
    outer, _, inner = field.partition(".")
    value: Any = getattr(record.event, outer)
    event: Any = replace(
        record.event,
        **{outer: replace(value, **{inner: other(getattr(value, inner), rng)}) if inner else other(value, rng)},
    )
    return replace(record, event=event), field


def other(value: Any, rng: random.Random) -> Any:
    """Returns another value of the same type."""
    if isinstance(value, str):
        return rng.choice(("a", "slow", "nobody", "q1"))
    if isinstance(value, tuple):
        return rng.choice(((), (*value, 9), value[1:], (*value[:1], *value[:1]), value[::-1], (3,)))
    return rng.choice((value + 1, value - 1, 0, 9))


def batches_of(logs: Iterable[Sequence[Recorded]]) -> list[pa.RecordBatch]:
    """The events of several logs. Each log becomes a log partition."""
    batches = []
    for log_partition, log in enumerate(logs):
        made = Columns(COLUMNS, log_partition)
        for record in log:
            made.add(record, encode_event(record.at_ms, record.cause, record.event))
        batches.append(made.batch())
    return batches


Violated = set[tuple[str, str]]
"""Checks with the topics of their violations; "" for none."""


def both(logs: Iterable[Log]) -> Iterator[tuple[Violated, Violated]]:
    """Yields the violations that the auditor and the SQL find in each log."""
    some = list(logs)
    by_log: list[Violated] = [set() for _ in some]
    with history_of(batches_of(some), arrow_schema(COLUMNS), in_task=True) as history:
        for row in check(history, settle_ms=0).rows:
            by_log[row["log_partition"]].add((row["check"], row["topic"] or ""))
    for log, found in zip(some, by_log, strict=True):
        yield {(one.check, "" if one.check in OF_LOGS else one.topic) for one in audit(log, settled=True)}, found


OF_LOGS = ("offsets-contiguous", "settings-first")
"""Violations that the SQL reports for the whole log instead of a topic."""
ALSO = {
    "one-answer": ("cause-exists",),  # an answer without its request
    "created-as-asked": ("cause-exists", "one-creation-per-life"),  # a rejection without its request; created twice
    "cause-exists": ("created-as-asked",),  # created without its request
    # Partitions were added twice, and the auditor gives the second ones other numbers:
    "epochs-never-go-back": ("partitions-never-fall",),
    "placeholders-filled": ("partitions-never-fall",),
}
"""Checks of the auditor, with the SQL's names for the same violations."""


ONLY_SQL = {
    "as-asked": "a topic whose request is missing is compared with the defaults",
    "cause-exists": "an answer without its request; the auditor calls it one-answer",
    "epochs-never-go-back": "partitions added at a wrong place; the auditor numbers them by their place in a list",
    "placeholders-filled": "the same",
    "replicas-distinct": "a change of a partition that does not exist is judged too",
    "replicas-live": "a topic assigned by hand whose request is missing counts as placed",
    "topic-exists": "partitions added at a wrong place",
}
"""Checks whose violations the SQL finds and the auditor does not, with the reason."""


def missed(audited: Violated, found: Violated) -> Violated:
    """Violations that the auditor finds and the SQL does not."""
    return {
        (check, topic)
        for check, topic in audited
        if not any((name, topic) in found for name in (check, *ALSO.get(check, ())))
    }


def main() -> None:
    """Print the violations that only one of the two finds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200)
    count = parser.parse_args().seeds
    made = [damaged(seed) for seed in range(count)]
    lacking, more, common = Counter[str](), Counter[str](), 0
    for seed, (one, (audited, found)) in enumerate(zip(made, both(one.log for one in made), strict=True)):
        of_auditor = missed(audited, found)
        common += len(audited - of_auditor)
        lacking.update(check for check, _ in of_auditor)
        more.update(check for check, _ in found - audited)
        for what, some in (("only the auditor", of_auditor), ("only the SQL", found - audited)):
            if some:
                print(f"seed {seed}, {what}: {sorted(some)} after {'; '.join(one.done)}")
    print(f"{count} logs: {common} violations of the auditor are found by the SQL, {lacking.total()} are not")
    print(f"only the auditor: {dict(lacking)}; only the SQL: {dict(more)}")


if __name__ == "__main__":
    main()
