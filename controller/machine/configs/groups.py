"""All configs of groups (KIP-848, KIP-932, KIP-1071) and of client metrics (KIP-714) of Kafka 4.4.

Those of groups, with type, default, limits and broker-level name, are read from group_configs.json, one config a line,
in the order of Kafka's GroupConfig. `allowed` is the limit of GroupConfig's ConfigDef. `within` is the limit from
the defaults of broker configs (`group.consumer.min.session.timeout.ms`, …). The config APIs use them.
"""

import re
from importlib.resources import files

import msgspec

from controller.machine.configs.values import (
    Allowed,
    AtLeast,
    Bad,
    Between,
    ConfigRow,
    ConfigType,
    OneOf,
    Value,
    read_values,
)
from controller.machine.errors import ErrorCode, Rejection
from events.catalog import Configs


class GroupConfig(ConfigRow, frozen=True, gc=False):
    """A config of consumer, share or streams groups (KIP-848, KIP-932, KIP-1071)."""

    within: Allowed
    internal: bool
    documentation: str
    """Empty for a config with a broker-level config `group.NAME`, which then has documentation and default."""

    def read(self, text: str) -> Value | Bad:
        value = super().read(text)
        if isinstance(value, tuple) and len(set(value)) < len(value):
            return Bad(f"{self.name} must not contain duplicate tag keys.")
        is_reset = self.name == _RESET and not isinstance(value, Bad)
        if is_reset and value not in ("earliest", "latest") and not _DURATION.fullmatch(str(value)):
            why = f"Invalid value `{value}` for configuration {self.name}. The value must be either 'earliest', "
            why += "'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
            return Bad(f"Invalid value {value} for configuration {self.name}: {why}")
        return value


_TEXT = files(__package__).joinpath("group_configs.json").read_bytes()
GROUP_CONFIGS = {row.name: row for row in msgspec.json.decode(_TEXT, type=tuple[GroupConfig, ...])}

CLIENT_METRICS_CONFIGS: dict[str, ConfigRow] = {
    "interval.ms": ConfigRow("interval.ms", ConfigType.INT, "300000", None),
    "match": ConfigRow("match", ConfigType.LIST, "", None),
    "metrics": ConfigRow("metrics", ConfigType.LIST, "", None),
}
"""The configs of a client metrics subscription (KIP-714)."""
_SELECTORS = frozenset(
    f"client_{each}"
    for each in ("id", "instance_id", "software_name", "software_version", "source_address", "source_port")
)

_RESET = "share.auto.offset.reset"
_DURATION = re.compile(
    r"by_duration:(?i:P(?=.)([0-9]{1,18}D)?(T(?=.)([0-9]{1,18}H)?([0-9]{1,18}M)?([0-9]{1,18}([.,][0-9]{0,9})?S)?)?)"
)
"""A duration that java.time.Duration parses, without signs: it must not be negative."""


def invalid_group_configs(configs: Configs, *, within: bool) -> Rejection | None:
    """Returns the first error in the configs of a group, with Kafka 4.4's message, or None.

    If `within` is True, the limits that broker configs set apply too. Configs of Kafka brokers are not known here, and
    those brokers clamp values.
    """
    texts = dict(configs)
    unknown = next((name for name in texts if name not in GROUP_CONFIGS), None)
    if unknown is not None:
        return _invalid(f"Unknown group config name: {unknown}")
    values = read_values(GROUP_CONFIGS.values(), texts)
    if isinstance(values, Bad):
        return _invalid(values.message)
    beyond = (_beyond(row, values[row.name]) for row in GROUP_CONFIGS.values() if within and row.name in values)
    return next((each for each in beyond if each is not None), None) or _contradiction(values)


def invalid_client_metrics(configs: Configs) -> Rejection | None:
    """Returns the first error in the configs of a client metrics subscription, or None. Patterns are not compiled."""
    texts = dict(configs)
    values = read_values(CLIENT_METRICS_CONFIGS.values(), texts)
    code, message = ErrorCode.INVALID_REQUEST, ""
    if unknown := [name for name in texts if name not in CLIENT_METRICS_CONFIGS]:
        message = f"Unknown client metrics configuration: {unknown[0]}"
    elif isinstance(values, Bad):
        code, message = ErrorCode.INVALID_CONFIG, values.message
    elif not 100 <= int(texts.get("interval.ms", 100)) <= 3_600_000:
        value = texts["interval.ms"]
        message = f"Invalid value {value} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
    else:
        patterns = [each.partition("=") for each in filter(None, texts.get("match", "").split(","))]
        if bad := ["".join(each) for each in patterns if each[0].strip() not in _SELECTORS or not each[1]]:
            code, allowed = ErrorCode.INVALID_CONFIG, ", ".join(sorted(_SELECTORS))
            message = f"Illegal client matching pattern: {bad[0]}; allowed: KEY=PATTERN with one of the keys {allowed}"
    return Rejection(code, message, "validation:client-metrics") if message else None


def _beyond(row: GroupConfig, value: Value) -> Rejection | None:
    match row.within:
        case Between(0, high) if row.name.startswith("streams.num.") and isinstance(value, int) and value > high:
            return _invalid(f"{row.name} must be less than or equal to {high}")
        case Between(low, high) if isinstance(value, int) and not low <= value <= high:
            return _invalid(f"{row.name} must be in the range {low} to {high} inclusive.")
        case AtLeast(low) if isinstance(value, int) and value < low:
            return _invalid(f"{row.name} must be greater than or equal to {low}")
        case OneOf(known) if value not in known:
            are = f"Registered assignors are: [{', '.join(known)}]."
            return _invalid(f"{row.name} '{value}' is not a registered task assignor. {are}")
    return None


def _contradiction(values: dict[str, Value]) -> Rejection | None:
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if (session in values or heartbeat in values) and _number(session, values) <= _number(heartbeat, values):
            return _invalid(f"{session} must be greater than {heartbeat}")
    dead_letters = "errors.deadletterqueue.topic.name"
    if str(values.get(dead_letters, "")).startswith("__"):
        return _invalid(f"{dead_letters}: DLQ topic name must not start with '__'")
    return None


def _number(name: str, values: dict[str, Value]) -> int:
    return int(str(values.get(name, GROUP_CONFIGS[name].default)))


def _invalid(message: str) -> Rejection:
    return Rejection(ErrorCode.INVALID_CONFIG, message, "validation:group-configs")
