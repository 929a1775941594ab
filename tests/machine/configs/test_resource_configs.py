"""Configs of brokers and groups: what the controller stores of them, and what it refuses."""

from __future__ import annotations

import pytest

from controller.machine.commands.commands import AlterResourceConfigs
from controller.machine.configs import changes
from controller.machine.configs.changes import OpType
from controller.machine.configs.groups import GROUPS
from controller.machine.errors import ErrorCode
from controller.machine.state import BROKERS, Cluster, DictTopics, State
from events.catalog import ConfigOp, Configs, ResourceConfigsChanged
from events.names import RequestId, TopicName


def altered(kind: int, *ops: ConfigOp, before: Configs = (), incremental: bool = True) -> Configs | tuple[int, str]:
    """The configs of a resource after a change, or the error of its answer."""
    name = "" if kind == BROKERS else "g"
    state = State(DictTopics(), Cluster().with_configs(kind, name, before))
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
def test_texts_are_stored_as_kafka_can_read_them(line: str) -> None:
    kind, name, text, stored = (cell.strip() for cell in line.split("|"))
    for incremental in (True, False):
        found = altered(int(kind), put(name, text.strip("'")), incremental=incremental)
        assert found == ((name, stored),)


@pytest.mark.parametrize("name", ["min.insync.replicas", "unclean.leader.election.enable", "log.retention.ms"])
def test_what_topics_inherit_must_be_a_value(name: str) -> None:
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
def test_the_configs_of_a_group_get_kafkas_verdict(line: str) -> None:
    pair, expected = (cell.strip() for cell in line.split(" | "))
    name, _, text = pair.partition("=")
    found = altered(GROUPS, put(name, text))
    if expected == "NONE":
        assert found == ((name, text),)
    else:
        assert found[0] == ErrorCode.INVALID_CONFIG
        assert str(found[1]).startswith(expected)


def test_a_group_is_cleaned_up_config_by_config() -> None:
    leftovers = (("consumer.session.timeout.ms", "7"), ("gone", "1"))
    delete = ConfigOp("gone", OpType.DELETE, None)
    assert altered(GROUPS, delete, before=leftovers) == leftovers[:1]
    assert altered(GROUPS, ConfigOp("x", OpType.DELETE, None), put("share.renew.acknowledge.enable", "true"),
                   before=leftovers)[0] == ErrorCode.INVALID_CONFIG  # fmt: skip
