"""All commands with their modules and summaries.

`main` uses this table, so that `topicwright --help` loads no command module, and a command loads only its own module.
"""

import argparse
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeAlias


class Command(NamedTuple):
    """A module of this package with a `register` function, and a summary."""

    module: str
    summary: str


GROUPS: Final[Mapping[str, Mapping[str, Command]]] = {
    "run": {
        "serve": Command("serve", "run a controller with its log in one process"),
        "gateway": Command("serve", "serve Kafka clients and HTTP; workers decide the changes"),
        "worker": Command("serve", "decide the requests of gateways; they share the partitions of a log in Kafka"),
        "join": Command("serve", "join the KRaft quorum of a Kafka cluster as a voter"),
        "demo": Command("flags", "show a refusal, an outage and a recovery on a running service, or on a new one"),
    },
    "read": {
        "status": Command("flags", "show what is wrong, since when, the cause, and what resolves it"),
        "whatif": Command("flags", "show the health after a change, such as the loss of a broker"),
        "risks": Command("governance", "list the topics that would lose records or stop producers, or have no owner"),
        "topics": Command("flags", "list topics, or show one, now or in the past"),
        "events": Command("flags", "list the events of the log, or follow it"),
        "explain": Command("flags", "explain the history of a topic, or the result of a request"),
        "requests": Command("flags", "list requests with their senders and outcomes, newest first"),
        "brokers": Command("flags", "list live and fenced brokers, with the reason for each state"),
        "settings": Command("flags", "list the settings that decisions depend on"),
        "rules": Command("flags", "show, test, backtest, apply and compare the rules for changes of topics"),
        "changes": Command("flags", "show who changed what, with the values before and after, newest first"),
        "diff": Command("flags", "compare the cluster at two points in time"),
        "quorum": Command("serve", "show the voters of a KRaft quorum and how far behind they are"),
    },
    "change": {
        "topic": Command("flags", "create, delete, recreate, alter, grow, label or wait for a topic"),
        "broker": Command("flags", "add, stop, start or delay a simulated broker"),
        "plan": Command("governance", "show the changes that make topics as files describe them, and change nothing"),
        "apply": Command("governance", "create and change topics as files describe them"),
        "import": Command("governance", "print the topics of a cluster as a file for plan and apply"),
        "drift": Command("governance", "compare the topics of a cluster with files"),
        "approve": Command("governance", "approve a request that waits for approval, so that it is done"),
        "deny": Command("governance", "deny a request that waits for approval, or withdraw your own"),
        "users": Command("governance", "add, list and remove users"),
        "acls": Command("governance", "add, list and remove ACLs, here or at the cluster behind"),
        "quotas": Command("governance", "add, list and remove quotas of users, client ids and addresses"),
        "leave": Command("serve", "remove a voter from a KRaft quorum"),
        "adopt": Command("flags", "take over a running cluster from Kafka's controller"),
        "restore": Command("flags", "rebuild a lost controller from a broker's copy of the metadata log"),
        "restore-topic": Command("serve", "restore the events topic in Kafka from folders of workers and gateways"),
        "handback": Command("flags", "hand a cluster back to Kafka's controller"),
        "backup": Command("flags", "copy the log of a running service to a folder or an object store"),
        "recover": Command("flags", "create a data folder from a backup or an archive, as of any point in time"),
    },
    "verify": {
        "prove": Command("flags", "write a proof that events are in the log"),
        "verify": Command("flags", "verify a proof, or a whole log against its signed tree heads"),
        "replay": Command("replay", "repeat the decisions of the log, check and query it, with Spark or --local"),
        "check": Command("serve", "validate settings and rules files without a server, for example in CI"),
    },
    "set up": {
        "notify": Command(
            "governance", "send refusals, approvals, offline partitions and more to a webhook or a Kafka topic"
        ),
        "mcp": Command("flags", "serve status, explain, changes and more to assistants, read-only, over stdio (MCP)"),
        "context": Command("context", "name the services that commands read and change"),
        "completion": Command("context", "print the script that completes commands in bash, zsh or fish"),
    },
}
COMMANDS: Final[Mapping[str, Command]] = {name: one for group in GROUPS.values() for name, one in group.items()}

