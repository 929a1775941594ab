"""Every command: the module that has it, and what it is for.

It stands by itself so that `topicwright --help` loads no command, and another only its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final, NamedTuple


class Command(NamedTuple):
    """The module of this package with `register`, and a summary in some words."""

    module: str
    summary: str

    @property
    def headline(self) -> str:
        """The summary as the beginning of a sentence; names as Kafka keep their capitals."""
        return self.summary[:1].upper() + self.summary[1:]


GROUPS: Final[Mapping[str, Mapping[str, Command]]] = {
    "run": {
        "serve": Command("serve", "a controller with its log in one process"),
        "gateway": Command("gateway", "answer clients, while workers decide"),
        "worker": Command("worker", "decide, over Kafka; any number of them share the work"),
        "join": Command("quorum", "vote among the controllers of a Kafka cluster"),
        "demo": Command("demo", "a story in a minute: create, refuse, dry-run, explain"),
    },
    "look": {
        "topics": Command("reads.topics", "list topics, or show one, now or as it was"),
        "events": Command("reads.events", "the log, event by event"),
        "explain": Command("reads.explain", "why a topic is as it is, or how a request went"),
        "requests": Command("reads.requests", "who requested what, and how it went"),
        "brokers": Command("reads.brokers", "the brokers, live and fenced, and why"),
        "settings": Command("reads.brokers", "the settings that decide"),
        "diff": Command("reads.diff", "what is different between two moments"),
        "quorum": Command("quorum", "who votes among the controllers, and how far they are"),
    },
    "change": {
        "topic": Command("topic", "create, delete, alter or grow a topic"),
        "users": Command("users", "add, list and remove those who can log in"),
        "leave": Command("quorum", "take a voter out of a quorum of controllers"),
        "adopt": Command("adopt", "take over a running cluster from Kafka's own controller"),
        "restore": Command("adopt", "rebuild a lost controller from a broker's copy of the metadata log"),
        "restore-topic": Command("worker", "write the events topic back to Kafka from folders of workers and gateways"),
        "handback": Command("adopt", "give a cluster back to Kafka's own controller"),
        "backup": Command("adopt", "copy a log to a folder or an object store, beside its service"),
        "recover": Command("adopt", "make a data folder of a backup or an archive, of any moment"),
    },
    "prove": {
        "prove": Command("reads.prove", "prove to others what stands in the log"),
        "verify": Command("reads.verify", "check a proof, or that a whole log is what it was"),
        "replay": Command("replay", "rebuild, prove and question the history, with Spark or --local"),
        "check": Command("check", "check settings and rules files, without a server"),
    },
    "set up": {
        "context": Command("context", "name the services that commands read and change"),
        "completion": Command("completion", "complete commands, flags and names in bash, zsh or fish"),
    },
}
COMMANDS: Final[Mapping[str, Command]] = {name: one for group in GROUPS.values() for name, one in group.items()}

Parsers = argparse._SubParsersAction
"""Where a module adds its commands."""


def later(module: str, function: str) -> Callable[[argparse.Namespace], int]:
    """A function of a module of this package, which is loaded only when it is called."""

    def run(options: argparse.Namespace) -> int:
        found: Callable[[argparse.Namespace], int] = getattr(import_module(f"controller.cli.{module}"), function)
        return found(options)

    return run


def in_groups() -> str:
    """All commands with their summaries, for the help."""
    width = max(map(len, COMMANDS))
    lines = []
    for group, commands in GROUPS.items():
        lines += ["", f"{group}:", *(f"    {name:{width}}  {one.summary}" for name, one in commands.items())]
    return "\n".join(lines[1:])
