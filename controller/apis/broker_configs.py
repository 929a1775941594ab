"""The configs of brokers (KIP-226): the entries for DescribeConfigs, and the validation of changes, both for `configs`.

A value comes from the broker's own dynamic configs, else from the dynamic configs of all brokers, else from the
settings of this controller (under Kafka's keys; simulated brokers have no settings of their own), else it is the
default.

In Kafka the broker that receives a request checks the values and forwards it to the controller. For simulated brokers
`refused_change` does that check; Kafka brokers have checked a request before they forward it.

Non-goal: dependencies between values are checked only if topics depend on them.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain

from controller.controller_api import ControllerApi, Node
from controller.machine.configs.changes import RESOURCE_CONFIGS, OpType, altered, check_ops
from controller.machine.configs.topic_configs import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    BrokerConfig,
    effective_values,
    local_retention,
)
from controller.machine.configs.values import Bad, ConfigType, read_value, value_text
from controller.machine.configs.views import ConfigEntry, ConfigSource, ConfigSynonym
from controller.machine.errors import ErrorCode, Rejection
from controller.machine.state import BROKERS, Cluster
from controller.settings.server import BY_KEY
from events.catalog import ConfigOp, Configs

_DEFAULTS = {
    name: (BY_KEY[name].default if name in BY_KEY else None) or row.default
    for name, row in BROKER_CONFIGS.items()
    if row.default is not None
}
"""The default of the setting with this name, if there is one, else Kafka's."""

_GROUPS = {
    synonym: tuple(row.synonyms)
    for row in TOPIC_CONFIGS
    for synonym in row.synonyms
    if synonym != "log.flush.scheduler.interval.ms"  # which is also a config of its own
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


_RULE = "validation:broker-configs"
_SECURITY = frozenset(
    f"ssl.{name}"
    for name in (
        "keystore.type", "keystore.location", "keystore.password", "keystore.key", "keystore.certificate.chain",
        "key.password", "truststore.type", "truststore.location", "truststore.password", "truststore.certificates",
    )
)  # fmt: skip
"""Configs that can only be changed for a single listener (SslConfigs.RECONFIGURABLE_CONFIGS)."""
_OF_ALL_LISTENERS = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})
"""Configs of a listener that can be changed for all brokers at once; its other configs only for one broker."""
_POOLS = ("num.io.threads", "num.replica.fetchers", "num.recovery.threads.per.data.dir", "background.threads")
"""Thread pools, which a change may at most double or halve."""
_FIXED = frozenset({"listeners", "listener.security.protocol.map"})
_JAVA = frozenset({"principal.builder.class", "metric.reporters", "ssl.engine.factory.class"})
_REQUIREMENTS = {
    "log.retention.ms": "must be unlimited (-1) or, greater than or equal to 1",
    "log.roll.ms": "must be greater than or equal to 1",
    "log.roll.jitter.ms": "must be equal or greater than 0",
}
"""Kafka's error messages for values that Kafka validates after parsing."""

_ID = re.compile(r"0|-?[1-9][0-9]{0,9}")

Layer = tuple[ConfigSource, Mapping[str, str]]


# --- describe


def entries_of_brokers(api: ControllerApi, name: str) -> tuple[ConfigEntry, ...] | Rejection:
    """The configs of the broker whose id is `name`; for an empty `name` the dynamic configs of all brokers.

    With simulated brokers the controller answers for every node; in KRaft mode only for itself.
    """
    of_all = api.cluster.configs_of(BROKERS, "")
    if not name:
        return _of_all(of_all)
    nodes = _nodes(api)
    broker_id = _broker_id(nodes, name, " or empty string,")
    if isinstance(broker_id, Rejection):
        return broker_id
    static = tuple(sorted(_static(api, nodes[broker_id]).items()))
    return _of_one(api.cluster.configs_of(BROKERS, str(broker_id)), of_all, static)


def entries_of_loggers(api: ControllerApi, name: str) -> tuple[ConfigEntry, ...] | Rejection:
    """The loggers of a node with their levels: one logger, because `log.level` is the level of the whole process."""
    if not name:
        return _invalid("Broker id must not be empty")
    broker_id = _broker_id(_nodes(api), name)
    if isinstance(broker_id, Rejection):
        return broker_id
    level = api.static_configs.get("log.level", BY_KEY["log.level"].default or "").upper()
    value, source = "WARN" if level == "WARNING" else level, ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
    return (ConfigEntry("root", value, source, ConfigType.UNKNOWN, None, read_only=True),)


