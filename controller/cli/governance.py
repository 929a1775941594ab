"""Flags of the commands for files of topics, approvals, risks, and notifications."""

from __future__ import annotations

import argparse
from pathlib import Path

from controller.cli.arguments import count, count_within, non_empty
from controller.cli.commands import Parsers, add, add_command
from controller.cli.reads.common import add_backend, add_kafka_properties, add_label

NOTIFICATIONS = {
    "refused": ("CreateRejected", "ChangeRejected", "RequestsRefused", "CreationRefused"),
    "approval": ("ApprovalRequested", "ApprovalDecided"),
    "offline": ("PartitionChanged",),
    "discovered": ("TopicDiscovered", "TopicVanished"),
    "rules": ("RulesApplied",),
}
"""The kinds of notifications with the types of their events; a partition is offline when it loses its leader. `changes`
is another kind, of all that `topicwright changes` lists."""


def register(commands: Parsers) -> None:
    _register_files(commands)
    approve, deny = add_command(commands, "approve"), add_command(commands, "deny")
    for parser, run in ((approve, "reads.governance.approve"), (deny, "reads.governance.deny")):
        add(parser, "id REQUEST", "the request, as `topicwright requests --pending` lists it")
        add_backend(parser, run, may_be_stopped=False)
    add(deny, "--because TEXT", "the reason, for the requester", non_empty, required=True)
    parser = add_command(commands, "risks", more="Exit code 1 if there are any.")
    add(parser, "--limit N", "maximum number of topics; default %(default)s", count_within(1, 1000), default=100)
    add_label(parser)
    add_backend(parser, "reads.governance.risks")
    parser = add_command(commands, "notify", more="It runs until it is ended.")
    _add_target(parser, required=True)
    what = "where the offset of the next event is stored, in Prometheus' text format"
    add(parser, "--state STATE", what, Path, required=True)
    kinds = (*NOTIFICATIONS, "changes")
    what = f"the kinds of events to send: {' '.join(NOTIFICATIONS)} (default), changes"
    add(parser, "--events KIND", what, nargs="+", choices=kinds, default=[*NOTIFICATIONS])
    what = "offset to begin with if the file does not exist; default: the end of the log"
    add(parser, "--from OFFSET", what, count, dest="start")
    add_backend(parser, "work.notify.notify", formats=(), may_be_stopped=False)


def _register_files(commands: Parsers) -> None:
    page = "docs/topics-as-code.md describes the files."
    refused = f"{page} Exit code 1 if a change is rejected."
    plan, apply = add_command(commands, "plan", more=refused), add_command(commands, "apply", more=refused)
    drift = add_command(commands, "drift", more=f"{page} Exit code 1 if there are differences.")
    importing = add_command(commands, "import", more=page)
    add(plan, "--save FILE", "save the plan for `topicwright apply --plan FILE`", Path)
    what = "apply exactly this saved plan; if its result has changed since, say how and apply nothing"
    add(apply, "--plan FILE", what, Path)
    what = "only topics with this name or pattern, such as 'pay.*'; default: all topics"
    add(importing, "pattern NAME|PATTERN", what, nargs="?", default="*")
    add_backend(importing, "ascode.planning.write_files", formats=())
    what = "files or folders of YAML: Topicwright's format, topicctl, jikkou, Strimzi KafkaTopic, or Julie"
    for parser, number in ((plan, "+"), (apply, "*"), (drift, "+")):
        add(parser, "files PATH", what, Path, nargs=number)
    for parser in (plan, apply):
        add(parser, "--prune", "also delete topics that this set of files (`set: NAME`) created and no longer has")
    _add_target(drift)
    for parser, run in ((plan, "plan"), (apply, "apply"), (drift, "drift")):
        add_backend(parser, f"ascode.planning.{run}", may_be_stopped=False)


def _add_target(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Add the flags of a target of notifications."""
    group = parser.add_argument_group("target")
    what = "a webhook, https://HOST[:PORT]/PATH, or a Kafka topic, kafka://HOST:PORT[,…]/TOPIC"
    add(group, "--to TARGET", what, required=required)
    formats = ("cloudevents", "slack", "ocsf")
    what = f"{', '.join(formats)} (API Activity); default: %(default)s"
    add(group, "--format FORMAT", what, choices=formats, default=formats[0])
    add(group, "--key FILE", "webhook: sign with the key in this file", Path)
    add(group, "--allow-private", "webhook: allow private addresses, and http://")
    add_kafka_properties(group, "Kafka topic: ")
