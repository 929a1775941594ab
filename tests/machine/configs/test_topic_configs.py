"""Validation of topic configs, compared with Kafka's."""

import ast
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.machine.configs import topic_configs
from controller.machine.configs.topic_configs import BROKER_SYNONYMS, BY_NAME, TOPIC_CONFIGS
from controller.machine.configs.values import Bad, ConfigType, allowed_text, range_text, read_value, value_text
from controller.machine.errors import ErrorCode, Rejection
from tests.machine.configs.kafka_golden import KAFKA, SynonymRow, TableRow, Together


def _synonym(name: str, unit: int) -> SynonymRow:
    row = BROKER_SYNONYMS[name]
    return SynonymRow(name, row.kind.name, row.default, unit)


def _kafkas_row(row: topic_configs.TopicConfig) -> TableRow:
    synonyms = tuple(_synonym(name, unit) for name, unit in row.synonyms.items())
    limits = range_text(row.allowed)
    return TableRow(row.name, row.kind.name, row.default, limits, row.internal, False, synonyms)


def test_topic_config_table_has_kafkas_configs_in_order() -> None:
    assert [row.name for row in TOPIC_CONFIGS] == [row.name for row in KAFKA.table]
    assert KAFKA.kafka.startswith("4.4")


@pytest.mark.parametrize("kafkas", KAFKA.table, ids=lambda row: row.name)
def test_each_topic_config_equals_kafkas(kafkas: TableRow) -> None:
    assert _kafkas_row(BY_NAME[kafkas.name]) == kafkas


@pytest.mark.parametrize("row", TOPIC_CONFIGS, ids=lambda row: row.name)
def test_each_topic_config_default_is_valid_and_documented(row: topic_configs.TopicConfig) -> None:
    assert row.documentation.endswith(".")
    if not row.internal:
        assert row.default is not None
        value = read_value(row.name, row.kind, row.allowed, row.default)
        assert not isinstance(value, Bad)
        assert value_text(value) == row.default


_ALONE = [(name, text, None) for name, alone in KAFKA.alone.items() for text in alone.accepted] + [
    (name, text, message) for name, alone in KAFKA.alone.items() for text, message in alone.refused.items()
]


@pytest.mark.parametrize(("name", "text", "refused"), _ALONE)
def test_one_topic_config_is_validated_as_by_kafka(name: str, text: str, refused: str | None) -> None:
    rejection = topic_configs.validate_topic_configs(((name, text),), ((topic_configs.TIERED_STORAGE_KEY, "true"),))
    if refused is None:
        assert rejection is None
        return
    assert rejection is not None
    assert rejection.code is ErrorCode.INVALID_CONFIG
    assert rejection.message.startswith(refused)


@pytest.mark.parametrize("case", KAFKA.together, ids=lambda case: ",".join(f"{k}={v}" for k, v in case.configs.items()))
def test_several_topic_configs_are_validated_as_by_kafka(case: Together) -> None:
    server = {**case.server, **({topic_configs.TIERED_STORAGE_KEY: "true"} if case.tiered else {})}
    rejection = topic_configs.validate_topic_configs(
        tuple(case.configs.items()), tuple(sorted(server.items())), tuple(case.existing.items())
    )
    if case.refused is None:
        assert rejection is None
        return
    assert rejection is not None
    assert rejection.code is ErrorCode.INVALID_CONFIG
    assert rejection.message.startswith(case.refused.split(". ", maxsplit=1)[0])


# configs, where `_` is a blank and a name alone has no value | the message
MESSAGES = """
retention.ms                  | Null value not supported for topic configs: retention.ms
b segment.ms=0 a              | Null value not supported for topic configs: b,a
retention.msx=1               | Unknown topic config name: retention.msx. Did you mean retention.ms?
message.timestamp.difference.max.ms=1 | Unknown topic config name: message.timestamp.difference.max.ms. \
Did you mean message.timestamp.before.max.ms or message.timestamp.after.max.ms?
zzz=1 segment.ms=0            | Unknown topic config name: zzz
segment.ms=0 segment.bytes=0  | Invalid value 0 for configuration segment.bytes: Value must be at least 1048576; \
allowed: a 32-bit integer in [1048576,...]
retention.ms=a_week           | Invalid value a week for configuration retention.ms: Not a number of type LONG; \
allowed: a 64-bit integer in [-1,...]
cleanup.policy=delete,        | Configuration 'cleanup.policy' values must not be empty. Value: delete,; \
allowed: a comma-separated list of [compact, delete]
min.cleanable.dirty.ratio=NaN | Invalid value NaN for configuration min.cleanable.dirty.ratio: \
Not a number of type DOUBLE; allowed: a decimal number in [0,...,1]
segment.ms=0 segment.ms=1     |
                              |
"""


@pytest.mark.parametrize("line", MESSAGES.strip("\n").splitlines())
def test_topic_config_rejection_messages(line: str) -> None:
    given, _, message = line.partition("|")
    pairs = (each.replace("_", " ").partition("=") for each in given.split())
    rejection = topic_configs.validate_topic_configs(
        [(name, value if equals else None) for name, equals, value in pairs]
    )
    assert ("" if rejection is None else rejection.message) == message.strip()