def _broker_id(known: Collection[int], name: str, or_else: str = "", what: str = "Broker") -> int | Rejection:
    broker_id = int(name) if _ID.fullmatch(name) else None
    if broker_id is None:
        return _invalid(f"{what} id must be an integer, but it is: {name}")
    if broker_id not in known:
        ids = ", ".join(map(str, sorted(known)))
        return _invalid(f"Unexpected broker id, expected {ids}{or_else} but received {name}")
    return broker_id


def cluster_wide_config(api: ControllerApi, name: str) -> ConfigEntry:
    """The effective config of a broker that has no dynamic configs of its own."""
    return _effective(name, _layers({}, dict(api.cluster.configs_of(BROKERS, "")), api.static_configs))


def _layers(own: Mapping[str, str], of_all: Mapping[str, str], static: Mapping[str, str]) -> tuple[Layer, ...]:
    """The sources of values, in order of precedence."""
    return (
        (ConfigSource.DYNAMIC_BROKER_CONFIG, own),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, of_all),
        (ConfigSource.STATIC_BROKER_CONFIG, static),
        (ConfigSource.DEFAULT_CONFIG, _DEFAULTS),
    )


def _nodes(api: ControllerApi) -> dict[int, Node]:
    if api.cluster.has_kraft_brokers:
        return {api.node_id: Node(api.node_id, api.advertised.host, api.advertised.port)}
    return {node.node_id: node for node in api.nodes(include_fenced=True)}


def _static(api: ControllerApi, node: Node) -> dict[str, str]:
    """The static configs of a node. Settings that affect decisions come from the log, which does not record whether a
    setting was set: if another process decides, all such settings count as set."""
    given = {key: text for key, text in api.static_configs.items() if key in BROKER_CONFIGS}
    for key, text in api.cluster.settings_pairs:
        is_own_default = api.decides_here and key in BY_KEY and BY_KEY[key].default == text
        if key in BROKER_CONFIGS and (key in given or not is_own_default):
            given[key] = text
    where = f"{api.advertised.name}://{node.host}:{node.port}"
    is_broker = node.node_id in api.cluster.brokers
    given["node.id"] = given["broker.id"] = str(node.node_id)
    given["process.roles"] = "broker" if is_broker else "controller"
    given.setdefault("listeners", where)
    given["advertised.listeners"] = where
    broker = api.cluster.brokers.get(node.node_id)  # type: ignore[call-overload]  # any node's id
    if broker is not None and broker.rack is not None:
        given["broker.rack"] = broker.rack
    return given


