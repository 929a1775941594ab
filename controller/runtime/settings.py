"""The settings of `topicwright serve`: a properties file and `--set` overrides, checked and typed.

Everything is checked before anything starts: an unknown key, a value that is not allowed, and defaults for topics that
contradict each other raise SettingsError, whose message names the key, the value, where it stands and what is allowed.

What this module does not do: apply settings while serving. They are read once, at the start.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

import msgspec

from controller.kafka.messages import APIS, ApiKey
from controller.machine.config_values import Allowed, Bad, ConfigType, Value, allowed_text, read_value, value_text
from controller.machine.topic_configs import TIERED_STORAGE_KEY, contradicting_defaults
from controller.machine.topic_configs_table import BROKER_SYNONYMS, BY_NAME
from controller.runtime.properties import PropertiesError, read_properties
from controller.runtime.settings_table import BY_KEY, POLICY_PREFIXES, SETTINGS, Setting
from events.catalog import Configs, Endpoint


class SettingsError(Exception):
    """Settings that nothing can start with; the message is for whoever wrote them."""


class ServeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting with its value; `controller.runtime.settings_table` says what each is for."""

    node_id: int
    cluster_id: str | None
    num_partitions: int
    default_replication_factor: int
    auto_create_topics_enable: bool
    delete_topic_enable: bool
    create_topic_policy_class_name: str
    enable_under_replicated_topic_creation: bool
    topic_rules_file: str | None
    topic_rules_mode: str
    super_users: tuple[str, ...]
    advertised_listeners: Endpoint | None
    broker_session_timeout_ms: int
    kraft_version: int
    metadata_log_max_record_bytes_between_snapshots: int
    auto_leader_rebalance_enable: bool
    leader_imbalance_check_interval_seconds: int
    simulated_broker_listeners: bool
    api_versions_max: Mapping[str, int]
    socket_request_max_bytes: int
    max_connections: int
    connections_max_idle_ms: int
    max_in_flight_requests_per_connection: int
    max_request_partition_size_limit: int
    store_cache_bytes: int
    log_level: str
    topic_defaults: Configs
    """The broker-level settings that were given to be defaults of topics, sorted by key."""
    texts: Configs
    """All settings that have a value, as texts, sorted by key; `topic_defaults` and those for policies among them."""

    @property
    def advertised_endpoint(self) -> Endpoint | None:
        """The address that clients are told, if one was given."""
        return self.advertised_listeners

    def decision_settings(self) -> Configs:
        """The settings that decisions depend on, sorted by key, as `SettingsChanged` records them.

        Those of the table are always among them; defaults of topics only where they were given.
        """
        given = {key for key, _ in self.topic_defaults}
        return tuple(pair for pair in self.texts if pair[0] in given or (pair[0] in BY_KEY and BY_KEY[pair[0]].decides))

    def as_mapping(self) -> Mapping[str, str]:
        """All settings as texts by key, for a policy's `configure`."""
        return dict(self.texts)


class _Given(msgspec.Struct, frozen=True):
    """A text that was given for a key, and where."""

    text: str
    origin: str


def load_settings(config_file: Path | None = None, overrides: Sequence[str] = ()) -> ServeSettings:
    """Settings from a properties file, then from KEY=VALUE overrides; of a key given twice the last value counts.

    Raises SettingsError.
    """
    given = {**_from_file(config_file), **_from_overrides(overrides)}
    for key, value in given.items():
        _check_key(key, value)
    values = {setting.field: _value(setting, given.get(setting.key)) for setting in SETTINGS}
    defaults = _topic_defaults(given)
    texts = {setting.key: _text(setting, given.get(setting.key)) for setting in SETTINGS}
    texts |= {key: value.text for key, value in given.items() if key.startswith(POLICY_PREFIXES)} | dict(defaults)
    pairs = tuple(sorted((key, text) for key, text in texts.items() if text is not None))
    return msgspec.convert({**values, "topic_defaults": defaults, "texts": pairs}, ServeSettings)


# Where settings come from.


