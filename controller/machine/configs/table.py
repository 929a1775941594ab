"""All topic configs of Apache Kafka 4.4: type, default, allowed values, broker-level names.

They are read from topic_configs.json, one config a line, in the order of Kafka's LogConfig. Checks use the same order,
because the response names the first bad value. A test compares the table with Kafka's.

If a topic does not set a config, it uses the first of its `synonyms` that the operator set (KIP-226), else `default`.
"""

from __future__ import annotations

from importlib.resources import files

import msgspec

from controller.machine.configs.values import ConfigRow, ConfigType, allowed_from

KAFKA_VERSION = "4.4"


class Synonym(ConfigRow, frozen=True, gc=False):
    """A broker-level setting that is a default of topics.

    `unit` converts its number to the topic's unit (hours to ms). `default` is Kafka's default of the broker-level
    setting; None if another synonym of the row has it.
    """

    unit: int = 1


class TopicConfig(ConfigRow, frozen=True, gc=False):
    """A topic config. `default` is the text that DescribeConfigs returns; None for internal configs.

    `internal` configs are for tests of brokers: clients may set them, and responses have them only if they are set.
    """

    synonyms: tuple[Synonym, ...]
    documentation: str

    @property
    def internal(self) -> bool:
        return self.default is None


_Broker = tuple[str, str, str | None, str, int]
_Stored = tuple[str, str, str | None, str, str | tuple[_Broker, ...] | None, str]
"""A line of the file: name, type, default, allowed values, broker-level names, documentation. A single broker-level
name has the type, default and limits of the topic config; each of several names has its own, and a unit."""


def _row(stored: _Stored) -> TopicConfig:
    name, kind_name, default, allowed, broker, documentation = stored
    if isinstance(broker, str):
        broker = ((broker, kind_name, default, allowed, 1),)
    synonyms = tuple(
        Synonym(each, ConfigType[kind], text, allowed_from(kind, limits), unit)
        for each, kind, text, limits, unit in broker or ()
    )
    return TopicConfig(name, ConfigType[kind_name], default, allowed_from(kind_name, allowed), synonyms, documentation)


_TEXT = files(__package__).joinpath("topic_configs.json").read_bytes()
TOPIC_CONFIGS = tuple(map(_row, msgspec.json.decode(_TEXT, type=tuple[_Stored, ...])))

BY_NAME: dict[str, TopicConfig] = {row.name: row for row in TOPIC_CONFIGS}

BROKER_SYNONYMS: dict[str, Synonym] = {synonym.name: synonym for row in TOPIC_CONFIGS for synonym in row.synonyms}
"""All broker-level settings that are defaults of topics, by name."""
