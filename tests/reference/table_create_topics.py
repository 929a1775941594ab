"""The differential table: CreateTopics."""

from collections.abc import Iterator

from tests.reference.cases import Body, Case, assigned, case, topic

INT_MAX = 2**31 - 1


def create(name: str, *topics: Body, validate_only: bool = False, timeout_ms: int = 30_000, **more: object) -> Case:
    body = {"topics": list(topics), "timeout_ms": timeout_ms, "validate_only": validate_only}
    return case("CreateTopics", name, body, **more)  # type: ignore[arg-type]


def names() -> Iterator[Case]:
    yield create("plain", topic())
    yield create("no topics", watch=())
    yield create("name empty", topic(""), watch=())
    yield create("name is a dot", topic("."), watch=())
    yield create("name is two dots", topic(".."), watch=())
    yield create("name of three dots", topic("..."), watch=(), versions=(7,))
    yield create("name of 249", topic("{249}"), watch=("{249}",))
    yield create("name of 250", topic("{250}"), watch=())
    for what, sign in (("space", " "), ("slash", "/"), ("comma", ","), ("colon", ":"), ("accent", "é"), ("null", "\0"),
                       ("newline", "\n"), ("emoji", "\N{SNAKE}"), ("star", "*"), ("dollar", "$")):  # fmt: skip
        yield create(f"name with {what}", topic("{t}" + sign), watch=())
    yield create("name with all that is legal", topic("{t}.A_z-09"), watch=("{t}.A_z-09",))
    yield create("collision with a dot", topic("{t}.a"), before=[topic("{t}_a")], watch=("{t}.a", "{t}_a"))
    yield create("collision with an underscore", topic("{t}_a"), before=[topic("{t}.a")], watch=("{t}.a", "{t}_a"))
    yield create("collision in one request", topic("{t}.a"), topic("{t}_a"), watch=("{t}.a", "{t}_a"))
    yield create("collision in one dry run", topic("{t}.a"), topic("{t}_a"), validate_only=True, watch=())
    yield create("exists", topic(), before=[topic()])
    yield create("exists, other counts", topic(partitions=3, factor=3), before=[topic()])
    yield create("exists, bad partitions", topic(partitions=0), before=[topic()])
    yield create("exists, bad config", topic(nonsense="1"), before=[topic()])
    yield create("exists, dry run", topic(), validate_only=True, before=[topic()])
    yield create("internal name, exists", topic("__consumer_offsets"), before=[topic("__consumer_offsets")], watch=())
    yield create("internal name, transactions", topic("__transaction_state"), watch=(), validate_only=True)
    yield create("internal name, metadata", topic("__cluster_metadata"), watch=(), validate_only=True)
    yield create("internal name, share state", topic("__share_group_state"), watch=(), validate_only=True)
    yield create("name with two underscores", topic("__{t}"), watch=("__{t}",))


def counts() -> Iterator[Case]:
    for partitions in (0, -1, -2, -INT_MAX - 1):
        yield create(f"partitions {partitions}", topic(partitions=partitions))
    for partitions in (10_000, 10_001, 100_000, INT_MAX):
        yield create(f"partitions {partitions}, dry run", topic(partitions=partitions), validate_only=True)
    yield create("partitions of two together over the limit, dry run", topic("{t}a", 6000), topic("{t}b", 6000),
                 validate_only=True, watch=("{t}a", "{t}b"))  # fmt: skip
    yield create("partitions 25", topic(partitions=25, factor=3))
    for factor in (0, -1, -2, 2, 3, 4, 32_767, -32_768):
        yield create(f"factor {factor}", topic(factor=factor))
    yield create("defaults for both", topic(partitions=-1, factor=-1))
    yield create("defaults for both, dry run", topic(partitions=-1, factor=-1), validate_only=True)
    yield create("both bad", topic(partitions=0, factor=0))
    yield create("partitions bad, factor too high", topic(partitions=0, factor=9))
    yield create("partitions huge, factor too high", topic(partitions=20_000, factor=9), validate_only=True)


