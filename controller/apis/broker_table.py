"""Every broker config of Apache Kafka 4.4: type, default, allowed values, whether it is dynamic, documentation.

`broker_configs` uses this table. It is read from broker_configs.json, one config a line, exported from Kafka's classes
(AbstractKafkaConfig, DynamicBrokerConfig, DynamicConfig; the documentation is Kafka's, Apache License 2.0). Internal
configs are left out, as Kafka's brokers do not describe them.
"""

from __future__ import annotations

import re
from importlib.resources import files

import msgspec

from controller.machine.configs.table import BROKER_SYNONYMS, TOPIC_CONFIGS
from controller.machine.configs.values import Allowed, ConfigType, allowed_from
from controller.settings.server import BY_KEY


class BrokerConfig(msgspec.Struct, frozen=True, gc=False):
    """One broker config. `default` is that of the setting of this name, if there is one, else Kafka's."""

    name: str
    kind: ConfigType
    default: str | None
    allowed: Allowed
    dynamic: str
    """Scope of dynamic changes (KIP-226): `cluster` for all brokers or one, `broker` for one, empty for none."""
    documentation: str | None

    @property
    def is_sensitive(self) -> bool:
        return self.kind is ConfigType.PASSWORD


_Stored = tuple[str, str, str | None, str, str, str | None]


def _row(stored: _Stored) -> BrokerConfig:
    name, kind_name, default, allowed, dynamic, documentation = stored
    if default is not None and name in BY_KEY:
        default = BY_KEY[name].default or default
    of_topics = BROKER_SYNONYMS.get(name)  # a config that topics inherit has the validator of the topic config
    limits = allowed_from(kind_name, allowed) if of_topics is None else of_topics.allowed
    return BrokerConfig(name, ConfigType[kind_name], default, limits, dynamic, documentation)


_TEXT = files(__package__).joinpath("broker_configs.json").read_bytes()
BROKER_CONFIGS: dict[str, BrokerConfig] = {
    stored[0]: _row(stored) for stored in msgspec.json.decode(_TEXT, type=tuple[_Stored, ...])
}
"""By name, in the order in which Kafka defines the configs and validates their values."""

_GROUPS = {
    synonym.name: tuple(each.name for each in row.synonyms)
    for row in TOPIC_CONFIGS
    for synonym in row.synonyms
    if synonym.name != "log.flush.scheduler.interval.ms"  # which is also a config of its own
}
_OF_LISTENER = re.compile(r"listener\.name\.[^.]*\.(.*)")
_OF_MECHANISM = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
"""Configs of a listener for each SASL mechanism, prefixed by the mechanism's name."""


def base_name(name: str) -> str:
    """CONFIG for `listener.name.LISTENER.CONFIG`, else the name itself."""
    found = _OF_LISTENER.fullmatch(name)
    return name if found is None else next((each for each in _OF_MECHANISM if found[1].endswith(each)), found[1])


def is_of_a_listener(name: str) -> bool:
    return _OF_LISTENER.fullmatch(name) is not None


def synonyms_of(name: str) -> tuple[str, ...]:
    """The names of a config in order of precedence (DynamicBrokerConfig)."""
    base = base_name(name)
    return _GROUPS.get(name, (name,)) if base == name else (name, base)
