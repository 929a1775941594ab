"""Config values that Kafka stored but cannot read are reported by name, each with a repair command."""

import pytest
import structlog

from controller.brokers.kraft.kraft_brokers import UnreadableConfigs
from controller.machine.configs.changes import repair, unreadable
from controller.machine.state import BROKERS, GROUPS, TOPICS
from events.catalog import Configs, ResourceConfigsChanged, TopicDiscovered, TopicVanished
from events.names import RequestId, TopicId, TopicName

MIN_ISR, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"


@pytest.mark.parametrize(
    ("kind", "config", "text", "is_found"),
    [
        (TOPICS, MIN_ISR, " 2", True),
        (TOPICS, MIN_ISR, "2\n", True),
        (TOPICS, MIN_ISR, "+2", False),
        (TOPICS, MIN_ISR, "\u0662", False),
        (TOPICS, MIN_ISR, "abc", True),
        (TOPICS, UNCLEAN, " true", True),
        (TOPICS, UNCLEAN, "TRUE", False),
        (TOPICS, "retention.ms", " 5", False),  # Kafka ignores the blank
        (BROKERS, MIN_ISR, "2 ", True),
        (BROKERS, "log.retention.ms", " 5", False),
        (GROUPS, "consumer.session.timeout.ms", " 46000", True),
        (GROUPS, "share.isolation.level", " read_committed", False),
        (16, "interval.ms", " 1000", False),
    ],
)
def test_unreadable_config_values_are_found(kind: int, config: str, text: str, is_found: bool) -> None:
    assert bool(unreadable(kind, ((config, text),))) is is_found


def test_the_repair_command_sets_or_deletes_the_config() -> None:
    start = "kafka-configs --bootstrap-server HOST:PORT --alter --entity-type"
    assert repair(TOPICS, "t", MIN_ISR, " 2") == f"{start} topics --entity-name 't' --add-config {MIN_ISR}=2"
    assert repair(TOPICS, "t", MIN_ISR, "abc") == f"{start} topics --entity-name 't' --delete-config {MIN_ISR}"
    assert repair(BROKERS, "", UNCLEAN, " TRUE") == f"{start} brokers --entity-default --add-config {UNCLEAN}=true"


def test_unreadable_configs_follow_the_events() -> None:
    found = UnreadableConfigs()
    of_all: Configs = ((MIN_ISR, " 3"),)
    changed = ResourceConfigsChanged(RequestId("r"), BROKERS, "", of_all, "User:kafka", None)
    with structlog.testing.capture_logs() as logs:
        configs = (MIN_ISR, " 2"), (UNCLEAN, " true")
        found.on_event(TopicDiscovered(TopicName("t"), TopicId(bytes(16)), (), configs, ""))
        found.on_event(changed)
        found.on_event(changed)
    assert found.count == 3
    assert [each["why"] for each in logs] == list(found.lines())
    assert [line.partition("; repair it: ")[0] for line in found.lines()] == [
        f"Kafka cannot read {MIN_ISR}=' 2' of t",
        f"Kafka cannot read {UNCLEAN}=' true' of t",
        f"Kafka cannot read {MIN_ISR}=' 3'",
    ]
    found.on_event(TopicVanished(TopicName("t"), TopicId(bytes(16)), ""))
    found.on_event(ResourceConfigsChanged(RequestId("r"), BROKERS, "", ((MIN_ISR, "3"),), "User:kafka", None))
    assert (found.count, list(found.lines())) == (0, [])
