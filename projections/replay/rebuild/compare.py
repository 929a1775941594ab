"""Comparing what the events come to with what the live projection has, topic by topic, by the hash of their state.

A log holds both: events, and the state that was committed with them. If they ever disagree, one of the two is wrong:
a topic changed without an event, an event came without its change, or a byte on the disk turned.

Method. One look at the folder fixes both sides at the same offset, however busy the service is. Spark rebuilds every
topic from the events alone; the live side is hashed as it is stored. Topics that differ are then shown one by one, with
both sides and the first event after which they part (see `parting`). Brokers and settings are compared too, under the
empty shard key. Topics begin at the newest snapshot, if there is one: then what is proved is what came after it, and
`from_scratch` proves all.

A log in Kafka has no state beside it; the live side is then that of a gateway or worker (see `compare_kafka`).

What it does not do: look at moments of the past. The live side is as it is now.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from events.codec import decode_event
from events.logs.log import read_one, shard_offsets
from events.names import CLUSTER_SHARD
from projections.replay.errors import ReplayError
from projections.replay.log.log_ref import KafkaRef, Ref, looked_at
from projections.replay.outcome import Options, Outcome
from projections.replay.rebuild.beginning import beginning, said
from projections.replay.rebuild.differences import cluster_difference, difference, different, live_hashes, outcome
from projections.replay.rebuild.parting import History
from projections.replay.rebuild.rebuild import rebuilt_topics
from projections.store.store import TopicStore
from projections.store.stored_topics import stored_values


def check_compare(ref: Ref, options: Options) -> None:
    """See, without Spark, that both sides are named. Raises ReplayError."""
    named = options.more.keys() & {"data", "http"}
    if isinstance(ref, KafkaRef):
        if len(named) != 1:
            raise ReplayError(
                "the events topic holds no state to compare with: name --data DIR of a gateway or worker, or --http "
                "HOST:PORT of a gateway"
            )
    elif named:
        raise ReplayError("--data and --http are for a log in Kafka: a data directory has its own live state")


def run_compare(session: SparkSession, ref: Ref, options: Options) -> Outcome:
    """The sub-command: both sides of every topic; differences are found.

    Of a log in Kafka `options.more` has the live side: `data`, the folder of a gateway or worker, or `http`, the
    address of a gateway. Raises ReplayError.
    """
    if options.at is not None:
        raise ReplayError("compare goes without --at: the live projection is as it is now")
    check_compare(ref, options)
    if isinstance(ref, KafkaRef):
        from projections.replay.rebuild.compare_kafka import compare_kafka

        return compare_kafka(session, ref, options)
    with looked_at(ref) as log:
        end, live = log.next_offset, live_hashes(log, ref.partition)
        begin = beginning(ref, end, options)
        rows = different(session, rebuilt_topics(session, ref, end, begin), live).collect()
        differences = [
            difference(History(log, row["shard"]), stored_values(log, row["shard"]), row.asDict()) for row in rows
        ]
        cluster = (decode_event(offset, read_one(log, offset)) for offset in shard_offsets(log, CLUSTER_SHARD))
        differences += cluster_difference(cluster, TopicStore(log).durable_cluster, ref.partition)
    return said(outcome(differences, len(live), {ref.partition: end}, options), begin, end)


# --- telling
