"""Effective configs in CreateTopics and DescribeConfigs, compared with Kafka's responses."""

import pytest

from controller.machine.configs.topic_configs import BY_NAME, TOPIC_CONFIGS
from controller.machine.configs.values import ConfigType
from controller.machine.configs.views import ConfigEntry, ConfigSource, described_configs, effective_configs
from events.catalog import Configs
from tests.machine.configs.kafka_golden import KAFKA, KAFKA_44, CreatedEntry, DescribedEntry, View

ELR_CONFIG = "min.insync.replicas"
"""Kafka 4.3 enables eligible leader replicas (KIP-966) by default, and then sets this config for the cluster."""


def _sorted(configs: dict[str, str]) -> Configs:
    return tuple(sorted(configs.items()))


def _as_created(entry: ConfigEntry) -> CreatedEntry:
    return CreatedEntry(entry.name, entry.value, entry.source.name, entry.read_only, entry.sensitive)


def _as_described(entry: ConfigEntry) -> DescribedEntry:
    synonyms = tuple((each.name, each.value, each.source.name) for each in entry.synonyms)
    return DescribedEntry(entry.name, entry.value, entry.source.name, entry.config_type.name, synonyms)


def _without_elr(view: View) -> tuple[list[CreatedEntry], list[DescribedEntry]]:
    """Returns Kafka's responses without the config source that eligible leader replicas add."""
    added = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.name
    created = [each for each in view.created if each.source != added]
    described = [each for each in view.described if added not in str(each)]
    dropped = {each.name for each in view.created} - {each.name for each in created}
    assert dropped <= {ELR_CONFIG}
    return created, described


@pytest.mark.parametrize("view", KAFKA.views, ids=lambda view: ",".join(view.configs) or "no configs")
def test_create_topics_and_describe_configs_equal_kafkas(view: View) -> None:
    created, described = _without_elr(view)
    names = {each.name for each in created}
    given = _sorted(view.configs), _sorted(view.server)
    effective, all_described = effective_configs(*given), described_configs(*given)
    assert [_as_created(each) for each in effective if each.name in names] == created
    assert [_as_described(each) for each in all_described if each.name in {one.name for one in described}] == described
    assert {each.name for each in (*effective, *all_described)} - names <= {ELR_CONFIG, *KAFKA_44.alone}


def test_topics_without_configs_share_one_tuple() -> None:
    server = (("log.retention.hours", "1"),)
    assert effective_configs((), server) is effective_configs((), tuple(server))
    assert described_configs((), server) is described_configs((), tuple(server))


def test_described_configs_are_all_public_ones_sorted_by_name() -> None:
    shown = [entry.name for entry in effective_configs((), ())]
    assert shown == sorted(row.name for row in TOPIC_CONFIGS if not row.internal)
    assert [entry.name for entry in described_configs((), ())] == shown


def test_described_configs_have_documentation_and_is_default() -> None:
    explicit = (("retention.ms", "5"),)
    for entry in (*effective_configs(explicit, ()), *described_configs(explicit, ())):
        assert entry.documentation == BY_NAME[entry.name].documentation
        assert entry.is_default == (entry.name != "retention.ms")


SYNONYMS = """
segment.ms          | log.roll.ms=5,log.roll.hours=2 | log.roll.ms=5:4 log.roll.hours=2:4 log.roll.hours=168:5
segment.ms          | log.roll.hours=2               |
retention.ms        | log.retention.minutes=1        |
min.insync.replicas | min.insync.replicas=2          | min.insync.replicas=2:4 min.insync.replicas=1:5
preallocate         |                                | log.preallocate=false:5
remote.storage.enable |                              |
"""


@pytest.mark.parametrize("line", SYNONYMS.strip().splitlines())
def test_described_config_has_kafkas_synonyms(line: str) -> None:
    name, server, expected = (cell.strip() for cell in line.split("|"))
    defaults = tuple((key, value) for key, _, value in (each.partition("=") for each in server.split(",") if each))
    entry = next(each for each in described_configs((), defaults) if each.name == name)
    assert " ".join(f"{each.name}={each.value}:{int(each.source)}" for each in entry.synonyms) == expected


@pytest.mark.parametrize("view", [effective_configs, described_configs])
def test_an_unknown_stored_config_is_described_unchanged(view: object) -> None:
    assert callable(view)
    entries = {entry.name: entry for entry in view((("from.the.future", " x "),), ())}
    entry = entries["from.the.future"]
    assert (entry.config_type, entry.documentation) == (ConfigType.UNKNOWN, None)
    assert str(entry.value).strip() == "x"
    assert entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG


def test_an_invalid_stored_config_value_is_described_unchanged() -> None:
    entry = next(each for each in described_configs((("segment.bytes", "1000"),), ()) if each.name == "segment.bytes")
    assert (entry.value, entry.source) == ("1000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
