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
    Between,
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


def _row(name: str, kind: ConfigType, default: str | int, allowed: Allowed, broker: _Names = None) -> TopicConfig:
    """`broker` are the broker-level names. A single one has the type, default and limits of the topic config."""
    text = str(default)
    match broker:
        case None:
            synonyms: tuple[Synonym, ...] = ()
        case str():
            synonyms = (Synonym(broker, kind, text, allowed),)
        case _:
            synonyms = broker
    return TopicConfig(name, kind, text, allowed, synonyms, _DOCUMENTATION[name])


_DOCUMENTATION = {
    "segment.bytes": "Size at which a log segment is closed and a new one begun, in bytes.",
    "segment.ms": "Age at which a segment is closed although it is not full, so that it can be deleted or compacted.",
    "segment.jitter.ms": "Up to this much is taken off segment.ms at random, so that segments do not all roll at once.",
    "segment.index.bytes": (
        "Size of a segment's offset index, in bytes; allocated in advance and shrunk when the segment is closed."
    ),
    "flush.messages": (
        "After this many records the log is forced to disk; by default that is left to the operating system."
    ),
    "flush.ms": "After this time the log is forced to disk; by default that is left to the operating system.",
    "retention.bytes": (
        "Size of a partition above which its oldest segments are deleted; -1 for no limit. Needs policy delete."
    ),
    "retention.ms": "Age above which segments are deleted; -1 for no limit. Needs policy delete.",
    "max.message.bytes": "Largest record batch that is accepted, in bytes, after compression.",
    "max.decompressed.message.bytes": "Largest single record that is accepted, in bytes, decompressed.",
    "index.interval.bytes": "About how many bytes of log lie between two entries of the offset index.",
    "delete.retention.ms": "How long compaction keeps delete markers, so that a reader from the start can see them.",
    "min.compaction.lag.ms": "A record stays uncompacted for at least this long.",
    "max.compaction.lag.ms": "A record stays out of compaction's reach for at most this long.",
    "file.delete.delay.ms": "How long the file of a deleted segment stays on disk.",
    "min.cleanable.dirty.ratio": "Share of the log that must be uncompacted before compaction looks at it.",
    "cleanup.policy": (
        "What becomes of old segments: delete by age and size, compact to each key's last record, both, or neither."
    ),
    "unclean.leader.election.enable": (
        "Whether a replica that is not in sync may lead when no other can, at the price of lost records."
    ),
    "min.insync.replicas": "How many replicas must be in sync for a produce with acks=all to succeed.",
    "compression.type": "How the log is compressed; producer keeps what producers sent.",
    "compression.gzip.level": "Level of gzip, where compression.type is gzip.",
    "compression.lz4.level": "Level of lz4, where compression.type is lz4.",
    "compression.zstd.level": "Level of zstd, where compression.type is zstd.",
    "preallocate": "Whether a new segment's file is allocated at full size.",
    "message.timestamp.type": "Whether a record's timestamp is the producer's or the time of its append.",
    "message.timestamp.before.max.ms": "How far a producer's timestamp may lie before the broker's clock.",
    "message.timestamp.after.max.ms": "How far a producer's timestamp may lie after the broker's clock.",
    "leader.replication.throttled.replicas": (
        "Replicas whose replication is throttled where they lead: partition:broker pairs, or * for all."
    ),
    "follower.replication.throttled.replicas": (
        "Replicas whose replication is throttled where they follow: partition:broker pairs, or * for all."
    ),
    "remote.storage.enable": "Whether closed segments move to remote storage (KIP-405).",
    "local.retention.ms": (
        "Age above which local segments are deleted once they are in remote storage; -2 for that of retention.ms."
    ),
    "local.retention.bytes": (
        "Size above which local segments are deleted once they are in remote storage; -2 for that of retention.bytes."
    ),
    "remote.log.copy.disable": "Whether remote storage takes no more segments and only serves those it has (KIP-950).",
    "remote.copy.lag.ms": (
        "Age at which a closed segment may move to remote storage; 0 at once, -1 that of local retention (KIP-1241)."
    ),
    "remote.copy.lag.bytes": (
        "Size of newer segments from which one may move to remote storage; 0 at once, -1 that of local retention."
    ),
    "remote.log.delete.on.disable": "Whether turning remote storage off deletes what it holds (KIP-950).",
    "errors.deadletterqueue.group.enable": "Whether share groups may use it (KIP-1191).",
}

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
    Synonym("log.retention.ms", _LONG, None, AtLeast(1, -1)),
    Synonym("log.retention.minutes", _INT, None, AtLeast(1, -1), MINUTE_MS),
    Synonym("log.retention.hours", _INT, "168", AtLeast(1, -1), HOUR_MS),
)