@lru_cache(maxsize=16)
def _of_all(dynamic: Configs) -> tuple[ConfigEntry, ...]:
    """The dynamic configs of all brokers, unparsed."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return tuple(_entry(name, text, (ConfigSynonym(name, text, source),)) for name, text in dynamic)


@lru_cache(maxsize=64)
def _of_one(own: Configs, of_all: Configs, static: Configs) -> tuple[ConfigEntry, ...]:
    layers = _layers(dict(own), dict(of_all), dict(static))
    given = {name for _, layer in layers[:-1] for name in layer}
    names = [*(name for name, row in BROKER_CONFIGS.items() if row.documentation is not None or name in given)]
    names += sorted(given - BROKER_CONFIGS.keys())
    return tuple(_effective(name, layers) for name in names)


def _effective(name: str, layers: tuple[Layer, ...]) -> ConfigEntry:
    names = synonyms_of(name)
    found = [ConfigSynonym(each, layer[each], source) for source, layer in layers for each in names if each in layer]
    while found and found[0].name != name:  # as in Kafka: hours alone do not set milliseconds
        del found[0]
    group = (name,) if is_of_a_listener(name) else names
    set_in = next((layer for _, layer in layers if any(each in layer for each in group)), {})
    text = set_in.get(name, _DEFAULTS.get(name))  # a synonym set in a higher layer hides lower layers
    row = BROKER_CONFIGS.get(base_name(name))
    if row is not None and text is not None:
        value = read_value(name, row.kind, row.allowed, text)
        text = text if isinstance(value, Bad) else value_text(value)
    return _entry(name, text, tuple(found))


def _entry(name: str, text: str | None, synonyms: tuple[ConfigSynonym, ...]) -> ConfigEntry:
    """A config for the response, without the value of a secret or of an unknown config."""
    row = BROKER_CONFIGS.get(base_name(name))
    hidden = row is None or row.is_sensitive
    return ConfigEntry(
        name,
        None if hidden else text,
        synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        ConfigType.UNKNOWN if row is None else row.kind,
        BROKER_CONFIGS[name].documentation if name in BROKER_CONFIGS else None,
        tuple(ConfigSynonym(one.name, None, one.source) for one in synonyms) if hidden else synonyms,
        read_only=name not in BROKER_CONFIGS or not BROKER_CONFIGS[name].dynamic,
        sensitive=hidden,
    )


# --- alter


def refused_change(cluster: Cluster, name: str, ops: Sequence[ConfigOp], incremental: bool) -> Rejection | None:
    """The rejection of a change of the configs of one simulated broker, or of all (no name).

    INVALID_REQUEST with Kafka's message; INVALID_CONFIG for an append to a config that is no list.
    """
    broker_id = _broker_id(cluster.brokers, name, ",", "Node") if name else 0
    wrong = check_ops(ops) or (broker_id if isinstance(broker_id, Rejection) else _invalid_list_change(ops))
    if wrong is not None:
        return wrong
    after = altered(cluster.configs_of(BROKERS, name), ops, incremental)
    if isinstance(after, Rejection):
        return after
    why = next(_violations(cluster, name, dict(after)), None)
    return None if why is None else _invalid(why)


def _invalid_list_change(ops: Sequence[ConfigOp]) -> Rejection | None:
    for op in ops:
        row = RESOURCE_CONFIGS.get(op.name)
        if op.op in (OpType.APPEND, OpType.SUBTRACT) and (row is None or row.kind is not ConfigType.LIST):
            what = OpType(op.op).name.lower()
            known = op.name in BROKER_CONFIGS
            message = f"Config value {what} is not allowed for config key: {op.name}"
            return Rejection(ErrorCode.INVALID_CONFIG, message if known else f"Unknown config name: {op.name}", _RULE)
    return None


def _violations(cluster: Cluster, name: str, props: Mapping[str, str]) -> Iterator[str]:
    """Kafka's messages about the configs after a change, in the order of its checks."""
    static = [each for each in props if each in BROKER_CONFIGS and not BROKER_CONFIGS[each].dynamic]
    if static:
        yield f"Cannot update these configs dynamically: [{', '.join(static)}]"
    bare = [each for each in props if each in _SECURITY]
    if bare:
        start = "These security configs can be dynamically updated only per-listener using the listener prefix"
        yield f"{start}: [{', '.join(bare)}]"
    texts = {base_name(each): text for each, text in props.items()}
    rows = (row for row in BROKER_CONFIGS.values() if row.name in texts)
    yield from filter(None, (_why_invalid(row, texts[row.name]) for row in rows))
    per_broker = [each for each in props if _is_per_broker(each)]
    if per_broker and not name:
        start = "Cannot update these configs at default cluster level, broker id must be specified"
        yield f"{start}: [{', '.join(per_broker)}]"
    of_all = dict(cluster.configs_of(BROKERS, ""))
    before = {**_DEFAULTS, **of_all, **dict(cluster.configs_of(BROKERS, name))}
    conflicts = chain(_pool_conflicts(before, props), _retention_conflicts(cluster, {**of_all, **props}))
    yield from (f"Invalid dynamic configuration: {conflict}" for conflict in conflicts)


def _why_invalid(row: BrokerConfig, text: str) -> str | None:
    if row.is_sensitive:
        return f"{row.name} is a secret, which simulated brokers do not use; it would only be stored in the log"
    if row.name in _JAVA and text != row.default:
        return f"Invalid value {text} for configuration {row.name}: Class {text} could not be found."
    if row.name in _FIXED:
        return f"Invalid dynamic configuration: {row.name} cannot be altered for simulated brokers"
    value = read_value(row.name, row.kind, row.allowed, text)
    if not isinstance(value, Bad):
        return None
    is_number = not isinstance(read_value(row.name, row.kind, None, text), Bad)
    requirement = _REQUIREMENTS.get(row.name) if is_number else None
    return f"requirement failed: {row.name} {requirement}" if requirement else value.message


def _is_per_broker(name: str) -> bool:
    if is_of_a_listener(name):
        return base_name(name) not in _OF_ALL_LISTENERS
    return name in BROKER_CONFIGS and BROKER_CONFIGS[name].dynamic == "broker"


def _pool_conflicts(before: Mapping[str, str], props: Mapping[str, str]) -> Iterator[str]:
    for pool in _POOLS:
        now, requested = int(before[pool]), int(props.get(pool, before[pool]))
        start = f"Dynamic thread count update validation failed for {pool}={requested}, value should"
        if requested > now * 2:
            yield f"{start} not be greater than double the current value {now}"
        elif requested < now // 2:
            yield f"{start} be at least half the current value {now}"


def _retention_conflicts(cluster: Cluster, dynamic: Mapping[str, str]) -> Iterator[str]:
    values = effective_values(tuple(sorted({**dict(cluster.settings.topic_defaults), **dynamic}.items())))
    return filter(None, (local_retention(values, unit, "log.") for unit in ("ms", "bytes")))


def _invalid(message: str) -> Rejection:
    return Rejection(ErrorCode.INVALID_REQUEST, message, _RULE)
