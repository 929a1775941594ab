"""Changes of topic, broker and group configs, compared with Kafka's responses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.machine.commands.commands import AlterResourceConfigs
from controller.machine.configs import changes
from controller.machine.configs.changes import OpType, altered_topic_configs, check_resources
from controller.machine.configs.views import ConfigSource, described_configs, effective_configs
from controller.machine.errors import ErrorCode, Rejection
from controller.machine.state import BROKERS, GROUPS, TOPICS, Cluster, DictTopics, State
from events.catalog import ConfigOp, Configs, ResourceConfigsChanged
from events.names import RequestId, TopicName
from tests.machine.configs.kafka_golden import KAFKA, Alter
from tests.machine.in_short import in_short
from tests.machine.rig import Rig, fold
from tests.machine.tables import command, play, stories
from tests.machine.tables import given as rig_with


def _alter(case: Alter) -> Configs | Rejection:
    before = tuple(sorted(case.before.items()))
    if any(op == "REPLACE" for _, op, _ in case.ops) or (case.after == {} and not case.ops):
        ops = [ConfigOp(name, OpType.SET, value) for name, _, value in case.ops]
        return altered_topic_configs(before, ops, incremental=False)
    return altered_topic_configs(before, [ConfigOp(name, OpType[op], value) for name, op, value in case.ops])


def _shown(configs: Configs) -> dict[str, str | None]:
    own = (entry for entry in described_configs(configs, ()) if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG)
    return {entry.name: entry.value for entry in own}


@pytest.mark.parametrize("case", KAFKA.alter, ids=lambda case: f"{case.before} {case.ops}")
def test_config_alterations_equal_kafkas(case: Alter) -> None:
    result = _alter(case)
    if isinstance(result, Rejection):
        assert result.code.name == case.error
        assert result.message.startswith(case.message or "")
    else:
        assert case.error is None
        assert _shown(result) == case.after


def test_altered_configs_are_stored_as_canonical_texts() -> None:
    name = "cleanup.policy"
    assert altered_topic_configs((), [ConfigOp(name, OpType.SET, " compact , delete ")]) == ((name, "compact,delete"),)
    appended = altered_topic_configs(((name, "delete"),), [ConfigOp(name, OpType.APPEND, " compact")])
    assert appended == ((name, "delete,compact"),)
    stored_by_kafka = (("min.insync.replicas", " 2"), ("unclean.leader.election.enable", " true"))
    repaired = altered_topic_configs(stored_by_kafka, [ConfigOp("min.insync.replicas", OpType.SET, "2")])
    assert repaired == (("min.insync.replicas", "2"), ("unclean.leader.election.enable", "true"))
    replaced = altered_topic_configs((), [ConfigOp("min.insync.replicas", OpType.SET, " +2 ")], incremental=False)
    assert replaced == (("min.insync.replicas", "2"),)


def test_config_deletions_alone_do_not_validate_the_remaining_configs() -> None:
    leftovers = (("message.downconversion.enable", "true"), ("message.format.version", "3.0"), ("segment.bytes", "14"))
    for name, _ in leftovers:
        left = tuple(pair for pair in leftovers if pair[0] != name)
        assert altered_topic_configs(leftovers, [ConfigOp(name, OpType.DELETE, None)]) == left
    delete, and_set = ConfigOp(leftovers[0][0], OpType.DELETE, None), ConfigOp("retention.ms", OpType.SET, "1")
    rejection = altered_topic_configs(leftovers, [delete, and_set])
    assert isinstance(rejection, Rejection)
    assert rejection.message == "Unknown topic config name: message.format.version"


def test_an_unknown_operation_is_an_invalid_request() -> None:
    rejection = altered_topic_configs((), [ConfigOp("retention.ms", 9, "5")])
    assert isinstance(rejection, Rejection)
    assert rejection.code is ErrorCode.INVALID_REQUEST
    assert rejection.message == (
        "Unknown operations type 9 for key retention.ms; allowed: SET 0, DELETE 1, APPEND 2, SUBTRACT 3"
    )


def test_append_beyond_the_maximum_value_length_is_rejected() -> None:
    name = "leader.replication.throttled.replicas"
    items = ",".join(f"{each}:1" for each in range(4000))
    more = ",".join(f"{each}:2" for each in range(4000))
    rejection = altered_topic_configs(((name, items),), [ConfigOp(name, OpType.APPEND, more)])
    assert isinstance(rejection, Rejection)
    assert rejection.code is ErrorCode.INVALID_CONFIG
    assert rejection.message.startswith("The configuration value cannot be added because it exceeds the maximum")


def test_deleting_remote_storage_enable_cannot_disable_remote_storage() -> None:
    rejection = altered_topic_configs(
        (("remote.storage.enable", "true"),), [ConfigOp("remote.storage.enable", OpType.DELETE, None)]
    )
    assert isinstance(rejection, Rejection)
    assert rejection.message.startswith("It is invalid to disable remote storage without deleting remote data.")


def test_altered_configs_are_validated_with_broker_defaults() -> None:
    ops = [ConfigOp("max.compaction.lag.ms", OpType.SET, "9")]
    assert altered_topic_configs((), ops) == (("max.compaction.lag.ms", "9"),)
    for incremental in (True, False):
        found = altered_topic_configs((), ops, (("log.cleaner.min.compaction.lag.ms", "10"),), incremental=incremental)
        assert isinstance(found, Rejection)


def test_config_resources_of_a_request_are_validated() -> None:
    resources = [(TOPICS, "a"), (TOPICS, "b"), (TOPICS, "a"), (4, "1"), (TOPICS, "")]
    verdicts = [None if each is None else (each.code, each.message) for each in check_resources(resources)]
    twice = (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    unknown = (ErrorCode.INVALID_REQUEST, "Unknown resource type 4")
    unnamed = (ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    assert verdicts == [twice, None, twice, unknown, unnamed]


_ITEMS = st.lists(st.sampled_from(["0:1", "1:1", "2:1", "3:1"]), max_size=4, unique=True)


@given(_ITEMS, _ITEMS)
def test_append_and_subtract_are_ordered_set_operations(old: list[str], new: list[str]) -> None:
    name = "follower.replication.throttled.replicas"
    current = ((name, ",".join(old)),)
    appended = altered_topic_configs(current, [ConfigOp(name, OpType.APPEND, ",".join(new))])
    expected = [*old, *(each for each in new if each not in old)]
    assert not isinstance(appended, Rejection), f"{old} + {new}"
    items = [each for each in appended[0][1].split(",") if each]
    assert items == expected, f"{old} + {new} gave {items}"
    taken = altered_topic_configs(appended, [ConfigOp(name, OpType.SUBTRACT, ",".join(new))])
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
def test_any_config_operations_give_configs_or_a_rejection(ops: list[ConfigOp]) -> None:
    result = altered_topic_configs((("cleanup.policy", "compact"),), ops)
    if not isinstance(result, Rejection):
        names = [name for name, _ in result]
        assert names == sorted(set(names)), f"{ops} left {names}"
        same = altered_topic_configs(result, [])
        assert same == result, f"{ops} left invalid configs: {same}"


def altered(kind: int, *ops: ConfigOp, before: Configs = (), incremental: bool = True) -> Configs | tuple[int, str]:
    """Returns the configs of a resource after a change, or the error code and message."""
    name = "" if kind == BROKERS else "g"
    state = State(DictTopics(), Cluster().with_configs({(kind, name): before}))
    command = AlterResourceConfigs(
        request_id=RequestId("r"),
        at_ms=0,
        topic=TopicName(f"{kind}:{name}"),
        kind=kind,
        name=name,
        ops=ops,
        incremental=incremental,
        principal="User:u",
        client_id=None,
        host="",
        api="IncrementalAlterConfigs",
        api_version=1,
    )
    decision = changes.alter(state, command)
    (answer,) = decision.answers
    if answer.code:
        return int(answer.code), answer.message
    (event,) = decision.events
    assert isinstance(event, ResourceConfigsChanged)
    return event.configs


def put(name: str, value: str) -> ConfigOp:
    return ConfigOp(name, OpType.SET, value)


STORED = """
4  | min.insync.replicas            | ' 2'            | 2
4  | unclean.leader.election.enable | ' TRUE'         | true
4  | log.cleanup.policy             | 'compact , delete' | compact,delete
4  | log.retention.hours            | '+05 '          | 5
4  | cordoned.log.dirs              | ' /a , /b '     | /a,/b
4  | num.io.threads                 | ' 8 '           | 8
4  | unknown.to.kafka               | ' x y '         | x y
32 | consumer.session.timeout.ms    | ' 46000'        | 46000
32 | share.renew.acknowledge.enable | 'FALSE '        | false
16 | metrics                        | ' a , b'        | a,b
16 | interval.ms                    | ' 1000 '        | 1000
"""


@pytest.mark.parametrize("line", STORED.strip().splitlines())
def test_broker_and_group_config_texts_are_stored_as_kafka_reads_them(line: str) -> None:
    kind, name, text, stored = (cell.strip() for cell in line.split("|"))
    for incremental in (True, False):
        found = altered(int(kind), put(name, text.strip("'")), incremental=incremental)
        assert found == ((name, stored),)


@pytest.mark.parametrize("name", ["min.insync.replicas", "unclean.leader.election.enable", "log.retention.ms"])
def test_a_broker_config_that_topics_inherit_must_be_valid(name: str) -> None:
    code, message = altered(BROKERS, put(name, "abc"))
    assert code == ErrorCode.INVALID_CONFIG
    assert str(message).startswith(f"Invalid value abc for configuration {name}: ")
    stored_by_kafka = ((name, "abc"),)
    assert altered(BROKERS, put("num.io.threads", "9"), before=stored_by_kafka) == (
        *sorted([("num.io.threads", "9"), *stored_by_kafka]),
    )


GROUP = """
consumer.session.timeout.ms=50000                                        | NONE
consumer.nonsense=1                                                      | Unknown group config name: consumer.nonsense
consumer.session.timeout.ms=x                                            | Invalid value x for configuration consumer.s
consumer.session.timeout.ms=0                                            | Invalid value 0 for configuration consumer.s
consumer.session.timeout.ms=1000                                         | consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive.
consumer.heartbeat.interval.ms=15001                                     | consumer.heartbeat.interval.ms must be in the range 5000 to 15000 inclusive.
streams.num.standby.replicas=3                                           | streams.num.standby.replicas must be less than or equal to 2
streams.task.offset.interval.ms=2                                        | streams.task.offset.interval.ms must be greater than or equal to 15000
share.isolation.level=read_all                                           | Invalid value read_all for configuration share.isolation.level: String must be one of
share.auto.offset.reset=earliest                                         | NONE
share.auto.offset.reset=by_duration:PT1H                                 | NONE
share.auto.offset.reset=by_duration:P1DT2H3.5S                           | NONE
share.auto.offset.reset=by_duration:                                     | Invalid value by_duration:
share.auto.offset.reset=by_duration:PT                                   | Invalid value by_duration:PT
share.auto.offset.reset=by_duration:-PT1H                                | Invalid value by_duration:-PT1H
share.auto.offset.reset=none                                             | Invalid value none
streams.assignor.name=mine                                               | streams.assignor.name 'mine' is not a registered task assignor. Registered assignors are: [sticky].
streams.rack.aware.assignment.tags=a,b                                   | NONE
streams.rack.aware.assignment.tags=a, a                                  | streams.rack.aware.assignment.tags must not contain duplicate tag keys.
errors.deadletterqueue.topic.name=__dlq                                  | errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'
"""  # noqa: E501


@pytest.mark.parametrize("line", GROUP.strip().splitlines())
def test_group_configs_are_validated_as_by_kafka(line: str) -> None:
    pair, expected = (cell.strip() for cell in line.split(" | "))
    name, _, text = pair.partition("=")
    found = altered(GROUPS, put(name, text))
    if expected == "NONE":
        assert found == ((name, text),)
    else:
        assert found[0] == ErrorCode.INVALID_CONFIG
        assert str(found[1]).startswith(expected)


def test_invalid_group_configs_are_deleted_one_by_one() -> None:
    leftovers = (("consumer.session.timeout.ms", "7"), ("gone", "1"))
    delete = ConfigOp("gone", OpType.DELETE, None)
    assert altered(GROUPS, delete, before=leftovers) == leftovers[:1]
    assert altered(GROUPS, ConfigOp("x", OpType.DELETE, None), put("share.renew.acknowledge.enable", "true"),
                   before=leftovers)[0] == ErrorCode.INVALID_CONFIG  # fmt: skip


def outcomes(rig: Rig, *lines: str) -> list[str]:
    return [in_short(rig.put(command(rig, line))) for line in lines]


FLOOR = "INVALID_REPLICATION_FACTOR validation:under-replicated-floor"
STORIES = f"""
# min.insync.replicas of the cluster applies until it is deleted
1 fewer
    create a 1x3 timeout=0 | requested created(1/1.-1.-2) answered => REQUEST_TIMED_OUT
    configure 4: set:min.insync.replicas=2 | configs(4: min.insync.replicas=2) => NONE
    create b 1x3 | refused => {FLOOR}
    partitions a to=2 | rejected => {FLOOR}
    create c 1x3 conf=minisr=1 | requested created(1/1.-1.-2)
    configure 4: delete:min.insync.replicas | configs(4: ) => NONE
    create b 1x3 | requested created(1/1.-1.-2)

