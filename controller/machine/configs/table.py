"""All topic configs of Apache Kafka 4.4: type, default, allowed values, broker-level names.

Rows are in the order of Kafka's LogConfig, which is also the order of its checks: the response names the first bad
value. A test compares the table with Kafka's.

If a topic does not set a config, it uses the first of its `synonyms` that the operator set (KIP-226), else `default`.
"""

from __future__ import annotations

import msgspec

from controller.machine.configs.values import (
    Allowed,
    AtLeast,
    AtLeastOr,
    Between,
    BetweenOr,
    ConfigType,
    ListOf,
    OneOf,
    ReplicaList,
)

KAFKA_VERSION = "4.4"

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
LONG_MAX = (1 << 63) - 1
MEBIBYTE = 1 << 20


class Synonym(msgspec.Struct, frozen=True, gc=False):
    """A broker-level setting that is a default of topics.

    `unit` converts its number to the topic's unit (hours to ms). `default` is Kafka's default of the broker-level
    setting; None if another synonym of the row has it.
    """

    name: str
    kind: ConfigType
    default: str | None
    allowed: Allowed
    unit: int = 1


class TopicConfig(msgspec.Struct, frozen=True, gc=False):
    """A topic config. `default` is the text shown by DescribeConfigs; None for some internal configs.

    `internal` configs are for tests of brokers: they may be set, and are only shown if they are.
    """

    name: str
    kind: ConfigType
    default: str | None
    allowed: Allowed
    synonyms: tuple[Synonym, ...]
    documentation: str
    internal: bool = False
    read_only: bool = False
    sensitive: bool = False


_Names = str | tuple[Synonym, ...] | None


def _row(
    name: str, kind: ConfigType, default: str | int, allowed: Allowed, doc: str, *, broker: _Names = None
) -> TopicConfig:
    """`broker` are the broker-level names. A single one has the type, default and limits of the topic config."""
    text = str(default)
    match broker:
        case None:
            synonyms: tuple[Synonym, ...] = ()
        case str():
            synonyms = (Synonym(broker, kind, text, allowed),)
        case _:
            synonyms = broker
    return TopicConfig(name, kind, text, allowed, synonyms, doc)


_BOOLEAN, _STRING, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
_DOUBLE, _LIST = ConfigType.DOUBLE, ConfigType.LIST

_SEGMENT_MS = (
    Synonym("log.roll.ms", _LONG, None, AtLeast(1)),
    Synonym("log.roll.hours", _INT, "168", AtLeast(1), HOUR_MS),
)
_SEGMENT_JITTER_MS = (
    Synonym("log.roll.jitter.ms", _LONG, None, AtLeast(0)),
    Synonym("log.roll.jitter.hours", _INT, "0", AtLeast(0), HOUR_MS),
)
_FLUSH_MS = (
    Synonym("log.flush.interval.ms", _LONG, None, AtLeast(0)),
    Synonym("log.flush.scheduler.interval.ms", _LONG, str(LONG_MAX), AtLeast(0)),
)
_RETENTION_MS = (
    Synonym("log.retention.ms", _LONG, None, AtLeastOr(1, -1)),
    Synonym("log.retention.minutes", _INT, None, AtLeastOr(1, -1), MINUTE_MS),
    Synonym("log.retention.hours", _INT, "168", AtLeastOr(1, -1), HOUR_MS),
)