@pytest.mark.parametrize("row", [row for row in TOPIC_CONFIGS if row.kind is not ConfigType.STRING or row.allowed])
def test_config_rejections_name_key_value_and_allowed_values(row: topic_configs.TopicConfig) -> None:
    rejection = topic_configs.validate_topic_configs(((row.name, "no-such-value"),))
    assert rejection is not None
    assert row.name in rejection.message
    assert "no-such-value" in rejection.message
    limits = range_text(row.allowed).strip("[]")
    assert (limits or allowed_text(row.kind, row.allowed).removeprefix("true or ")) in rejection.message


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("," * topic_configs.VALUE_LENGTH_MAX, True),
        ("," * (topic_configs.VALUE_LENGTH_MAX + 1), False),
        ("\U0001f600" * (topic_configs.VALUE_LENGTH_MAX // 2 + 1), False),
    ],
)
def test_config_values_beyond_the_maximum_length_are_rejected(text: str, accepted: bool) -> None:
    rejection = topic_configs.validate_topic_configs((("leader.replication.throttled.replicas", text),))
    if accepted:
        assert rejection is None
    else:
        assert rejection is not None
        assert "exceeds the maximum value size of 32767 bytes" in rejection.message
        assert len(rejection.message) < 1000


IN_FORCE = """
retention.ms        |                  |                                                     | 604800000
retention.ms        |                  | log.retention.hours=24                              | 86400000
retention.ms        |                  | log.retention.hours=24,log.retention.minutes=1      | 60000
retention.ms        |                  | log.retention.hours=24,log.retention.ms=7           | 7
retention.ms        |                  | log.retention.hours=-1                              | -1
retention.ms        | retention.ms=9   | log.retention.ms=7                                  | 9
segment.ms          |                  | log.roll.hours=2                                    | 7200000
segment.jitter.ms   |                  | log.roll.jitter.hours=1                             | 3600000
flush.ms            |                  | log.flush.scheduler.interval.ms=5                   | 5
flush.ms            |                  | log.flush.interval.ms=4,log.flush.scheduler.interval.ms=5 | 4
min.insync.replicas |                  | min.insync.replicas=2                               | 2
min.insync.replicas | preallocate=true | num.partitions=3                                    | 1
max.message.bytes   |                  | message.max.bytes=+10                               | 10
cleanup.policy      |                  | log.cleanup.policy=compact                          | compact
preallocate         | preallocate=TRUE |                                                     | true
retention.ms        |                  | log.retention.ms=nonsense                           | 604800000
retention.ms        | retention.ms=x   |                                                     | None
"""


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    parts = (each.partition("=") for each in text.split(",") if each.strip())
    return tuple((key.strip(), value.strip()) for key, _, value in parts)


@pytest.mark.parametrize("line", IN_FORCE.strip().splitlines())
def test_effective_topic_config_value_follows_precedence(line: str) -> None:
    name, explicit, server, expected = (cell.strip() for cell in line.split("|"))
    value = topic_configs.topic_config(name, _pairs(explicit), _pairs(server))
    assert (str(value) if value is None else value_text(value)) == expected


BROKER_LEVEL = """
log.retention.hours             | 168  | 168
log.retention.hours             | -1   | -1
log.retention.hours             | 0    | Value must be at least 1 or equal to -1
log.retention.ms                | 0    | Value must be at least 1 or equal to -1
log.retention.minutes           | 2.5  | Not a number of type INT
log.roll.hours                  | 0    | Value must be at least 1
log.roll.ms                     | 0    | Value must be at least 1
log.roll.jitter.ms              | -1   | Value must be at least 0
log.segment.bytes               | 1000 | Value must be at least 1048576
log.cleaner.min.cleanable.ratio | 1.1  | Value must be no more than 1
compression.type                | lzo  | String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer
"""


@pytest.mark.parametrize("line", BROKER_LEVEL.strip().splitlines())
def test_broker_level_config_values_are_validated(line: str) -> None:
    name, text, expected = (cell.strip() for cell in line.split("|"))
    synonym = BROKER_SYNONYMS[name]
    value = read_value(name, synonym.kind, synonym.allowed, text)
    if isinstance(value, Bad):
        start = f"Invalid value {text} for configuration {name}: {expected}"
        assert value.message.startswith(start)
    else:
        assert value_text(value) == expected


def test_contradictory_broker_level_configs_are_found() -> None:
    lags = (("log.cleaner.max.compaction.lag.ms", "9"), ("log.cleaner.min.compaction.lag.ms", "10"))
    assert topic_configs.contradicting_defaults(lags) == (
        "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (9)"
    )
    assert topic_configs.contradicting_defaults(lags[:1]) is None


def test_each_broker_synonym_belongs_to_one_topic_config() -> None:
    assert len(BROKER_SYNONYMS) == sum(len(row.synonyms) for row in TOPIC_CONFIGS)


