"""The effective topic configs as the APIs return them: CreateTopics (v5+, KIP-525) and DescribeConfigs.

CreateTopics returns texts as given. DescribeConfigs returns parsed values (`+5` as 5, hours as ms), with their
synonyms. Both results are cached, because most topics have no explicit configs.

Configs are not validated here: unknown names in the log are returned too.
"""

from collections.abc import Mapping
from enum import IntEnum
from functools import lru_cache

import msgspec

from controller.machine.configs.topic_configs import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    TopicConfig,
    effective_values,
    operators_default,
    row_of,
)
from controller.machine.configs.values import Bad, ConfigType, value_text
from controller.machine.state import merged_defaults
from events.catalog import Configs


class ConfigSource(IntEnum):
    """The source of a config, with the numbers of DescribeConfigs (KIP-226)."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class ConfigSynonym(msgspec.Struct, frozen=True, gc=False):
    """A setting that could determine the value of a config; the first synonym is effective."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(msgspec.Struct, frozen=True, gc=False):
    """An effective config with its source. `value` is None if the value is sensitive or missing."""

    name: str
    value: str | None
    source: ConfigSource
    config_type: ConfigType
    documentation: str | None
    synonyms: tuple[ConfigSynonym, ...] = ()
    read_only: bool = False
    sensitive: bool = False

    @property
    def is_default(self) -> bool:
        """True if the source is Kafka's default; DescribeConfigs v0 returns this instead of the source."""
        return self.source is ConfigSource.DEFAULT_CONFIG


@lru_cache(maxsize=256)
def effective_configs(explicit: Configs, broker_defaults: Configs, dynamic: Configs = ()) -> tuple[ConfigEntry, ...]:
    """All configs of a topic as CreateTopics v5+ returns them, sorted by name (KIP-525).

    Texts are as given, except that hours and minutes are converted. There are no synonyms, as in Kafka. `dynamic` are
    the dynamic configs of all brokers, which take precedence over `broker_defaults`.
    """
    entries = [_entry(_row(name), text, ConfigSource.DYNAMIC_TOPIC_CONFIG) for name, text in explicit]
    return _overlaid(_effective_base(broker_defaults, dynamic), entries)


@lru_cache(maxsize=256)
def described_configs(explicit: Configs, broker_defaults: Configs, dynamic: Configs = ()) -> tuple[ConfigEntry, ...]:
    """All configs of a topic as DescribeConfigs returns them, sorted by name, with synonyms (KIP-226)."""
    base = _described_base(broker_defaults, dynamic)
    chains = {entry.name: entry.synonyms for entry in base}
    return _overlaid(base, [_described_entry(name, text, chains.get(name, ())) for name, text in explicit])


def _overlaid(base: tuple[ConfigEntry, ...], entries: list[ConfigEntry]) -> tuple[ConfigEntry, ...]:
    if not entries:
        return base
    own = {entry.name: entry for entry in entries}
    kept = [entry for entry in base if entry.name not in own]
    return tuple(sorted([*kept, *own.values()], key=lambda entry: entry.name))


_Origin = tuple[ConfigSource, Mapping[str, str]]


def _origins(broker_defaults: Configs, dynamic: Configs) -> tuple[_Origin, ...]:
    """The sources of broker-level settings, in order of precedence."""
    return (
        (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, dict(dynamic)),
        (ConfigSource.STATIC_BROKER_CONFIG, dict(broker_defaults)),
    )


@lru_cache(maxsize=16)
def _effective_base(broker_defaults: Configs, dynamic: Configs) -> tuple[ConfigEntry, ...]:
    origins = _origins(broker_defaults, dynamic)
    entries = []
    for row in TOPIC_CONFIGS:
        found = ((operators_default(row, chosen), source) for source, chosen in origins)
        text, source = next((one for one in found if one[0] is not None), (row.default, ConfigSource.DEFAULT_CONFIG))
        if text is not None:
            entries.append(_entry(row, text, source))
    return tuple(sorted(entries, key=lambda entry: entry.name))


def _entry(
    row: TopicConfig, value: str | None, source: ConfigSource, synonyms: tuple[ConfigSynonym, ...] = ()
) -> ConfigEntry:
    return ConfigEntry(row.name, value, source, row.kind, row.documentation or None, synonyms)


@lru_cache(maxsize=16)
def _described_base(broker_defaults: Configs, dynamic: Configs) -> tuple[ConfigEntry, ...]:
    values, origins = effective_values(merged_defaults(broker_defaults, dynamic)), _origins(broker_defaults, dynamic)
    entries = []
    for row in TOPIC_CONFIGS:
        if not row.internal:
            chain = _chain(row, origins)
            source = chain[0].source if chain else ConfigSource.DEFAULT_CONFIG
            entries.append(_entry(row, value_text(values[row.name]), source, chain))
    return tuple(sorted(entries, key=lambda entry: entry.name))


def _described_entry(name: str, text: str, chain: tuple[ConfigSynonym, ...]) -> ConfigEntry:
    row = _row(name)
    value = row.read(text)
    shown = text if isinstance(value, Bad) else value_text(value)
    source = ConfigSource.DYNAMIC_TOPIC_CONFIG
    return _entry(row, shown, source, (ConfigSynonym(name, shown, source), *chain))


def _chain(row: TopicConfig, origins: tuple[_Origin, ...]) -> tuple[ConfigSynonym, ...]:
    """The synonyms of a row of the table that have a value: first those that are set, then defaults.

    Kafka starts the chain at the row's first name and returns nothing if that has no value: retention set only by
    `log.retention.hours` has a default as its source and no synonyms. This function does the same.
    """
    defaults = {name: text for name in row.synonyms if (text := BROKER_CONFIGS[name].default) is not None}
    chain = tuple(
        ConfigSynonym(name, chosen[name], source)
        for source, chosen in (*origins, (ConfigSource.DEFAULT_CONFIG, defaults))
        for name in row.synonyms
        if name in chosen
    )
    return chain if chain and chain[0].name == next(iter(row.synonyms)) else ()


def _row(name: str) -> TopicConfig:
    """The row of a config. If only the log has the config, it is without type and documentation, as in Kafka."""
    return row_of(name) or TopicConfig(name, ConfigType.UNKNOWN, None, None, {}, "")
