"""Loads the settings of a process from a properties file and `--set` overrides into `ServeSettings`.

All settings are checked before the process starts. Unknown keys, invalid values and contradictory topic defaults raise
SettingsError, which names the key, the value, its origin and the allowed values. The file may be a broker's
server.properties: settings that only Kafka's brokers have are ignored and listed for a warning, except settings that
control access, which are errors.

Settings are read once, at the start; they cannot be changed at run time.
"""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

import msgspec

from controller.machine.configs.topic_configs import BROKER_CONFIGS, BY_NAME, TOPIC_DEFAULTS, contradicting_defaults
from controller.machine.configs.values import Bad, read_value, value_text
from controller.machine.state import POLICY_PREFIX
from controller.settings.forms import SECRET, Setting
from controller.settings.properties import Property, SettingsError, read_file
from controller.settings.server import BY_KEY, PER_LISTENER, PER_LISTENER_PREFIX, SETTINGS, ServeSettings
from events.catalog import Configs
from events.codec import HIDDEN

__all__ = ["ServeSettings", "SettingsError", "load_settings"]


def load_settings(config_file: Path | None = None, overrides: Sequence[str] = ()) -> ServeSettings:
    """Loads the file, then the KEY=VALUE overrides; the last value of a key counts. Raises SettingsError."""
    in_file = [] if config_file is None else read_file(config_file, f"the settings file {config_file}")
    given = {each.key: each for each in (*in_file, *_overrides(overrides))}
    external = (key for key, value in given.items() if value.origin != _SET and not _is_known(key))
    ignored = [key for key in external if not key.startswith(_SECURITY_PREFIXES) and key in BROKER_CONFIGS]
    ignored_texts = tuple(f"{key} ({_REPLACEMENTS[key]})" if key in _REPLACEMENTS else key for key in ignored)
    given = {key: value for key, value in given.items() if key not in ignored}
    _check_keys(given)
    read = {setting: _read(setting, given.get(setting.key)) for setting in SETTINGS}
    values: dict[str, object] = {setting.field: value for setting, (value, _) in read.items()}
    values["of_listeners"] = _of_listeners(given)
    defaults = _topic_defaults(given)
    texts = {setting.key: text for setting, (_, text) in read.items() if not setting.secret}
    texts |= {key: value.value for key, value in given.items() if key.startswith(POLICY_PREFIX)} | dict(defaults)
    pairs = tuple(sorted((key, text) for key, text in texts.items() if text is not None))
    derived = {"topic_defaults": defaults, "texts": pairs, "given": frozenset(given), "ignored": ignored_texts}
    return msgspec.convert({**values, **derived}, ServeSettings)


_SET = "--set"


def _overrides(texts: Sequence[str]) -> Iterator[Property]:
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            visible = text.split()[0] + f" {HIDDEN.decode()}" if SECRET.search(text) else text
            raise SettingsError(f"{_SET} {visible}: must be KEY=VALUE")
        yield Property(key.strip(), value.strip(), _SET)


# Keys.

_REPLACEMENTS = {
    "ssl.keystore.key": "the key is in the PEM file that ssl.keystore.location names",
    "ssl.keystore.certificate.chain": "the certificates are in the PEM file that ssl.keystore.location names",
    "ssl.keystore.password": "a PEM file has none; the private key is decrypted with ssl.key.password",
    "ssl.truststore.certificates": "the certificates are in the PEM file that ssl.truststore.location names",
    "ssl.truststore.password": "a PEM file has none",
    "log.dir": "the data folder is set by --data DIR",
    "log.dirs": "the data folder is set by --data DIR",
    "metadata.log.dir": "the data folder is set by --data DIR",
    "process.roles": "--brokers selects the brokers",
}
_TOPIC_DEFAULTS: Mapping[str, Setting] = {
    key: Setting("", row.allowed, kind=row.kind, key=key) for key, row in TOPIC_DEFAULTS.items()
}


_SECURITY_PREFIXES = ("ssl.", "sasl.", "principal.builder.", "authorizer.")


def _is_known(key: str) -> bool:
    if key.startswith(PER_LISTENER_PREFIX):
        return key.removeprefix(PER_LISTENER_PREFIX).partition(".")[2] in PER_LISTENER
    return key in BY_KEY or key in _TOPIC_DEFAULTS or key.startswith(POLICY_PREFIX)


def _check_keys(given: Mapping[str, Property]) -> None:
    unknown = [f"{key} ({value.origin}): {_hint(key)}" for key, value in given.items() if not _is_known(key)]
    if unknown:
        more = f"; {_OF_POLICIES}" if "create.topic.policy.class.name" in given else ""
        raise SettingsError(f"unknown setting{'s' * (len(unknown) > 1)} {'; '.join(unknown)}{more}")


_OF_POLICIES = f"settings of policies begin with {POLICY_PREFIX}"


def _hint(key: str) -> str:
    if key in _REPLACEMENTS:
        return _REPLACEMENTS[key]
    if key.startswith(PER_LISTENER_PREFIX):
        return f"listener.name.NAME. may be followed by {', '.join(sorted(PER_LISTENER))}"
    if key in BROKER_CONFIGS:
        return "only Kafka's brokers have it"
    topics = BY_NAME.get(key)
    if topics is not None and topics.synonyms:
        return f"the setting for all topics is {next(iter(topics.synonyms))}"
    near = get_close_matches(key, [*BY_KEY, *_TOPIC_DEFAULTS], n=1, cutoff=0.8)
    return f"did you mean {near[0]}?" if near else "docs/settings.md lists all settings"


# Values.


def _refused(given: Property, allowed: str, invalid: str = "") -> SettingsError:
    """The error for a value that is not allowed; `invalid` is the invalid element if the value is a list."""
    part = f": {invalid!r} is invalid" if invalid not in ("", given.value) else ""
    text = HIDDEN.decode() if SECRET.search(given.key) and given.value else given.value
    return SettingsError(f"setting {given.key}={text} ({given.origin}) is not allowed{part}; allowed: {allowed}")


def _read(setting: Setting, given: Property | None) -> tuple[object, str | None]:
    """Returns the value of a setting, parsed if it has a syntax of its own, and its canonical text."""
    text = setting.default if given is None else given.value
    if text is None or (not text and setting.default is None):
        return None, None
    given = given or Property(setting.key, text, "default")
    value = read_value(setting.key, setting.kind, setting.allowed, text)
    if isinstance(value, Bad):
        raise _refused(given, setting.allowed_text)
    try:
        found = value if setting.parse is None else setting.parse(text)
    except ValueError as error:
        raise _refused(given, setting.allowed_text, str(error)) from None
    return found, value_text(value) if text else setting.default


def _of_listeners(given: Mapping[str, Property]) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for key, one in given.items():
        if key.startswith(PER_LISTENER_PREFIX):
            name, _, own = key.removeprefix(PER_LISTENER_PREFIX).partition(".")
            value, _ = _read(BY_KEY[own], one)
            found.setdefault(name.upper(), {})[BY_KEY[own].field] = value
    return found


def _topic_defaults(given: Mapping[str, Property]) -> Configs:
    defaults = {key: given[key] for key in sorted(_TOPIC_DEFAULTS.keys() & given.keys())}
    for key, one in defaults.items():
        _read(_TOPIC_DEFAULTS[key], one)
    pairs = tuple((key, one.value) for key, one in defaults.items())
    conflict = contradicting_defaults(pairs)
    if conflict is not None:
        lags = ", ".join(f"{key}={text}" for key, text in pairs if key.endswith("compaction.lag.ms"))
        raise SettingsError(f"settings {lags}: {conflict}")
    return pairs
