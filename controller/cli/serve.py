"""`topicwright serve` and `check`; `worker`, `gateway` and `restore-topic`, for a log in Kafka; flags of `join`,
`leave` and `quorum`; and the flags and start-up checks that all long-running commands share.

`check` validates settings, policies, rules, TLS files and users as `serve` would, without starting a server.
"""

from __future__ import annotations

import argparse
import errno
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from controller.cli.commands import Parsers, add, add_command, later

if TYPE_CHECKING:
    import msgspec

    from controller.serving.client_listeners import Address
    from controller.settings.load import ServeSettings

_Options = TypeVar("_Options", bound="msgspec.Struct")

DEFAULT_KAFKA = "127.0.0.1:9092"
KRAFT = "kraft"


def register(commands: Parsers) -> None:
    check = add_command(commands, "check")
    register_settings(check)
    add(check, "--rules FILE", "check only this rules file", Path)
    check.set_defaults(func=lambda options: _check(options, check))
    parser = register_process(commands, "serve", _serve, "127.0.0.1:8080", "topicwright-data", "the log")
    what = f"listen here for Kafka clients, unless the setting `listeners` is given; default {DEFAULT_KAFKA}"
    add(parser, "--kafka HOST:PORT", what, address)
    what = (
        "the brokers: simulated:N, kraft for Kafka brokers in KRaft mode, or cluster:HOST:PORT[,…] for a target "
        "cluster, a Kafka cluster that applies this controller's decisions; default %(default)s"
    )
    add(parser, "--brokers BROKERS", what, brokers, default="simulated:3")
    what = "with kraft: level of metadata.version, such as 30; default: the highest that all brokers support"
    add(parser, "--metadata-version LEVEL", what, _metadata_version)
    _register_stream(commands)
    _register_quorum(commands)


def _register_quorum(commands: Parsers) -> None:
    content = "the metadata log and this node's vote"
    start = later("work.quorum.start")
    joining = register_process(commands, "join", start, "127.0.0.1:8080", "topicwright-voter", content)
    add(joining, "--listen HOST:PORT", f"listen here for controllers and brokers; default {DEFAULT_LISTEN}", address)
    order = "Stop a Kafka controller before it leaves, a Topicwright voter afterwards."
    leaving = add_command(commands, "leave", "work.quorum.leave", order)
    add(leaving, "--data DIR", "data folder of the leaving voter; it is not changed", Path)
    what = "node id, if the voter's folder is lost; a controller removed so no longer limits the features (KIP-919)"
    add(leaving, "--id NODE", what, int)
    showing = add_command(commands, "quorum", "work.quorum.show")
    for parser in (joining, leaving, showing):
        what = "controllers of the cluster"
        add(parser, "--bootstrap-controller HOST:PORT[,…]", what, bootstrap, required=True)
        add(parser, "--command-config FILE", "librdkafka properties for TLS and login")


def brokers(text: str, other: str = KRAFT) -> int | str:
    """Parse `--brokers`: the number of simulated brokers, the bootstrap addresses of a target cluster, or the word
    `other` itself. Raises ArgumentTypeError."""
    from controller.brokers.simulated import SIMULATED_BROKERS_MAX

    kind, _, rest = text.partition(":")
    if text == other:
        return text
    if kind == "cluster":
        return bootstrap(rest)
    if kind == "simulated" and rest.isdigit() and 1 <= int(rest) <= SIMULATED_BROKERS_MAX:
        return int(rest)
    raise argparse.ArgumentTypeError(
        f"{text!r} is neither simulated:N with N from 1 to {SIMULATED_BROKERS_MAX} nor cluster:HOST:PORT[,HOST:PORT…] "
        f"nor {other}"
    )


def _metadata_version(text: str) -> int:
    from controller.quorum.features import METADATA_VERSION_MAX, METADATA_VERSION_MIN

    if not text.isdigit() or not METADATA_VERSION_MIN <= int(text) <= METADATA_VERSION_MAX:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a level from {METADATA_VERSION_MIN} (3.7) to {METADATA_VERSION_MAX} (4.4)"
        )
    return int(text)


def _serve(options: argparse.Namespace, settings: ServeSettings) -> Coroutine[Any, Any, int]:
    from controller.serving.serve import ServeOptions, serve
    from controller.settings.load import SettingsError

    simulated = options.brokers if isinstance(options.brokers, int) else 0
    if settings.simulated_broker_listeners and 1 <= settings.node_id <= simulated:
        raise SettingsError(
            f"node.id={settings.node_id} is the id of a simulated broker (1 to {simulated}); with "
            "simulated.broker.listeners=true the controller is a node of its own: choose another id"
        )
    if settings.listeners and options.kafka is not None:
        raise SettingsError("give either --kafka or the setting listeners")
    if options.metadata_version is not None and options.brokers != KRAFT:
        raise SettingsError("--metadata-version needs --brokers kraft")
    kafka = options.kafka or address(DEFAULT_KAFKA)
    refuse_taken(settings, kafka=None if settings.listeners else kafka, http=options.http)
    return serve(options_of(ServeOptions, options, kafka=kafka, settings=settings))


