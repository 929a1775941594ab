"""Every broker-level config of Apache Kafka 4.4: type, default, what is allowed, whether it is dynamic, documentation.

broker_configs.json beside this file holds them, a config a line, as Kafka's own classes say them (AbstractKafkaConfig,
DynamicBrokerConfig, DynamicConfig; the documentation is Kafka's, Apache License 2.0). Those that Kafka calls internal
are left out, as its brokers do not show them.
"""

from __future__ import annotations

import re
from importlib.resources import files

import msgspec

from controller.machine.configs.table import BROKER_SYNONYMS, TOPIC_CONFIGS
from controller.machine.configs.values import Allowed, AtLeast, Between, BetweenOr, ConfigType, ListOf, OneOf
from controller.settings.server import BY_KEY


class BrokerConfig(msgspec.Struct, frozen=True, gc=False):
    """One broker-level config. `default` is that of this controller where it has a setting of the name, else Kafka's;
    None where there is none."""

    name: str
    kind: ConfigType
    default: str | None
    allowed: Allowed
    dynamic: str
    """For whom it can be changed while brokers run (KIP-226): `cluster` for all or one, `broker` for one alone, or
    empty, which is nobody."""
    documentation: str | None

    @property
    def is_sensitive(self) -> bool:
        """Whether its value is a secret, which is never shown."""
        return self.kind is ConfigType.PASSWORD


_Stored = tuple[str, str, str | None, str, str, str | None]
_RANGE = re.compile(r"\[(-?\d+),\.\.\.(?:,(-?\d+))?\](?: or (-?\d+))?")


def _allowed(name: str, kind: ConfigType, text: str) -> Allowed:
    """What a validator allows, from the words in which Kafka says it; what topics inherit is as topics have it."""
    if name in BROKER_SYNONYMS:
        return BROKER_SYNONYMS[name].allowed
    found = _RANGE.fullmatch(text)
    if found is None:
        values = tuple(text.strip("[]").split(", "))
        return None if not text else ListOf(values) if kind is ConfigType.LIST else OneOf(values)
    low, high, other = (None if each is None else int(each) for each in found.groups())
    assert low is not None, "a range has a lower end"
    if high is None:
        return AtLeast(low)
    return Between(low, high) if other is None else BetweenOr(low, high, other)


def _row(stored: _Stored) -> BrokerConfig:
    name, kind_name, default, allowed, dynamic, documentation = stored
    kind = ConfigType[kind_name]
    if default is not None and name in BY_KEY:
        default = BY_KEY[name].default or default
    return BrokerConfig(name, kind, default, _allowed(name, kind, allowed), dynamic, documentation)


_TEXT = files(__package__).joinpath("broker_configs.json").read_bytes()
BROKER_CONFIGS: dict[str, BrokerConfig] = {
    stored[0]: _row(stored) for stored in msgspec.json.decode(_TEXT, type=tuple[_Stored, ...])
}
"""By name, in the order in which Kafka defines them, which is also that in which it looks at values."""

_GROUPS = {
    synonym.name: tuple(each.name for each in row.synonyms)
    for row in TOPIC_CONFIGS
    for synonym in row.synonyms
    if synonym.name != "log.flush.scheduler.interval.ms"  # which is a config of its own too
}
_OF_LISTENER = re.compile(r"listener\.name\.[^.]*\.(.*)")
_OF_MECHANISM = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
"""What a listener can have for each SASL mechanism, behind the mechanism's name."""


def base_name(name: str) -> str:
    """The config that a name is about: for `listener.name.LISTENER.CONFIG` it is CONFIG, else the name itself."""
    found = _OF_LISTENER.fullmatch(name)
    return name if found is None else next((each for each in _OF_MECHANISM if found[1].endswith(each)), found[1])


def is_of_a_listener(name: str) -> bool:
    """Whether a config is for one listener alone."""
    return _OF_LISTENER.fullmatch(name) is not None


def synonyms_of(name: str) -> tuple[str, ...]:
    """The names under which a config is looked for, first what goes before (DynamicBrokerConfig has them)."""
    base = base_name(name)
    return _GROUPS.get(name, (name,)) if base == name else (name, base)
