"""A batch of the metadata log that another controller wrote, as the events that say the same.

The law: after the events, the machine's state, projected to records, says what the records of the batch have made of
the state before. So a controller that followed leads on from where the other one stood.

Method. Of the state only what the batch touches is projected to records, into an image on which the batch's records
are folded. Steps (brokers, changes of partitions, producer ids, deletions) become events one by one, as they come; what
several records say together (a topic with its configs and partitions, the configs of a resource, the quotas of an
entity, access control entries, features) is compared with the state at the end of the batch.

What cannot be said as events never stops it: all else is said, and `unfoldable` names it. Who has met such a thing may
follow and vote, and must not lead.

What it does not do: it reads no log. Records come decoded, and those of a transaction together (see `transactions`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from controller.brokers.kraft.discovering.cluster_changes import ClusterChanges
from controller.brokers.kraft.discovering.reading import Discovered, Reading
from controller.brokers.kraft.discovering.source import source_of
from controller.brokers.kraft.discovering.topic_changes import NameOf, TopicChanges
from controller.brokers.kraft.discovering.unsaid import is_passed_over, record_in_words
from controller.brokers.kraft.discovering.wire import KnownWire
from controller.brokers.kraft.log import metadata_records as kinds
from controller.brokers.kraft.log.image import CannotFold
from controller.brokers.kraft.log.metadata_records import MetadataRecord
from controller.machine.state import State, Topic
from events.names import RequestId

Numbered = tuple[int, MetadataRecord]
"""A record with its offset in the metadata log."""


def discovering(
    state: State,
    name_of: NameOf,
    wire_before: KnownWire,
    records: Iterable[Numbered],
    at_ms: int,
    request_id: RequestId,
    every_topic: Callable[[], Iterable[Topic]],
) -> Iterator[Discovered]:
    """What the records of a batch have decided, in slices, each of some milliseconds.

    `request_id` is that of `ExternalDecision`, which says whose it is; `every_topic` is called only where a record
    concerns all topics. `state` may be brought past a slice before the next is taken, or past all of them in the
    end; nothing else may change it meanwhile.
    """
    reading = Reading(source_of(request_id))
    of_cluster = ClusterChanges(state.cluster, wire_before, reading)
    of_topics = TopicChanges(state, name_of, every_topic, reading, at_ms)
    steps = chain(_folding(records, of_cluster, of_topics, reading), of_cluster.finish(), of_topics.finish())
    return reading.slices(steps)


def _folding(
    records: Iterable[Numbered], of_cluster: ClusterChanges, of_topics: TopicChanges, reading: Reading
) -> Iterator[None]:
    for offset, record in records:
        try:
            if isinstance(record, kinds.ClearElrRecord):
                yield from of_topics.clear_eligible(record)
            elif not (of_topics.take(record) or of_cluster.take(record) or is_passed_over(record)):
                reading.cannot(f"{record_in_words(record)} at offset {offset}")
        except CannotFold as error:
            reading.cannot(f"{record_in_words(record)} at offset {offset} does not fit: {error}")
        yield
