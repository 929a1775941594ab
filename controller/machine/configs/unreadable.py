"""Stored config values that Kafka itself cannot read.

Kafka validates a value without the blanks around it, and stores it with them. Its controller reads two configs, for
topics and for what they inherit, by parsers that bear no blanks: with `min.insync.replicas` of " 2" it gives up the
lead whenever it leads, and `unclean.leader.election.enable` of " true" it reads as false. Its brokers fail alike on the
numbers of groups. Topicwright stores no such text, but may meet one in a log that Kafka wrote.
"""

from __future__ import annotations

from collections.abc import Mapping

from controller.machine.configs.groups import GROUP_CONFIGS, GROUPS
from controller.machine.configs.table import BY_NAME
from controller.machine.configs.topic_configs import MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION
from controller.machine.configs.values import Bad, ConfigType, canonical_text, read_value
from controller.machine.state import BROKERS
from events.catalog import Configs

TOPICS = 2
"""Kafka's number of topics among what has configs."""

_ENTITIES = {TOPICS: "topics", BROKERS: "brokers", GROUPS: "groups"}
_Kinds = Mapping[str, ConfigType]
_BY_CONTROLLER: _Kinds = {name: BY_NAME[name].kind for name in (MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION)}
_BY_BROKERS: _Kinds = {row.name: row.kind for row in GROUP_CONFIGS.values() if row.kind is ConfigType.INT}
_READ: dict[int, _Kinds] = {TOPICS: _BY_CONTROLLER, BROKERS: _BY_CONTROLLER, GROUPS: _BY_BROKERS}


def unreadable(kind: int, configs: Configs) -> Configs:
    """Those configs of a resource that Kafka cannot read."""
    kinds = _READ.get(kind, {})
    return tuple((name, text) for name, text in configs if name in kinds and not _is_plain(name, kinds[name], text))


def repair(kind: int, resource: str, name: str, text: str) -> str:
    """The `kafka-configs` command that repairs a value, or deletes it if no valid value can be read from it."""
    entity = f"--entity-name '{resource}'" if resource else "--entity-default"
    canonical = canonical_text(name, _READ[kind][name], None, text)
    is_value = _is_plain(name, _READ[kind][name], canonical)
    change = f"--add-config {name}={canonical}" if is_value else f"--delete-config {name}"
    return f"kafka-configs --bootstrap-server HOST:PORT --alter --entity-type {_ENTITIES[kind]} {entity} {change}"


def _is_plain(name: str, kind: ConfigType, text: str) -> bool:
    return text == text.strip() and not isinstance(read_value(name, kind, None, text), Bad)
