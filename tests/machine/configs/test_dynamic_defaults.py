"""Dynamic configs of all brokers (KIP-226) are defaults of topics: they count for what is decided from then on."""

from __future__ import annotations

import pytest

from controller.machine.configs.views import ConfigSource, described_configs, effective_configs
from tests.machine.in_short import in_short
from tests.machine.rig import Rig, fold
from tests.machine.tables import command, given

FLOOR = "refused => INVALID_REPLICATION_FACTOR validation:under-replicated-floor"


def outcomes(rig: Rig, *lines: str) -> list[str]:
    """What comes of each line."""
    return [in_short(rig.put(command(rig, line))) for line in lines]


def test_a_floor_of_all_brokers_holds_for_creates_and_growth_until_it_is_taken_away() -> None:
    rig = given("1 fewer")
    assert outcomes(rig, "create a 1x3 timeout=0")[0].startswith("requested created")
    assert outcomes(
        rig,
        "configure 4: set:min.insync.replicas=2",
        "create b 1x3",
        "partitions a to=2",
        "create c 1x3 conf=minisr=1",
        "configure 4: delete:min.insync.replicas",
        "create b 1x3",
    ) == [
        "configs(4: min.insync.replicas=2) => NONE",
        FLOOR,
        "rejected => INVALID_REPLICATION_FACTOR validation:under-replicated-floor",
        "requested created(1/1.-1.-2)",
        "configs(4: ) => NONE",
        "requested created(1/1.-1.-2)",
    ]


def test_it_goes_before_the_settings_and_outlives_a_change_of_them() -> None:
    rig = given("1 fewer minisr=1")
    assert outcomes(rig, "configure 4: set:min.insync.replicas=2", "create b 1x3")[1] == FLOOR
    rig.settings((("enable.under.replicated.topic.creation", "true"), ("min.insync.replicas", "1")))
    assert outcomes(rig, "create b 1x3") == [FLOOR]
    assert fold(rig.log).cluster == rig.state.cluster


def test_one_brokers_own_decides_nothing() -> None:
    rig = given("1 fewer")
    assert outcomes(rig, "configure 4:1 set:min.insync.replicas=2", "create b 1x3")[1] == "requested created(1/1.-1.-2)"


def test_topics_that_cannot_be_are_refused_by_the_defaults_in_force() -> None:
    rig = given("1")
    lines = ("configure 4: set:log.cleaner.max.compaction.lag.ms=5", "create b 1x1 conf=min.compaction.lag.ms=9")
    assert outcomes(rig, *lines)[1] == "refused => INVALID_CONFIG validation:configs"


@pytest.mark.parametrize("static", [(), (("log.retention.hours", "24"),), (("log.retention.ms", "9"),)])
def test_topics_show_where_it_comes_from(static: tuple[tuple[str, str], ...]) -> None:
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


def test_with_eligible_leader_replicas_every_topic_shows_the_floor_of_all_brokers() -> None:
    rig = given("minisr=2")
    outcomes(rig, "quorum elr")
    settings = rig.state.cluster.settings
    for view in (effective_configs, described_configs):
        shown = {each.name: each for each in view((), settings.topic_defaults, settings.dynamic_defaults)}
        floor = shown["min.insync.replicas"]
        assert (floor.value, floor.source) == ("2", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    join = outcomes(rig, "join 1", "configure 4:1 delete:min.insync.replicas", "configure 4: replace set:a=b")
    assert join[1:] == ["=> INVALID_CONFIG validation:alter-request"] * 2, "neither taken away nor set for one"