def assignments() -> Iterator[Case]:
    yield create("assigned", assigned({0: [1, 2], 1: [2, 3], 2: [3, 1]}), replicas=True)
    yield create("assigned, listed out of order", assigned([(1, [3, 1]), (0, [2, 1])]), replicas=True)
    yield create("assigned, dry run", assigned({0: [1, 2]}), validate_only=True)
    yield create("assigned to one", assigned({0: [3]}), replicas=True)
    yield create("assigned with a gap", assigned({0: [1], 2: [2]}))
    yield create("assigned from one", assigned({1: [1]}))
    yield create("assigned a negative partition", assigned({-1: [1]}))
    yield create("assigned a negative partition too", assigned({-1: [1], 0: [1]}))
    yield create("assigned a partition twice", assigned([(0, [1]), (0, [2])]))
    yield create("assigned a partition twice alike", assigned([(0, [1]), (0, [1])]))
    yield create("assigned unequal counts", assigned({0: [1, 2], 1: [3]}))
    yield create("assigned a replica twice", assigned({0: [1, 1]}))
    yield create("assigned an unknown broker", assigned({0: [9]}))
    yield create("assigned a known and an unknown broker", assigned({0: [1, 9]}))
    yield create("assigned a negative broker", assigned({0: [-1]}))
    yield create("assigned a negative broker second", assigned({0: [1, -2]}))
    yield create("assigned nobody", assigned({0: []}))
    yield create("assigned nobody second", assigned({0: [1], 1: []}))
    yield create("assigned with partitions", topic("{t}", 1, -1, {0: [1]}))
    yield create("assigned with factor", topic("{t}", -1, 1, {0: [1]}))
    yield create("assigned with both", topic("{t}", 1, 1, {0: [1]}))
    yield create("assigned with partitions 0", topic("{t}", 0, -1, {0: [1]}))
    yield create("assigned with factor 0", topic("{t}", -1, 0, {0: [1]}))
    yield create("assigned with wrong counts", topic("{t}", 5, 3, {0: [1]}))
    yield create("assigned with counts, exists", topic("{t}", 1, 1, {0: [1]}), before=[topic()])
    yield create("assigned badly and bad config", assigned({0: [9]}, nonsense="1"))


def configs() -> Iterator[Case]:
    yield create("config", topic(retention_ms="1000"))
    yield create("configs of each type", topic(cleanup_policy="compact,delete", compression_type="zstd",
                 retention_ms="-1", min_cleanable_dirty_ratio="0.25", preallocate="true",
                 min_insync_replicas="2"))  # fmt: skip
    yield create("config dry run", topic(retention_ms="1000"), validate_only=True)
    yield create("config unknown", topic(nonsense="1"))
    yield create("config unknown and bad value", topic(nonsense="1", retention_ms="x"))
    yield create("config null", topic(retention_ms=None))
    yield create("config null unknown", topic(nonsense=None))
    yield create("config name empty", {**topic(), "configs": [{"name": "", "value": "1"}]})
    yield create("config twice", {**topic(), "configs": [{"name": "retention.ms", "value": v} for v in "12"]})
    yield create("config twice alike", {**topic(), "configs": [{"name": "retention.ms", "value": "1"}] * 2})
    yield create(
        "config twice, first bad", {**topic(), "configs": [{"name": "retention.ms", "value": v} for v in "x2"]}
    )
    yield create("config name in capitals", {**topic(), "configs": [{"name": "Retention.ms", "value": "1"}]})
    yield create("config bad and partitions bad", topic(partitions=0, retention_ms="x"))
    yield create("config bad and factor too high", topic(factor=9, retention_ms="x"))
    yield create("config bad and name bad", topic("{t}*", retention_ms="x"), watch=())
    for key, value in BAD_VALUES:
        yield create(f"config {key}={value}", {**topic(), "configs": [{"name": key, "value": value}]})
    for key, value in GOOD_VALUES:
        yield create(f"config {key}={value}", {**topic(), "configs": [{"name": key, "value": value}]})