_NAMES = st.one_of(st.sampled_from(sorted(BY_NAME)), st.text(max_size=20))
_TEXTS = st.one_of(
    st.integers(-(1 << 65), 1 << 65).map(str),
    st.floats().map(str),
    st.sampled_from(["true", "false", "delete", "compact", "compact,delete", "gzip", "0:1,1:2", "*", ""]),
    st.text(alphabet=string.printable, max_size=30),
    st.text(max_size=30),
)
_SERVER = st.dictionaries(
    st.sampled_from([*sorted(BROKER_SYNONYMS), topic_configs.TIERED_STORAGE_KEY]), _TEXTS, max_size=6
)


@given(st.dictionaries(_NAMES, st.none() | _TEXTS, max_size=6), _SERVER, st.dictionaries(_NAMES, _TEXTS, max_size=3))
def test_validation_of_any_configs_returns_or_rejects(
    configs: dict[str, str | None], server: dict[str, str], existing: dict[str, str]
) -> None:
    rejection = topic_configs.validate_topic_configs(
        configs.items(), tuple(sorted(server.items())), tuple(existing.items())
    )
    assert rejection is None or isinstance(rejection, Rejection), f"neither None nor a Rejection for {configs}"
    again = topic_configs.validate_topic_configs(
        configs.items(), tuple(sorted(server.items())), tuple(existing.items())
    )
    assert again == rejection, "validation is deterministic"


@given(st.sampled_from(TOPIC_CONFIGS), _TEXTS)
def test_described_configs_parse_to_the_same_value(row: topic_configs.TopicConfig, text: str) -> None:
    value = read_value(row.name, row.kind, row.allowed, text)
    if not isinstance(value, Bad):
        shown = value_text(value)
        again = read_value(row.name, row.kind, row.allowed, shown)
        assert value in (again, ("",)), f"{text!r} is {value!r}, shown as {shown!r}, read as {again!r}"


CANONICAL = """
min.insync.replicas            | ' 2'                | 2
min.insync.replicas            | '\\t+02\\n'          | 2
min.insync.replicas            | '\\u0662'            | 2
retention.ms                   | ' -1 '              | -1
unclean.leader.election.enable | ' true'             | true
unclean.leader.election.enable | 'TRUE '             | true
cleanup.policy                 | ' compact , delete' | compact,delete
cleanup.policy                 | ' '                 |
compression.type               | ' zstd '            | zstd
min.cleanable.dirty.ratio      | ' 0x1p-1 '          | 0.5
min.cleanable.dirty.ratio      | '.25f'              | 0.25
"""


@pytest.mark.parametrize("line", CANONICAL.strip().splitlines())
def test_topics_store_canonical_config_texts(line: str) -> None:
    name, text, expected = (cell.strip() for cell in line.split("|"))
    given_text = ast.literal_eval(text)
    assert topic_configs.validate_topic_configs([(name, given_text)]) is None
    assert topic_configs.explicit_configs([(name, given_text)]) == ((name, expected),)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0x1p-1", 0.5),
        ("0X.8P0d", 0.5),
        ("0x1.p-2", 0.25),
        ("-0x1p9999", float("-inf")),
        ("0x1p-9999", 0.0),
        ("0x1", None),  # Java requires the exponent
        ("0xp1", None),
        ("nan", None),
    ],
)
def test_doubles_are_parsed_as_by_java(text: str, value: float | None) -> None:
    read = read_value("any", ConfigType.DOUBLE, None, text)
    assert isinstance(read, Bad) if value is None else read == value


def test_digits_outside_the_bmp_are_invalid() -> None:
    assert isinstance(read_value("any", ConfigType.INT, None, "\U0001d7d0"), Bad)


@given(st.sampled_from(TOPIC_CONFIGS), _TEXTS, st.text(alphabet="\t\n\r ", max_size=3))
def test_canonical_config_texts_preserve_the_value(row: topic_configs.TopicConfig, text: str, blanks: str) -> None:
    value = read_value(row.name, row.kind, row.allowed, blanks + text + blanks)
    canonical = row.canonical(blanks + text + blanks)
    if isinstance(value, Bad):
        return
    match row.kind:
        case ConfigType.BOOLEAN:
            assert canonical in ("true", "false"), "Boolean.parseBoolean reads all else as false"
        case ConfigType.INT | ConfigType.LONG:
            assert re.fullmatch("-?[0-9]+", canonical), "Integer.parseInt rejects all else"
    assert read_value(row.name, row.kind, row.allowed, canonical) in (value, ()), f"{text!r} became {canonical!r}"
    assert row.canonical(canonical) == canonical


@given(_SERVER)
def test_every_config_has_an_effective_value_for_any_settings(server: dict[str, str]) -> None:
    values = topic_configs.effective_values(tuple(sorted(server.items())))
    missing = {row.name for row in TOPIC_CONFIGS if not row.internal} - set(values)
    assert not missing, f"no effective value of {missing}"
