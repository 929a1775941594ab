"""Changes of topic configs against Kafka's own answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.machine.configs.changes import (
    TOPICS,
    OpType,
    check_resources,
    incremental_alter,
    replace_configs,
)
from controller.machine.configs.views import ConfigSource, described_configs
from controller.machine.errors import ErrorCode, Rejection
from events.catalog import ConfigOp, Configs
from tests.machine.configs.kafka_golden import KAFKA, Alter


def _alter(case: Alter) -> Configs | Rejection:
    before = tuple(sorted(case.before.items()))
    if any(op == "REPLACE" for _, op, _ in case.ops) or (case.after == {} and not case.ops):
        return replace_configs(before, [(name, value) for name, _, value in case.ops])
    return incremental_alter(before, [ConfigOp(name, OpType[op], value) for name, op, value in case.ops])


def _shown(configs: Configs) -> dict[str, str | None]:
    own = (entry for entry in described_configs(configs, ()) if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG)
    return {entry.name: entry.value for entry in own}


@pytest.mark.parametrize("case", KAFKA.alter, ids=lambda case: f"{case.before} {case.ops}")
def test_a_change_ends_as_in_kafka(case: Alter) -> None:
    result = _alter(case)
    if isinstance(result, Rejection):
        assert result.code.name == case.error
        assert result.message.startswith(case.message or "")
    else:
        assert case.error is None
        assert _shown(result) == case.after


ALTERED = """
b=2                     | SET a 1          | a=1 b=2
a=1 b=2                 | SET a 3          | a=3 b=2
a=1 b=2                 | DELETE a         | b=2
"""


@pytest.mark.parametrize("line", ALTERED.strip().splitlines())
def test_the_result_is_sorted_and_complete(line: str) -> None:
    names = {"a": "retention.ms", "b": "segment.ms"}
    before, op, expected = (cell.strip() for cell in line.split("|"))
    current = tuple((names[key], value) for key, _, value in (each.partition("=") for each in before.split()))
    kind, key, *value = op.split()
    result = incremental_alter(current, [ConfigOp(names[key], OpType[kind], value[0] if value else None)])
    assert not isinstance(result, Rejection)
    assert " ".join(f"{'ab'[name == 'segment.ms']}={value}" for name, value in result) == expected


def test_a_change_stores_canonical_texts() -> None:
    name = "cleanup.policy"
    assert incremental_alter((), [ConfigOp(name, OpType.SET, " compact , delete ")]) == ((name, "compact,delete"),)
    appended = incremental_alter(((name, "delete"),), [ConfigOp(name, OpType.APPEND, " compact")])
    assert appended == ((name, "delete,compact"),)
    stored_by_kafka = (("min.insync.replicas", " 2"), ("unclean.leader.election.enable", " true"))
    repaired = incremental_alter(stored_by_kafka, [ConfigOp("min.insync.replicas", OpType.SET, "2")])
    assert repaired == (("min.insync.replicas", "2"), ("unclean.leader.election.enable", "true"))
    assert replace_configs((), [("min.insync.replicas", " +2 ")]) == (("min.insync.replicas", "2"),)


def test_deletes_alone_do_not_check_the_configs_that_remain() -> None:
    leftovers = (("message.downconversion.enable", "true"), ("message.format.version", "3.0"), ("segment.bytes", "14"))
    for name, _ in leftovers:
        left = tuple(pair for pair in leftovers if pair[0] != name)
        assert incremental_alter(leftovers, [ConfigOp(name, OpType.DELETE, None)]) == left
    delete, and_set = ConfigOp(leftovers[0][0], OpType.DELETE, None), ConfigOp("retention.ms", OpType.SET, "1")
    rejection = incremental_alter(leftovers, [delete, and_set])
    assert isinstance(rejection, Rejection)
    assert rejection.message == "Unknown topic config name: message.format.version"


def test_an_unknown_operation_is_an_invalid_request() -> None:
    rejection = incremental_alter((), [ConfigOp("retention.ms", 9, "5")])
    assert isinstance(rejection, Rejection)
    assert rejection.code is ErrorCode.INVALID_REQUEST
    assert rejection.message == (
        "Unknown operations type 9 for key retention.ms; allowed: SET 0, DELETE 1, APPEND 2, SUBTRACT 3"
    )


def test_a_list_may_not_grow_beyond_the_longest_value() -> None:
    name = "leader.replication.throttled.replicas"
    items = ",".join(f"{each}:1" for each in range(4000))
    more = ",".join(f"{each}:2" for each in range(4000))
    rejection = incremental_alter(((name, items),), [ConfigOp(name, OpType.APPEND, more)])
    assert isinstance(rejection, Rejection)
    assert rejection.code is ErrorCode.INVALID_CONFIG
    assert rejection.message.startswith("The configuration value cannot be added because it exceeds the maximum")


def test_removing_the_last_config_cannot_end_remote_storage() -> None:
    rejection = incremental_alter(
        (("remote.storage.enable", "true"),), [ConfigOp("remote.storage.enable", OpType.DELETE, None)]
    )
    assert isinstance(rejection, Rejection)
    assert rejection.message.startswith("It is invalid to disable remote storage without deleting remote data.")


def test_broker_level_settings_count_when_values_must_fit_together() -> None:
    ops = [ConfigOp("max.compaction.lag.ms", OpType.SET, "9")]
    assert incremental_alter((), ops) == (("max.compaction.lag.ms", "9"),)
    assert isinstance(incremental_alter((), ops, (("log.cleaner.min.compaction.lag.ms", "10"),)), Rejection)
    assert isinstance(
        replace_configs((), [("max.compaction.lag.ms", "9")], (("log.cleaner.min.compaction.lag.ms", "10"),)), Rejection
    )


def test_resources_of_a_request() -> None:
    resources = [(TOPICS, "a"), (TOPICS, "b"), (TOPICS, "a"), (4, "1"), (TOPICS, "")]
    verdicts = [None if each is None else (each.code, each.message) for each in check_resources(resources)]
    twice = (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    unknown = (ErrorCode.INVALID_REQUEST, "Unknown resource type 4")
    unnamed = (ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    assert verdicts == [twice, None, twice, unknown, unnamed]


_ITEMS = st.lists(st.sampled_from(["0:1", "1:1", "2:1", "3:1"]), max_size=4, unique=True)


@given(_ITEMS, _ITEMS)
def test_appending_then_subtracting_is_set_arithmetic_in_order(old: list[str], new: list[str]) -> None:
    name = "follower.replication.throttled.replicas"
    current = ((name, ",".join(old)),)
    appended = incremental_alter(current, [ConfigOp(name, OpType.APPEND, ",".join(new))])
    expected = [*old, *(each for each in new if each not in old)]
    assert not isinstance(appended, Rejection), f"{old} + {new}"
    items = [each for each in appended[0][1].split(",") if each]
    assert items == expected, f"{old} + {new} gave {items}"
    taken = incremental_alter(appended, [ConfigOp(name, OpType.SUBTRACT, ",".join(new))])
    assert not isinstance(taken, Rejection), f"{items} - {new}"
    left = [each for each in taken[0][1].split(",") if each]
    assert left == [each for each in items if each not in new], f"{items} - {new} left {left}"


_OPS = st.builds(
    ConfigOp,
    st.sampled_from(["retention.ms", "cleanup.policy", "segment.bytes", "nonsense"]),
    st.integers(-1, 4),
    st.none() | st.sampled_from(["1", "delete", "compact", "delete,compact", "2097152", "", ","]),
)


@given(st.lists(_OPS, max_size=4))
def test_any_operations_end_in_configs_or_in_a_rejection(ops: list[ConfigOp]) -> None:
    result = incremental_alter((("cleanup.policy", "compact"),), ops)
    if not isinstance(result, Rejection):
        names = [name for name, _ in result]
        assert names == sorted(set(names)), f"{ops} left {names}"
        same = incremental_alter(result, [])
        assert same == result, f"{ops} left configs that are not valid: {same}"