BAD_VALUES = (
    ("cleanup.policy", "shred"), ("cleanup.policy", "compact,shred"), ("cleanup.policy", "DELETE"),
    ("compression.type", "rar"), ("compression.type", ""), ("compression.gzip.level", "0"),
    ("compression.gzip.level", "10"), ("compression.lz4.level", "0"), ("compression.lz4.level", "18"),
    ("compression.zstd.level", "23"), ("compression.zstd.level", "-200000"), ("delete.retention.ms", "-1"),
    ("file.delete.delay.ms", "-1"), ("flush.messages", "0"), ("flush.ms", "-1"), ("index.interval.bytes", "-1"),
    ("leader.replication.throttled.replicas", "0"), ("leader.replication.throttled.replicas", "a:b"),
    ("local.retention.bytes", "-3"), ("local.retention.ms", "-3"), ("max.compaction.lag.ms", "0"),
    ("max.message.bytes", "-1"), ("max.message.bytes", "2147483648"), ("message.timestamp.after.max.ms", "-1"),
    ("message.timestamp.before.max.ms", "-1"), ("message.timestamp.type", "Now"),
    ("message.timestamp.difference.max.ms", "-1"), ("message.format.version", "3.0"),
    ("message.downconversion.enable", "true"),
    ("min.cleanable.dirty.ratio", "1.1"), ("min.cleanable.dirty.ratio", "-0.1"), ("min.cleanable.dirty.ratio", "half"),
    ("min.cleanable.dirty.ratio", "NaN"), ("min.compaction.lag.ms", "-1"), ("min.insync.replicas", "0"),
    ("min.insync.replicas", "1.5"), ("preallocate", "yes"), ("preallocate", "1"), ("remote.log.copy.disable", "true"),
    ("remote.log.delete.on.disable", "true"), ("remote.storage.enable", "true"), ("remote.storage.enable", "x"),
    ("retention.bytes", "-2"), ("retention.bytes", "1e3"), ("retention.ms", "-2"), ("retention.ms", "x"),
    ("retention.ms", ""), ("retention.ms", "9223372036854775808"), ("retention.ms", "0x10"), ("retention.ms", "1_000"),
    ("segment.bytes", "13"), ("segment.bytes", "1048575"), ("segment.bytes", "2147483648"),
    ("segment.index.bytes", "3"), ("segment.jitter.ms", "-1"), ("segment.ms", "0"),
    ("unclean.leader.election.enable", "maybe"), ("log.retention.ms", "1"), ("num.partitions", "1"),
)  # fmt: skip
GOOD_VALUES = (
    ("cleanup.policy", "compact"), ("cleanup.policy", " compact , delete "), ("cleanup.policy", "compact,compact"),
    ("cleanup.policy", ""), ("cleanup.policy", "delete,"), ("compression.type", "uncompressed"),
    ("compression.type", " gzip "), ("compression.gzip.level", "-1"), ("compression.zstd.level", "-131072"),
    ("delete.retention.ms", "0"), ("follower.replication.throttled.replicas", "*"),
    ("follower.replication.throttled.replicas", "0:1,1:2"), ("follower.replication.throttled.replicas", ""),
    ("local.retention.bytes", "-2"), ("max.message.bytes", "0"), ("message.timestamp.type", "LogAppendTime"),
    ("min.cleanable.dirty.ratio", "1"), ("min.cleanable.dirty.ratio", "1e-1"), ("min.cleanable.dirty.ratio", "0.50"),
    ("min.insync.replicas", "5"), ("min.insync.replicas", " 2 "), ("preallocate", "TRUE"), ("preallocate", " false "),
    ("retention.bytes", "-1"), ("retention.ms", "+5"), ("retention.ms", " 5 "), ("retention.ms", "007"),
    ("retention.ms", "9223372036854775807"), ("segment.bytes", "1048576"), ("segment.index.bytes", "4"),
    ("segment.ms", "1"), ("local.retention.ms", "700000000"), ("local.retention.bytes", "5"),
    ("remote.storage.enable", "false"), ("unclean.leader.election.enable", "true"),
)  # fmt: skip


