"""All topic configs of Apache Kafka 4.4, their validation and their effective values, for topics and for the settings.

The table has type, default, allowed values and broker-level names. It is read from topic_configs.json, one config a
line, in the order of Kafka's LogConfig. A test compares it with Kafka's. If a topic does not set a config, it uses the
first of its `synonyms` that the operator set (KIP-226), else `default`.

Checks follow Kafka's order, because the first error is the response: null values, values too large, unknown names, then
each value in the order of the table, then contradictions. All rejections are INVALID_CONFIG (40), with messages that
begin like Kafka's.

A topic also has labels: configs `label.NAME` that no broker gets (`without_labels`).
"""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType

import msgspec

from controller.machine.configs.values import Bad, ConfigRow, ConfigType, Value, read_values
from controller.machine.errors import ErrorCode, Rejection
from controller.machine.state import Settings
from events.catalog import Configs


class TopicConfig(ConfigRow, frozen=True, gc=False):
    """A topic config. `default` is the text that DescribeConfigs returns; None for internal configs.

    `internal` configs are for tests of brokers: clients may set them, and responses have them only if they are set.
    """

    synonyms: Mapping[str, int]
    """The broker-level configs that are its default; a number of theirs times this is in the unit of the topic."""
    documentation: str

    @property
    def internal(self) -> bool:
        return self.default is None


class BrokerConfig(ConfigRow, frozen=True, gc=False):
    """A broker config of Apache Kafka 4.4. One that topics inherit has the limits of the topic config.

    The table broker_configs.json is exported from Kafka's classes (AbstractKafkaConfig, DynamicBrokerConfig,
    DynamicConfig; the documentation is Kafka's, Apache License 2.0), without internal configs, which Kafka's brokers do
    not describe.
    """

    dynamic: str
    """Scope of dynamic changes (KIP-226): `cluster` for all brokers or one, `broker` for one, empty for none."""
    documentation: str | None

    @property
    def is_sensitive(self) -> bool:
        return self.kind is ConfigType.PASSWORD


_FOLDER = files(__package__)
TOPIC_CONFIGS = msgspec.json.decode(_FOLDER.joinpath("topic_configs.json").read_bytes(), type=tuple[TopicConfig, ...])
BY_NAME: dict[str, TopicConfig] = {row.name: row for row in TOPIC_CONFIGS}
_BROKER_CONFIGS = _FOLDER.joinpath("broker_configs.json").read_bytes()
BROKER_CONFIGS = {row.name: row for row in msgspec.json.decode(_BROKER_CONFIGS, type=tuple[BrokerConfig, ...])}
"""By name, in the order in which Kafka defines the configs and validates their values."""
BROKER_SYNONYMS = {name: BROKER_CONFIGS[name] for row in TOPIC_CONFIGS for name in row.synonyms}
"""All broker-level configs that are defaults of topics, by name."""
TIERED_STORAGE_KEY = "remote.log.storage.system.enable"
"""The only broker-level setting that topic configs depend on without being their default (KIP-405)."""
TOPIC_DEFAULTS = {**BROKER_SYNONYMS, TIERED_STORAGE_KEY: BROKER_CONFIGS[TIERED_STORAGE_KEY]}


LABEL = "label."
"""The prefix of labels: facts about a topic for people and rules, which are stored as configs of the topic."""
LABELS_MAX, LABEL_BYTES_MAX = 20, 500
"""Limits for the labels of a topic, and for the value of each in UTF-8."""
_LABEL_NAME = re.compile(r"[A-Za-z0-9._-]{1,60}")
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

VALUE_LENGTH_MAX = 32_767
"""The longest value that Kafka's controller accepts, in UTF-16 units."""

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"

_RULE = "validation:configs"
_SUCCESSORS = {
    "message.timestamp.difference.max.ms": ["message.timestamp.before.max.ms", "message.timestamp.after.max.ms"]
}
"""Configs that Kafka 4.0 removed, with their replacements (KIP-937)."""


def validate_topic_configs(
    configs: Iterable[tuple[str, str | None]], broker_defaults: Configs = (), existing: Configs = ()
) -> Rejection | None:
    """Returns the first error in the explicit configs of a topic, or None if they are valid.

    `broker_defaults` are broker-level settings of the operator. `existing` are the previous configs; they only matter
    for disabling remote storage. If a name is given twice, the last value counts, as in Kafka.
    """
    wanted = dict(configs)
    if not wanted and not existing:
        return None
    explicit = {name: value for name, value in wanted.items() if value is not None}
    if len(explicit) < len(wanted):
        missing = ",".join(name for name, value in wanted.items() if value is None)
        return invalid_config(f"Null value not supported for topic configs: {missing}")
    rejection = too_long(explicit)
    if any(name.startswith(LABEL) for name in explicit):
        rejection = rejection or _invalid_label(labels_of(explicit.items()))
        explicit = dict(without_labels(explicit.items()))
    rejection = rejection or _unknown_name(explicit)
    if rejection is not None:
        return rejection
    values = read_values(TOPIC_CONFIGS if len(explicit) > 1 else (BY_NAME[name] for name in explicit), explicit)
    if isinstance(values, Bad):
        return invalid_config(values.message)
    effective = {**effective_values(broker_defaults), **values}
    tiered = dict(broker_defaults).get(TIERED_STORAGE_KEY, "").strip().lower() == "true"
    return _contradiction(effective, dict(existing), tiered)


