"""`topicwright check`: settings and rules files as `serve` reads them, without a server, for CI.

Everything that stops a start is found: unknown keys and bad values, policies and rules that cannot be loaded, TLS files
that are not there, users that cannot be read. Exit codes: 0 all is well, 2 something is not.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from controller.cli.commands import COMMANDS, Parsers
from controller.cli.terminal.usage import complain, in_words


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser("check", description=f"{COMMANDS['check'].headline}.")
    parser.add_argument("--config", type=Path, metavar="FILE", help="a properties file, as `serve --config` takes it")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="one setting; may be repeated")
    parser.add_argument("--rules", type=Path, metavar="FILE", help="a rules file alone, without settings")
    parser.set_defaults(func=lambda options: _check(options, parser))


def _check(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if options.config is None and not options.set and options.rules is None:
        parser.error("say what to check: --config FILE, --set KEY=VALUE or --rules FILE")
    from controller.access.users_file import UsersFileError
    from controller.policy.loading import PolicyLoadError
    from controller.settings.load import SettingsError

    try:
        return _checked(options)
    except (SettingsError, PolicyLoadError, UsersFileError, OSError) as error:
        return complain(in_words(error))


def _checked(options: argparse.Namespace) -> int:
    from controller.http.metrics import Metrics
    from controller.machine.state import Cluster
    from controller.policy.loading import SETTING, load_policies
    from controller.policy.rules import FILE_SETTING, TopicRules
    from controller.serving.client_listeners import Address, ClientListeners
    from controller.settings.load import load_settings

    overrides = list(options.set)
    if options.rules is not None:
        overrides += [f"{SETTING}={TopicRules.__module__}.{TopicRules.__name__}", f"{FILE_SETTING}={options.rules}"]
    settings = load_settings(options.config, overrides)
    chain = load_policies(settings.create_topic_policy_class_name, settings.as_mapping())
    local = Address("127.0.0.1", 0)
    entrance = ClientListeners(settings, local, local, Metrics(), Cluster)
    entrance.users.close()
    chain.close()
    if settings.ignored:
        print(f"ignored, as Kafka's brokers alone have them: {', '.join(settings.ignored)}")
    policies = ", ".join(chain.names) or "none"
    print(
        f"settings are sound: {len(settings.given)} given; policies: {policies}; listeners: {len(entrance.listeners)}"
    )
    return 0