def combined_configs() -> Iterator[Case]:
    """Validation rules that combine two configs."""
    yield create("configs compaction lags crossed", topic(min_compaction_lag_ms="10", max_compaction_lag_ms="5"))
    yield create("configs local retention over retention", topic(retention_ms="10", local_retention_ms="20"))
    yield create("configs local bytes over bytes", topic(retention_bytes="10", local_retention_bytes="20"))
    yield create("configs remote with compact", topic(remote_storage_enable="true", cleanup_policy="compact"))
    yield create("configs min insync over factor", topic(min_insync_replicas="3"))
    yield create("configs of which two are bad", topic(retention_ms="x", segment_bytes="1"))


def requests() -> Iterator[Case]:
    yield create("dry run", topic(partitions=3, factor=2), validate_only=True)
    yield create("dry run with error", topic(partitions=0), validate_only=True)
    yield create("same topic twice", topic(), topic())
    yield create("same topic twice, other counts", topic(), topic(partitions=2))
    yield create("same topic thrice", topic(), topic(), topic())
    yield create("same topic twice and another", topic("{t}a"), topic("{t}a"), topic("{t}b"), watch=("{t}a", "{t}b"))
    yield create("same bad name twice", topic("{t}*"), topic("{t}*"), watch=())
    yield create("same existing topic twice", topic(), topic(), before=[topic()])
    yield create("one good, one bad", topic("{t}a"), topic("{t}b", 0), watch=("{t}a", "{t}b"))
    yield create("two topics", topic("{t}a"), topic("{t}b", 2, 3), watch=("{t}a", "{t}b"))
    yield create("timeout 0", topic(), timeout_ms=0)
    yield create("timeout -1", topic(), timeout_ms=-1)
    yield create("timeout 0 with errors", topic("{t}a"), topic("{t}b", 0), topic("{t}*"), timeout_ms=0,
                 watch=("{t}a", "{t}b"))  # fmt: skip
    yield create("timeout 0, dry run", topic(), timeout_ms=0, validate_only=True)
    yield create("timeout 0, no topics", timeout_ms=0, watch=())
    yield create("timeout 0, exists", topic(), timeout_ms=0, before=[topic()])


def policies() -> Iterator[Case]:
    refused, boom, mute, echo = "refused-{t}", "boom-{t}", "mute-{t}", "echo-{t}"
    yield create("policy refuses", topic(refused), watch=(refused,))
    yield create("policy refuses a dry run", topic(refused), validate_only=True, watch=(refused,))
    yield create("policy refuses one of two", topic(refused), topic(), watch=(refused, "{t}"))
    yield create("policy refuses without a message", topic(mute), watch=(mute,))
    yield create("policy raises", topic(boom), watch=(boom,))
    yield create("policy raises for one of two", topic(boom), topic(), watch=(boom, "{t}"))
    yield create("policy after validation, partitions", topic(refused, partitions=0), watch=(refused,))
    yield create("policy after validation, config", topic(refused, retention_ms="x"), watch=(refused,))
    yield create("policy after validation, unknown config", topic(refused, nonsense="x"), watch=(refused,))
    yield create("policy after placement", topic(refused, factor=9), watch=(refused,))
    yield create("policy after assignment", topic(refused, -1, -1, {0: [9]}), watch=(refused,))
    yield create("policy after existence", topic(refused, partitions=1), topic(refused), watch=(refused,))
    yield create("policy is told", topic(echo, 3, 2, retention_ms="5"), watch=(echo,))
    yield create("policy is told of defaults", topic(echo, -1, -1), watch=(echo,))
    yield create("policy is told of an assignment", topic(echo, -1, -1, {0: [1, 2], 1: [2, 3]}), watch=(echo,))
    yield create("policy is told of null configs", topic(echo, retention_ms=None), watch=(echo,))


CASES = (*names(), *counts(), *assignments(), *configs(), *combined_configs(), *requests(), *policies())