def options_of(kind: type[_Options], options: argparse.Namespace, /, **more: object) -> _Options:
    """The options of a process: the given ones, and the flags with the names of its other fields."""
    flags = {name: value for name, value in vars(options).items() if name in kind.__struct_fields__}
    return kind(**{**flags, **more})


Start = Callable[[argparse.Namespace, "ServeSettings"], Coroutine[Any, Any, int]]
"""Returns the main loop of a process, given flags and settings; the loop returns the exit code."""

DEFAULT_LISTEN = "127.0.0.1:9093"


def register_process(
    commands: Parsers, name: str, start: Start, http: str, data: str, content: str
) -> argparse.ArgumentParser:
    """Add a command that runs until it is stopped. `content` describes its data folder in the help."""
    parser = add_command(commands, name)
    add(parser, "--http HOST:PORT", "listen here for HTTP; default %(default)s", address, default=http)
    add(parser, "--data DIR", f"data folder for {content}; default ./%(default)s", Path, default=Path(data))
    register_settings(parser)
    parser.set_defaults(func=lambda options: _run(start, options))
    return parser


def register_settings(parser: argparse.ArgumentParser) -> None:
    add(parser, "--config FILE", "properties file with settings, named as in Kafka", Path)
    add(parser, "--set KEY=VALUE", "one setting; may be repeated", repeated=True)


def register_kafka(parser: argparse.ArgumentParser) -> None:
    add(parser, "--bootstrap HOST:PORT[,…]", "Kafka cluster that stores the log", bootstrap, required=True)
    add(parser, "--kafka-properties FILE", "librdkafka properties for TLS and login")


def _run(start: Start, options: argparse.Namespace) -> int:
    import structlog
    import uvloop

    from controller.serving.log_lines import configure_logs
    from controller.serving.process import warn_of_readers
    from controller.settings.load import load_settings

    settings = load_settings(options.config, options.set)
    configure_logs(settings.log_level)
    if settings.ignored:
        ignored, log = ", ".join(settings.ignored), structlog.get_logger("topicwright")
        log.warning("settings of Kafka's brokers are ignored", file=str(options.config), settings=ignored)
    warn_of_readers(options.data, settings)
    return uvloop.run(start(options, settings))