TOPIC_CONFIGS: tuple[TopicConfig, ...] = (
    _row(
        "segment.bytes",
        _INT,
        1 << 30,
        AtLeast(MEBIBYTE),
        "Size at which a log segment is closed and a new one begun, in bytes.",
        broker="log.segment.bytes",
    ),
    _row(
        "segment.ms",
        _LONG,
        168 * HOUR_MS,
        AtLeast(1),
        "Age at which a segment is closed although it is not full, so that it can be deleted or compacted.",
        broker=_SEGMENT_MS,
    ),
    _row(
        "segment.jitter.ms",
        _LONG,
        0,
        AtLeast(0),
        "Up to this much is taken off segment.ms at random, so that segments do not all roll at once.",
        broker=_SEGMENT_JITTER_MS,
    ),
    _row(
        "segment.index.bytes",
        _INT,
        10 * MEBIBYTE,
        AtLeast(4),
        "Size of a segment's offset index, in bytes; allocated in advance and shrunk when the segment is closed.",
        broker="log.index.size.max.bytes",
    ),
    _row(
        "flush.messages",
        _LONG,
        LONG_MAX,
        AtLeast(1),
        "After this many records the log is forced to disk; by default that is left to the operating system.",
        broker="log.flush.interval.messages",
    ),
    _row(
        "flush.ms",
        _LONG,
        LONG_MAX,
        AtLeast(0),
        "After this time the log is forced to disk; by default that is left to the operating system.",
        broker=_FLUSH_MS,
    ),
    _row(
        "retention.bytes",
        _LONG,
        -1,
        None,
        "Size of a partition above which its oldest segments are deleted; -1 for no limit. Needs policy delete.",
        broker="log.retention.bytes",
    ),
    _row(
        "retention.ms",
        _LONG,
        168 * HOUR_MS,
        AtLeast(-1),
        "Age above which segments are deleted; -1 for no limit. Needs policy delete.",
        broker=_RETENTION_MS,
    ),
    _row(
        "max.message.bytes",
        _INT,
        MEBIBYTE + 12,
        AtLeast(0),
        "Largest record batch that is accepted, in bytes, after compression.",
        broker="message.max.bytes",
    ),
    _row(
        "max.decompressed.message.bytes",
        _INT,
        (1 << 31) - 9,
        Between(1, (1 << 31) - 9),
        "Largest single record that is accepted, in bytes, decompressed.",
        broker="max.decompressed.message.bytes",
    ),
    _row(
        "index.interval.bytes",
        _INT,
        4096,
        AtLeast(0),
        "About how many bytes of log lie between two entries of the offset index.",
        broker="log.index.interval.bytes",
    ),
    _row(
        "delete.retention.ms",
        _LONG,
        24 * HOUR_MS,
        AtLeast(0),
        "How long compaction keeps delete markers, so that a reader from the start can see them.",
        broker="log.cleaner.delete.retention.ms",
    ),
    _row(
        "min.compaction.lag.ms",
        _LONG,
        0,
        AtLeast(0),
        "A record stays uncompacted for at least this long.",
        broker="log.cleaner.min.compaction.lag.ms",
    ),
    _row(
        "max.compaction.lag.ms",
        _LONG,
        LONG_MAX,
        AtLeast(1),
        "A record stays out of compaction's reach for at most this long.",
        broker="log.cleaner.max.compaction.lag.ms",
    ),
    _row(
        "file.delete.delay.ms",
        _LONG,
        MINUTE_MS,
        AtLeast(0),
        "How long the file of a deleted segment stays on disk.",
        broker="log.segment.delete.delay.ms",
    ),
    _row(
        "min.cleanable.dirty.ratio",
        _DOUBLE,
        "0.5",
        Between(0, 1),
        "Share of the log that must be uncompacted before compaction looks at it.",
        broker="log.cleaner.min.cleanable.ratio",
    ),
    _row(
        "cleanup.policy",
        _LIST,
        "delete",
        ListOf(("compact", "delete")),
        "What becomes of old segments: delete by age and size, compact to each key's last record, both, or neither.",
        broker="log.cleanup.policy",
    ),
    _row(
        "unclean.leader.election.enable",
        _BOOLEAN,
        "false",
        None,
        "Whether a replica that is not in sync may lead when no other can, at the price of lost records.",
        broker="unclean.leader.election.enable",
    ),
    _row(
        "min.insync.replicas",
        _INT,
        1,
        AtLeast(1),
        "How many replicas must be in sync for a produce with acks=all to succeed.",
        broker="min.insync.replicas",
    ),
    _row(
        "compression.type",
        _STRING,
        "producer",
        OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
        "How the log is compressed; producer keeps what producers sent.",
        broker="compression.type",
    ),
    _row(
        "compression.gzip.level",
        _INT,
        -1,
        BetweenOr(1, 9, -1),
        "Level of gzip, where compression.type is gzip.",
        broker="compression.gzip.level",
    ),
    _row(
        "compression.lz4.level",
        _INT,
        9,
        Between(1, 17),
        "Level of lz4, where compression.type is lz4.",
        broker="compression.lz4.level",
    ),
    _row(
        "compression.zstd.level",
        _INT,
        3,
        Between(-131072, 22),
        "Level of zstd, where compression.type is zstd.",
        broker="compression.zstd.level",
    ),
    _row(
        "preallocate",
        _BOOLEAN,
        "false",
        None,
        "Whether a new segment's file is allocated at full size.",
        broker="log.preallocate",
    ),
    _row(
        "message.timestamp.type",
        _STRING,
        "CreateTime",
        OneOf(("CreateTime", "LogAppendTime")),
        "Whether a record's timestamp is the producer's or the time of its append.",
        broker="log.message.timestamp.type",
    ),
    _row(
        "message.timestamp.before.max.ms",
        _LONG,
        LONG_MAX,
        AtLeast(0),
        "How far a producer's timestamp may lie before the broker's clock.",
        broker="log.message.timestamp.before.max.ms",
    ),
    _row(
        "message.timestamp.after.max.ms",
        _LONG,
        HOUR_MS,
        AtLeast(0),
        "How far a producer's timestamp may lie after the broker's clock.",
        broker="log.message.timestamp.after.max.ms",
    ),
    _row(
        "leader.replication.throttled.replicas",
        _LIST,
        "",
        ReplicaList(),
        "Replicas whose replication is throttled where they lead: partition:broker pairs, or * for all.",
    ),
    _row(
        "follower.replication.throttled.replicas",
        _LIST,
        "",
        ReplicaList(),
        "Replicas whose replication is throttled where they follow: partition:broker pairs, or * for all.",
    ),
    _row(
        "remote.storage.enable",
        _BOOLEAN,
        "false",
        None,
        "Whether closed segments move to remote storage (KIP-405).",
    ),
    _row(
        "local.retention.ms",
        _LONG,
        -2,
        AtLeast(-2),
        "Age above which local segments are deleted once they are in remote storage; -2 for that of retention.ms.",
        broker="log.local.retention.ms",
    ),
    _row(
        "local.retention.bytes",
        _LONG,
        -2,
        AtLeast(-2),
        "Size above which local segments are deleted once they are in remote storage; -2 for that of retention.bytes.",
        broker="log.local.retention.bytes",
    ),
    _row(
        "remote.log.copy.disable",
        _BOOLEAN,
        "false",
        None,
        "Whether remote storage takes no more segments and only serves those it has (KIP-950).",
    ),
    _row(
        "remote.copy.lag.ms",
        _LONG,
        0,
        AtLeast(-1),
        "Age at which a closed segment may move to remote storage; 0 at once, -1 that of local retention (KIP-1241).",
        broker="log.remote.copy.lag.ms",
    ),
    _row(
        "remote.copy.lag.bytes",
        _LONG,
        -1,
        AtLeast(-1),
        "Size of newer segments from which one may move to remote storage; 0 at once, -1 that of local retention.",
        broker="log.remote.copy.lag.bytes",
    ),
    _row(
        "remote.log.delete.on.disable",
        _BOOLEAN,
        "false",
        None,
        "Whether turning remote storage off deletes what it holds (KIP-950).",
    ),
    _row("errors.deadletterqueue.group.enable", _BOOLEAN, "false", None, "Whether share groups may use it (KIP-1191)."),
    TopicConfig(
        "internal.segment.bytes", _INT, None, None, (), "segment.bytes without its limit, for tests of brokers.", True
    ),
)

BY_NAME: dict[str, TopicConfig] = {row.name: row for row in TOPIC_CONFIGS}

BROKER_SYNONYMS: dict[str, Synonym] = {synonym.name: synonym for row in TOPIC_CONFIGS for synonym in row.synonyms}
"""All broker-level settings that are defaults of topics, by name."""