TOPIC_CONFIGS: tuple[TopicConfig, ...] = (
    _row("segment.bytes", _INT, 1 << 30, AtLeast(MEBIBYTE), "log.segment.bytes"),
    _row("segment.ms", _LONG, 168 * HOUR_MS, AtLeast(1), _SEGMENT_MS),
    _row("segment.jitter.ms", _LONG, 0, AtLeast(0), _SEGMENT_JITTER_MS),
    _row("segment.index.bytes", _INT, 10 * MEBIBYTE, AtLeast(4), "log.index.size.max.bytes"),
    _row("flush.messages", _LONG, LONG_MAX, AtLeast(1), "log.flush.interval.messages"),
    _row("flush.ms", _LONG, LONG_MAX, AtLeast(0), _FLUSH_MS),
    _row("retention.bytes", _LONG, -1, None, "log.retention.bytes"),
    _row("retention.ms", _LONG, 168 * HOUR_MS, AtLeast(-1), _RETENTION_MS),
    _row("max.message.bytes", _INT, MEBIBYTE + 12, AtLeast(0), "message.max.bytes"),
    _row(
        "max.decompressed.message.bytes",
        _INT,
        (1 << 31) - 9,
        Between(1, (1 << 31) - 9),
        "max.decompressed.message.bytes",
    ),
    _row("index.interval.bytes", _INT, 4096, AtLeast(0), "log.index.interval.bytes"),
    _row("delete.retention.ms", _LONG, 24 * HOUR_MS, AtLeast(0), "log.cleaner.delete.retention.ms"),
    _row("min.compaction.lag.ms", _LONG, 0, AtLeast(0), "log.cleaner.min.compaction.lag.ms"),
    _row("max.compaction.lag.ms", _LONG, LONG_MAX, AtLeast(1), "log.cleaner.max.compaction.lag.ms"),
    _row("file.delete.delay.ms", _LONG, MINUTE_MS, AtLeast(0), "log.segment.delete.delay.ms"),
    _row("min.cleanable.dirty.ratio", _DOUBLE, "0.5", Between(0, 1), "log.cleaner.min.cleanable.ratio"),
    _row("cleanup.policy", _LIST, "delete", ListOf(("compact", "delete")), "log.cleanup.policy"),
    _row("unclean.leader.election.enable", _BOOLEAN, "false", None, "unclean.leader.election.enable"),
    _row("min.insync.replicas", _INT, 1, AtLeast(1), "min.insync.replicas"),
    _row(
        "compression.type",
        _STRING,
        "producer",
        OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
        "compression.type",
    ),
    _row("compression.gzip.level", _INT, -1, Between(1, 9, -1), "compression.gzip.level"),
    _row("compression.lz4.level", _INT, 9, Between(1, 17), "compression.lz4.level"),
    _row("compression.zstd.level", _INT, 3, Between(-131072, 22), "compression.zstd.level"),
    _row("preallocate", _BOOLEAN, "false", None, "log.preallocate"),
    _row(
        "message.timestamp.type",
        _STRING,
        "CreateTime",
        OneOf(("CreateTime", "LogAppendTime")),
        "log.message.timestamp.type",
    ),
    _row("message.timestamp.before.max.ms", _LONG, LONG_MAX, AtLeast(0), "log.message.timestamp.before.max.ms"),
    _row("message.timestamp.after.max.ms", _LONG, HOUR_MS, AtLeast(0), "log.message.timestamp.after.max.ms"),
    _row("leader.replication.throttled.replicas", _LIST, "", ReplicaList()),
    _row("follower.replication.throttled.replicas", _LIST, "", ReplicaList()),
    _row("remote.storage.enable", _BOOLEAN, "false", None),
    _row("local.retention.ms", _LONG, -2, AtLeast(-2), "log.local.retention.ms"),
    _row("local.retention.bytes", _LONG, -2, AtLeast(-2), "log.local.retention.bytes"),
    _row("remote.log.copy.disable", _BOOLEAN, "false", None),
    _row("remote.copy.lag.ms", _LONG, 0, AtLeast(-1), "log.remote.copy.lag.ms"),
    _row("remote.copy.lag.bytes", _LONG, -1, AtLeast(-1), "log.remote.copy.lag.bytes"),
    _row("remote.log.delete.on.disable", _BOOLEAN, "false", None),
    _row("errors.deadletterqueue.group.enable", _BOOLEAN, "false", None),
    TopicConfig(
        "internal.segment.bytes", _INT, None, None, (), "segment.bytes without its limit, for tests of brokers.", True
    ),
)

BY_NAME: dict[str, TopicConfig] = {row.name: row for row in TOPIC_CONFIGS}

BROKER_SYNONYMS: dict[str, Synonym] = {synonym.name: synonym for row in TOPIC_CONFIGS for synonym in row.synonyms}
"""All broker-level settings that are defaults of topics, by name."""