_SAMPLES: Final = """\
NAME: pay.orders; NAME|PATTERN: 'pay.*'; TOPIC|REQUEST: pay.orders; REQUEST|TOPIC|OFFSET: pay.orders; USER: alice; \
ID: 1; N: 12; MS: 5000; LABEL=VALUE: owner=payments; CONTEXT: prod; FROM: 2h; VERSION|FILE: 3; SHELL: bash; \
FILE: rules.toml; PATH: topics/; REQUEST: 3f2a9c-12-9c1d02f47a; TARGET: https://hooks.example/kafka; \
STATE: notify.prom; DIR: folder; LOG: topicwright-data; URL: s3://bucket/topicwright; \
CHANGE: lose-broker 3; QUERY: 'show tables'; TEXT: 'agreed with ann'; HOST:PORT: localhost:8080; \
HOST:PORT[,…]: localhost:9092; METADATA_DIR: /var/lib/kafka; \
BROKER_METADATA_DIR: broker-1/metadata; PROOF|DIR|URL|HOST:PORT: proof.json"""
"""A value of each kind of argument, for the examples in the help."""
_MORE: Final = {
    "serve": "--brokers simulated:5",
    "status": "--watch",
    "topics": "'pay.*' --status offline --sort-by created",
    "events": "--topic 'pay.*' --since 1h",
    "requests": "--principal 'pay-*' --outcome rejected --since 1d",
    "brokers": "--at 'yesterday 14:00'",
    "changes": "'pay.*' --since 1h",
    "topic create": "--partitions 6 --config retention.ms=86400000",
    "topic alter": "--config retention.ms=86400000 --dry-run",
    "topic label": "owner=payments",
    "plan": "--prune --save plan.json",
    "apply": "--plan plan.json",
    "users": "--bootstrap localhost:9092",
}
"""The flags of an example."""


def add_examples(parser: argparse.ArgumentParser) -> None:
    """End the help of a command, and of its actions, with an example."""
    samples = {name: value for name, _, value in (one.partition(": ") for one in _SAMPLES.split("; "))}
    words = [parser.prog]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                add_examples(each)
                parser.epilog = each.epilog
        elif action.required and action.nargs != "*":
            words += [*action.option_strings[:1], samples.get(str(action.metavar), str(action.metavar))]
    _, group, *action_name = parser.prog.split()
    words.append(_MORE.get(" ".join((group, *action_name))) or _MORE.get(group, ""))
    parser.epilog = parser.epilog or f"Example: {' '.join(words).strip()}"


Parsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""The sub-parsers to which a module adds its commands."""


def add_command(commands: Parsers, name: str, run: str = "", more: str = "") -> argparse.ArgumentParser:
    return add_action(commands, name, COMMANDS[name].summary, run, more)


def add_actions(command: argparse.ArgumentParser, metavar: str = "ACTION") -> Parsers:
    return command.add_subparsers(dest="action", required=True, metavar=metavar)


def add_action(actions: Parsers, name: str, summary: str, run: str = "", more: str = "") -> argparse.ArgumentParser:
    """Add a command or an action of one. Its help page begins with its summary as a sentence, which `more` continues.
    `run` is the function that runs it, as in `later`."""
    description = f"{summary[:1].upper()}{summary[1:]}. {more}".strip()
    parser = actions.add_parser(name, help=summary, description=description)
    if run:
        parser.set_defaults(func=later(run))
    return parser


def add(
    parser: argparse._ActionsContainer,
    syntax: str,
    what: str,
    parse: Callable[[str], Any] = str,
    *,
    repeated: bool = False,
    completer: Callable[..., Iterable[str]] | None = None,
    **more: Any,
) -> None:
    """Add an argument. The syntax is `--flag VALUE`, `--flag`, or a positional argument's name and `VALUE`. `what` is
    the help; a shell offers the values that `completer` returns."""
    name, _, metavar = syntax.partition(" ")
    kind: dict[str, Any] = {"type": parse, "metavar": metavar} if metavar else {"action": "store_true"}
    kind |= {"action": "append", "default": []} if repeated else {}
    parser.add_argument(name, help=what, **kind, **more).completer = completer  # type: ignore[attr-defined]


def later(function: str) -> Callable[..., Any]:
    """A function of this package, such as `work.verify.prove`, whose module is loaded when it is called."""
    module, _, name = function.rpartition(".")

    def run(*given: object) -> Any:
        return getattr(import_module(f"controller.cli.{module}"), name)(*given)

    return run


def in_groups() -> str:
    """The commands with their summaries, for the help."""
    width = max(map(len, COMMANDS))
    lines = []
    for group, commands in GROUPS.items():
        lines += ["", f"{group}:", *(f"    {name:{width}}  {one.summary}" for name, one in commands.items())]
    return "\n".join(lines[1:])