def invalid_config(message: str) -> Rejection:
    return Rejection(ErrorCode.INVALID_CONFIG, message, _RULE)


def labels_of(configs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Returns the labels among configs, by name without the prefix."""
    return {name.removeprefix(LABEL): text for name, text in configs if name.startswith(LABEL)}


def has_label(configs: Iterable[tuple[str, str]], wanted: str) -> bool:
    """Returns True if configs have a label `NAME=VALUE`, or `NAME` with any value."""
    name, is_given, value = wanted.partition("=")
    return any(key == LABEL + name and (not is_given or text == value) for key, text in configs)


def without_labels(configs: Iterable[tuple[str, str]]) -> Configs:
    """Returns the configs that brokers get."""
    return tuple((name, text) for name, text in configs if not name.startswith(LABEL))


def with_labels_of(known: Configs, seen: Configs) -> Configs:
    """Returns configs that were `seen` at brokers, with the labels of the `known` configs."""
    labels = tuple(pair for pair in known if pair[0].startswith(LABEL))
    return tuple(sorted((*without_labels(seen), *labels))) if labels else seen


def row_of(name: str) -> TopicConfig | None:
    """Returns the row of a topic config or of a label; None for an unknown name."""
    row = BY_NAME.get(name)
    if row is None and name.startswith(LABEL) and _LABEL_NAME.fullmatch(name.removeprefix(LABEL)):
        return TopicConfig(name, ConfigType.STRING, None, None, {}, "A label of the topic, for people and rules.")
    return row


def topic_config(name: str, explicit: Iterable[tuple[str, str | None]], broker_defaults: Configs) -> Value | None:
    """Returns the effective value of a config, by the type in the table. None if it has no valid value."""
    for key, text in explicit:
        if key == name and text is not None:
            value = BY_NAME[name].read(text)
            return None if isinstance(value, Bad) else value
    return effective_values(broker_defaults).get(name)


def contradicting_defaults(broker_defaults: Configs) -> str | None:
    """Returns the contradiction between broker-level settings that are valid individually, or None."""
    found = _compaction_lags(effective_values(broker_defaults))
    return None if found is None else found.message


def explicit_configs(configs: Iterable[tuple[str, str | None]]) -> Configs:
    """Returns configs as they are stored: sorted, in canonical form, the last value of a duplicate name."""
    given = dict(configs).items()
    texts = ((name, value) for name, value in given if value is not None)
    return tuple(sorted((name, BY_NAME[name].canonical(text) if name in BY_NAME else text) for name, text in texts))


def min_insync_replicas(configs: Configs, settings: Settings) -> int:
    """Returns the effective min.insync.replicas; 1 if the stored value is invalid."""
    value = topic_config(MIN_INSYNC_REPLICAS, configs, settings.effective_defaults)
    return value if isinstance(value, int) else 1


def allows_unclean_election(configs: Configs, settings: Settings) -> bool:
    return topic_config(UNCLEAN_ELECTION, configs, settings.effective_defaults) is True


# Checks of explicit values.


def too_long(explicit: Mapping[str, str]) -> Rejection | None:
    """Rejects the first value that is longer than Kafka accepts, for any resource."""
    for name, value in explicit.items():
        if len(value.encode("utf-16-le", "surrogatepass")) // 2 > VALUE_LENGTH_MAX:
            return invalid_config(
                "The configuration value cannot be added because it exceeds the maximum value size of "
                f"{VALUE_LENGTH_MAX} bytes. Name: {name[:100]}; length: {len(value)}"
            )
    return None


def _invalid_label(labels: Mapping[str, str]) -> Rejection | None:
    if len(labels) > LABELS_MAX:
        return invalid_config(f"The topic would have {len(labels)} labels; allowed: at most {LABELS_MAX}")
    for name, value in labels.items():
        if not _LABEL_NAME.fullmatch(name):
            allowed = "1 to 60 letters, digits, '.', '_' and '-'"
            return invalid_config(f"Invalid name of a label: {LABEL}{name[:100]}; allowed after '{LABEL}': {allowed}")
        if name == "protected" and value.lower() not in ("true", "false"):
            return invalid_config(f"Invalid value of {LABEL}protected: {value[:100]!r}; allowed: true, false")
        size = len(value.encode("utf-8", "replace"))
        if size > LABEL_BYTES_MAX or UNPRINTABLE.search(value):
            problem = f"has {size} bytes" if size > LABEL_BYTES_MAX else "has control characters or broken Unicode"
            return invalid_config(
                f"The value of {LABEL}{name} {problem}; allowed: at most {LABEL_BYTES_MAX} bytes of printable UTF-8"
            )
    return None


def _unknown_name(explicit: Mapping[str, str]) -> Rejection | None:
    for name in explicit:
        if name not in BY_NAME:
            near = _SUCCESSORS.get(name) or (get_close_matches(name, BY_NAME, n=1) if len(name) <= 100 else [])
            hint = f". Did you mean {' or '.join(near)}?" if near else ""
            return invalid_config(f"Unknown topic config name: {name}{hint}")
    return None


def _contradiction(values: Mapping[str, Value], existing: Mapping[str, str], tiered: bool) -> Rejection | None:
    found = _compaction_lags(values)
    if found is not None:
        return found
    if values["remote.storage.enable"]:
        return _remote_storage(values, tiered)
    had_remote = existing.get("remote.storage.enable", "").strip().lower() == "true"
    if had_remote and not values["remote.log.delete.on.disable"]:
        return invalid_config(
            "It is invalid to disable remote storage without deleting remote data. To keep the remote data read-only, "
            "set `remote.storage.enable=true,remote.log.copy.disable=true`. To delete all remote data, set "
            "`remote.storage.enable=false,remote.log.delete.on.disable=true`."
        )
    return None


def _compaction_lags(values: Mapping[str, Value]) -> Rejection | None:
    low, high = _number(values, "min.compaction.lag.ms"), _number(values, "max.compaction.lag.ms")
    if low <= high:
        return None
    return invalid_config(
        f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})"
    )


def _remote_storage(values: Mapping[str, Value], tiered: bool) -> Rejection | None:
    if not tiered:
        return invalid_config(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log "
            f"storage. Name: remote.storage.enable; allowed: false, unless the broker has {TIERED_STORAGE_KEY}=true"
        )
    if values["cleanup.policy"] not in ((), ("delete",)):
        return invalid_config(
            "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list."
        )
    checks = (local_retention, _copy_lag, _frozen_retention)
    found = (check(values, unit) for check in checks for unit in ("bytes", "ms"))
    return next((invalid_config(why) for why in found if why is not None), None)


def local_retention(values: Mapping[str, Value], unit: str, prefix: str = "") -> str | None:
    """Returns the error if local retention exceeds total retention. `prefix` precedes the names in the message."""
    local, whole = _number(values, f"local.retention.{unit}"), _number(values, f"retention.{unit}")
    start = f"Invalid value {local} for configuration {prefix}local.retention.{unit}: Value must not be"
    if whole > -1 and local == -1:
        return f"{start} -1 as {prefix}retention.{unit} value is set as {whole}."
    if -1 < whole < local:
        return f"{start} more than {prefix}retention.{unit} property value: {whole}"
    return None


def _copy_lag(values: Mapping[str, Value], unit: str) -> str | None:
    """Returns the error if local segments are deleted before they may be copied to remote storage (KIP-1241)."""
    name, local_name = f"remote.copy.lag.{unit}", f"local.retention.{unit}"
    lag, local = _number(values, name), _number(values, local_name)
    local = _number(values, f"retention.{unit}") if local == -2 else local
    if lag <= 0 or not 0 <= local < lag:
        return None
    why = f"Value must not exceed {local_name} (effective value: {local})"
    return f"Invalid value {lag} for configuration {name}: {why}"


def _frozen_retention(values: Mapping[str, Value], unit: str) -> str | None:
    """Returns the error if remote storage accepts no more segments and local and total retention differ (KIP-950)."""
    local = _number(values, f"local.retention.{unit}")
    if not values["remote.log.copy.disable"] or local in (-2, _number(values, f"retention.{unit}")):
        return None
    return (
        f"When `remote.log.copy.disable` is set to true, the `local.retention.{unit}` and `retention.{unit}` must be "
        "set to the identical value because there will be no more logs copied to the remote storage."
    )


def _number(values: Mapping[str, Value], name: str) -> int:
    value = values[name]
    assert isinstance(value, int), f"{name} is a number in the table"
    return value


# Effective values from broker-level settings.


def operators_default(row: TopicConfig, broker_defaults: Mapping[str, str]) -> str | None:
    """Returns the text of the first synonym that the operator set, in the unit of the topic config, or None."""
    for name, unit in row.synonyms.items():
        text = broker_defaults.get(name)
        if text is not None:
            value = BROKER_CONFIGS[name].read(text)
            if unit == 1 or not isinstance(value, int):
                return text
            return str(value * unit) if value >= 0 else "-1"
    return None


@lru_cache(maxsize=16)
def effective_values(broker_defaults: Configs) -> Mapping[str, Value]:
    """Returns the effective values of a topic without explicit configs, by name. Invalid broker-level texts are
    ignored."""
    chosen = dict(broker_defaults)
    values: dict[str, Value] = {}
    for row in TOPIC_CONFIGS:
        for text in (operators_default(row, chosen), row.default):
            value = None if text is None else row.read(text)
            if value is not None and not isinstance(value, Bad):
                values[row.name] = value
                break
    return MappingProxyType(values)