# a dynamic broker default overrides static settings
1 fewer minisr=1
    configure 4: set:min.insync.replicas=2 | configs(4: min.insync.replicas=2) => NONE
    create b 1x3 | refused => {FLOOR}
    settings 2.0 fewer minisr=1 | settings
    create b 1x3 | refused => {FLOOR}

# min.insync.replicas of one broker does not affect creates
1 fewer
    configure 4:1 set:min.insync.replicas=2 | configs(4:1 min.insync.replicas=2) => NONE
    create b 1x3 | requested created(1/1.-1.-2)

# creates are validated with the effective defaults
1
    configure 4: set:log.cleaner.max.compaction.lag.ms=5 | configs(4: log.cleaner.max.compaction.lag.ms=5) => NONE
    create b 1x1 conf=min.compaction.lag.ms=9 | refused => INVALID_CONFIG validation:configs
"""


@pytest.mark.parametrize(("about", "lines"), stories(STORIES))
def test_creates_follow_dynamic_broker_configs(about: str, lines: list[str]) -> None:
    rig = rig_with(lines[0])
    play(rig, lines[1:])
    assert fold(rig.log).cluster == rig.state.cluster, about


@pytest.mark.parametrize("static", [(), (("log.retention.hours", "24"),), (("log.retention.ms", "9"),)])
def test_topic_configs_have_source_and_synonyms(static: tuple[tuple[str, str], ...]) -> None:
    dynamic = (("log.retention.ms", "+7"), ("nonsense", "1"))
    (created,) = (each for each in effective_configs((), static, dynamic) if each.name == "retention.ms")
    assert (created.value, created.source) == ("+7", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    (shown,) = (each for each in described_configs((), static, dynamic) if each.name == "retention.ms")
    assert (shown.value, shown.source) == ("7", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    chain = [(each.name, each.value, each.source) for each in shown.synonyms]
    assert chain == [
        ("log.retention.ms", "+7", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        *((name, value, ConfigSource.STATIC_BROKER_CONFIG) for name, value in static),
        ("log.retention.hours", "168", ConfigSource.DEFAULT_CONFIG),
    ]


def test_with_elr_topics_have_the_cluster_min_insync_replicas() -> None:
    rig = rig_with("minisr=2")
    outcomes(rig, "quorum elr")
    settings = rig.state.cluster.settings
    for view in (effective_configs, described_configs):
        shown = {each.name: each for each in view((), settings.topic_defaults, settings.dynamic_defaults)}
        floor = shown["min.insync.replicas"]
        assert (floor.value, floor.source) == ("2", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    join = outcomes(rig, "join 1", "configure 4:1 delete:min.insync.replicas", "configure 4: replace set:a=b")
    assert join[1:] == ["=> INVALID_CONFIG validation:alter-request"] * 2, "neither deleted nor set for one"