def _from_file(path: Path | None) -> dict[str, _Given]:
    if path is None:
        return {}
    try:
        properties = read_properties(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"the settings file {path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"the settings file {path} is not UTF-8: byte {error.start}") from error
    except PropertiesError as error:
        raise SettingsError(f"the settings file {path}, {error}") from error
    return {each.key: _Given(each.value.strip(), f"{path}, line {each.line}") for each in properties}


def _from_overrides(overrides: Sequence[str]) -> dict[str, _Given]:
    given = {}
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            raise SettingsError(f"--set {override}: must be KEY=VALUE")
        given[key.strip()] = _Given(text.strip(), "--set")
    return given


# Keys.

_ELSEWHERE = {
    "listeners": "the address to listen on is said by --kafka HOST:PORT",
    "log.dir": "the data folder is said by --data DIR",
    "log.dirs": "the data folder is said by --data DIR",
    "metadata.log.dir": "the data folder is said by --data DIR",
    "process.roles": "which brokers there are is said by --brokers",
}
_TOPIC_DEFAULT_KEYS: Mapping[str, tuple[ConfigType, Allowed]] = {
    **{name: (synonym.kind, synonym.allowed) for name, synonym in BROKER_SYNONYMS.items()},
    TIERED_STORAGE_KEY: (ConfigType.BOOLEAN, None),
}


def _check_key(key: str, given: _Given) -> None:
    if key in BY_KEY or key in _TOPIC_DEFAULT_KEYS or key.startswith(POLICY_PREFIXES):
        return
    raise SettingsError(f"unknown setting {key}={given.text} ({given.origin}): {_hint(key)}")


def _hint(key: str) -> str:
    if key in _ELSEWHERE:
        return _ELSEWHERE[key]
    topics = BY_NAME.get(key)
    if topics is not None and topics.synonyms:
        return f"for all topics it is {topics.synonyms[0].name}"
    near = get_close_matches(key, [*BY_KEY, *_TOPIC_DEFAULT_KEYS], n=1)
    return f"did you mean {near[0]}?" if near else "docs/settings.md has all that there are"


# Values.


def _refused(key: str, given: _Given, allowed: str) -> SettingsError:
    return SettingsError(f"setting {key}={given.text} ({given.origin}) is not allowed; allowed: {allowed}")


def _text(setting: Setting, given: _Given | None) -> str | None:
    """The text of a setting in one form, whatever way it was written."""
    text = setting.default if given is None else given.text
    if not text:
        return setting.default
    value = read_value(setting.key, setting.kind, setting.allowed, text)
    return text if isinstance(value, Bad) else value_text(value)


def _value(setting: Setting, given: _Given | None) -> object:
    text = setting.default if given is None else given.text
    if text is None or (not text and setting.default is None):
        return None
    given = given or _Given(text, "default")
    value = read_value(setting.key, setting.kind, setting.allowed, text)
    if isinstance(value, Bad):
        raise _refused(setting.key, given, setting.allowed_text)
    return _composed(setting, given, value)


def _composed(setting: Setting, given: _Given, value: Value) -> object:
    """The value of a setting whose text has parts of its own; any other value as it is."""
    text = given.text
    match setting.key:
        case "cluster.id":
            found: object = text if re.fullmatch(r"[A-Za-z0-9_-]{1,100}", text) else None
        case "super.users":
            found = _principals(text)
        case "advertised.listeners":
            found = _endpoint(text)
        case "api.versions.max":
            found = _versions(text)
        case _:
            return value
    if found is None:
        raise _refused(setting.key, given, setting.allowed_text + _more_allowed(setting.key))
    return found


def _principals(text: str) -> tuple[str, ...] | None:
    principals = tuple(part.strip() for part in text.split(";") if part.strip())
    return principals if all(re.fullmatch(r"\w+:.+", each) for each in principals) else None


def _endpoint(text: str) -> Endpoint | None:
    match = re.fullmatch(r"(PLAINTEXT)://(\[[0-9a-fA-F:.]+\]|[^\s:/\[\],]+):(\d{1,5})", text)
    if match is None or not 1 <= int(match[3]) <= 65535 or match[2] in ("0.0.0.0", "[::]"):
        return None
    return Endpoint(match[1], match[2].strip("[]"), int(match[3]))


_CAPPED_APIS = {api.name: api for api in APIS.values() if api.key not in (ApiKey.PRODUCE, ApiKey.API_VERSIONS)}


def _versions(text: str) -> dict[str, int] | None:
    versions = {}
    for part in text.split(",") if text else ():
        name, _, number = part.strip().partition(":")
        api = _CAPPED_APIS.get(name.strip())
        if api is None or not re.fullmatch(r"\d{1,4}", number.strip()):
            return None
        if not api.min_version <= int(number) <= api.max_version:
            return None
        versions[api.name] = int(number)
    return versions


def _more_allowed(key: str) -> str:
    if key == "advertised.listeners":
        return " with a port from 1 to 65535 and a host that clients can reach, not 0.0.0.0"
    if key == "api.versions.max":
        ranges = (f"{api.name} {api.min_version} to {api.max_version}" for api in _CAPPED_APIS.values())
        return "; versions: " + ", ".join(ranges)
    return ""


def _topic_defaults(given: Mapping[str, _Given]) -> Configs:
    defaults = {}
    for key in sorted(_TOPIC_DEFAULT_KEYS.keys() & given.keys()):
        kind, allowed = _TOPIC_DEFAULT_KEYS[key]
        if isinstance(read_value(key, kind, allowed, given[key].text), Bad):
            raise _refused(key, given[key], allowed_text(kind, allowed))
        defaults[key] = given[key].text
    pairs = tuple(defaults.items())
    conflict = contradicting_defaults(pairs)
    if conflict is not None:
        lags = (key for key in defaults if key.endswith("compaction.lag.ms"))
        raise SettingsError(f"settings {', '.join(f'{key}={defaults[key]}' for key in lags)}: {conflict}")
    return pairs