def refuse_taken(settings: ServeSettings, **addresses: Address | None) -> None:
    """Raise SettingsError for an address that this process cannot listen on, before it creates a folder. `addresses`
    maps the names of flags to their values."""
    from controller.serving.client_listeners import Address
    from controller.settings.load import SettingsError

    named = [(f"--{flag}", address) for flag, address in addresses.items() if address is not None]
    named += [(f"listener {one.name}", Address(one.host, one.port)) for one in settings.listeners]
    for source, at in named:
        try:
            family, kind, protocol, _, where = socket.getaddrinfo(
                at.host or None, at.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            with socket.socket(family, kind, protocol) as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                tried.bind(where)
                tried.listen(1)
        except OSError as error:
            raise SettingsError(f"cannot listen on {at} ({source}): {_why_not_listening(error, at)}") from None


def _why_not_listening(error: OSError, at: Address) -> str:
    if error.errno == errno.EADDRINUSE:
        with socket.create_server((at.host, 0), family=socket.AF_INET6 if ":" in at.host else socket.AF_INET) as free:
            other = type(at)(at.host, free.getsockname()[1])
        return f"the address is in use; give another one, such as {other}, or port 0 for any free port"
    if error.errno == errno.EACCES:
        return "permission denied; ports from 1024 on need none"
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return f"this machine does not have the address ({error.strerror})"
    return error.strerror or str(error)


def address(text: str) -> Address:
    """Parse an address to listen on. Raises ArgumentTypeError."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT with a port from 0 (any free one) to 65535")
    from controller.serving.client_listeners import Address

    return Address(host.strip("[]"), int(port))


def bootstrap(text: str) -> str:
    """Check bootstrap addresses. Raises ArgumentTypeError."""
    for each in text.split(","):
        host, colon, port = each.strip().rpartition(":")
        if not colon or not host or not port.isdigit() or not 1 <= int(port) <= 65535:
            raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, several separated by commas")
    return text


def _check(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    if options.config is None and not options.set and options.rules is None:
        parser.error("nothing to check: give --config FILE, --set KEY=VALUE or --rules FILE")
    from controller.http.metrics import Metrics
    from controller.machine.state import Cluster
    from controller.serving.client_listeners import Address, ClientListeners
    from controller.serving.process import policies_of, rules_of_file
    from controller.settings.load import load_settings

    overrides = list(options.set)
    if options.rules is not None:
        overrides.append(f"topic.rules.file={options.rules}")
    settings = load_settings(options.config, overrides)
    rules_of_file(settings)
    chain = policies_of(settings)
    local = Address("127.0.0.1", 0)
    clients = ClientListeners(settings, local, local, Metrics(), Cluster)
    clients.users.close()
    chain.close()
    if settings.ignored:
        print(f"ignored, because only Kafka brokers use them: {', '.join(settings.ignored)}")
    policies = ", ".join(chain.names) or "none"
    print(f"settings are valid: {len(settings.given)} given; policies: {policies}; listeners: {len(clients.listeners)}")


# --- a log in Kafka

DRIVERS = ("faust", "plain")
CLUSTER = "cluster"
"""Value of `--brokers`: the target cluster is the Kafka cluster of `--bootstrap`."""


def _register_stream(commands: Parsers) -> None:
    cache = "a cache of the log, which makes the next start fast"
    worker = register_process(commands, "worker", _work, "127.0.0.1:8081", "topicwright-worker", cache)
    gateway = register_process(commands, "gateway", _start_gateway, "127.0.0.1:8080", "topicwright-gateway", cache)
    restore = add_command(commands, "restore-topic", "serve.restore")
    for parser in (worker, gateway, restore):
        register_kafka(parser)
    what = f"Kafka library, {' or '.join(DRIVERS)}; default %(default)s"
    add(worker, "--driver NAME", what, choices=DRIVERS, default=DRIVERS[0])
    what = (
        "cluster: the Kafka of --bootstrap is the target cluster; cluster:HOST:PORT[,…]: another Kafka; or "
        "simulated:N: N simulated brokers; default %(default)s"
    )
    add(worker, "--brokers BROKERS", what, partial(brokers, other=CLUSTER), default=CLUSTER)
    what = "listen here for Kafka clients; default %(default)s"
    add(gateway, "--kafka HOST:PORT", what, address, default=DEFAULT_KAFKA)
    what = "a data folder; the longest log of each partition is used"
    add(restore, "folders DIR", what, Path, nargs="+")
    register_settings(restore)


def _work(options: argparse.Namespace, settings: ServeSettings) -> Coroutine[Any, Any, int]:
    from controller.serving.log_lines import KAFKA_CLIENTS, forward_logs
    from controller.serving.reach_cluster import security_in
    from controller.stream.worker.service import WorkerOptions, work

    refuse_taken(settings, http=options.http)
    forward_logs(*KAFKA_CLIENTS)
    brokers = "" if options.brokers == CLUSTER else options.brokers
    security = security_in(options.kafka_properties, "--kafka-properties")
    return work(options_of(WorkerOptions, options, settings=settings, brokers=brokers, security=security))


def _start_gateway(options: argparse.Namespace, settings: ServeSettings) -> Coroutine[Any, Any, int]:
    from controller.serving.reach_cluster import security_in
    from controller.stream.gateway.service import GatewayOptions, run_gateway

    _refuse_decisions(options.set)
    security = security_in(options.kafka_properties, "--kafka-properties")
    refuse_taken(settings, kafka=None if settings.listeners else options.kafka, http=options.http)
    file = settings.cluster_client_properties_file
    securities = {"security": security, "cluster_security": security if file is None else security_in(file)}
    return run_gateway(options_of(GatewayOptions, options, settings=settings, **securities))


def _refuse_decisions(overrides: list[str]) -> None:
    """Raise SettingsError if `--set` has a setting that only workers use. A settings file may have such settings,
    because gateways and workers may share it."""
    from controller.settings.load import SettingsError
    from controller.settings.server import BY_KEY

    for override in overrides:
        key = override.partition("=")[0].strip()
        if key in BY_KEY and (BY_KEY[key].decides or key == "topic.rules.file"):
            raise SettingsError(f"--set {key}: decisions depend on it, so give it to `topicwright worker`")


def restore(options: argparse.Namespace) -> None:
    import asyncio

    from controller.serving.process import reached
    from controller.serving.reach_cluster import security_in
    from controller.settings.load import load_settings
    from controller.stream.log.restoring import restore_topic
    from controller.stream.log.topics import KafkaUnavailable

    settings = load_settings(options.config, options.set)
    security = security_in(options.kafka_properties, "--kafka-properties")
    restoring = partial(restore_topic, options.bootstrap, security, settings, options.folders)
    restored = asyncio.run(
        reached("Kafka", partial(asyncio.to_thread, restoring), KafkaUnavailable, bootstrap=options.bootstrap)
    )
    for one in restored:
        print(one)
    print(f"topic {settings.stream_events_topic} is restored: start workers and gateways with empty folders")
