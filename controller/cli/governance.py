"""Flags of the commands for files of topics, approvals, risks, notifications, users, ACLs and quotas."""

import argparse
from pathlib import Path

from controller.cli.arguments import count, count_within, non_empty
from controller.cli.commands import Parsers, add, add_action, add_actions, add_command
from controller.cli.output import add_output
from controller.cli.reads.common import add_backend, add_kafka_properties, add_label
from controller.cli.serve import bootstrap

NOTIFICATIONS = {
    "refused": ("CreateRejected", "ChangeRejected", "RequestsRefused", "CreationRefused"),
    "approval": ("ApprovalRequested", "ApprovalDecided"),
    "offline": ("PartitionChanged",),
    "discovered": ("TopicDiscovered", "TopicVanished"),
    "rules": ("RulesApplied",),
}
"""The kinds of notifications with the types of their events; a partition is offline when it loses its leader. `changes`
is another kind, of all that `topicwright changes` lists."""
_USERS = """\
Add, list and remove users.

    --data DIR                 SCRAM users in the log of a stopped service: to create the first one
    --bootstrap HOST:PORT      SCRAM users of a running service, or of any Kafka, through the admin API
    --file FILE                passwords (for PLAIN and HTTP) and tokens (for HTTP) in the file of `users.file`

The password is read from the terminal, or from the first line of standard input. It is never an argument, because
other users of a machine can see arguments.
"""
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384
"""The limits on SCRAM iterations in `controller.machine.access.requests`, a module that `--help` does not load."""


def register(commands: Parsers) -> None:
    _register_files(commands)
    _register_users(commands)
    _register_access(commands)
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
    group = parser.add_argument_group("target")
    what = "a webhook, https://HOST[:PORT]/PATH, or a Kafka topic, kafka://HOST:PORT[,…]/TOPIC"
    add(group, "--to TARGET", what, required=required)
    formats = ("cloudevents", "slack", "ocsf")
    what = f"{', '.join(formats)} (API Activity); default: %(default)s"
    add(group, "--format FORMAT", what, choices=formats, default=formats[0])
    add(group, "--key FILE", "webhook: sign with the key in this file", Path)
    add(group, "--allow-private", "webhook: allow private addresses, and http://")
    add_kafka_properties(group, "Kafka topic: ")


def _register_users(commands: Parsers) -> None:
    parser = add_command(commands, "users")
    parser.description, parser.formatter_class = _USERS, argparse.RawDescriptionHelpFormatter
    actions = add_actions(parser)
    adding = add_action(actions, "add", "add a user, or set its password", "work.users.add")
    add(adding, "name NAME", "the user")
    add(adding, "--token", "create a token for HTTP instead of a password; needs --file")
    what = f"SCRAM iterations, {ITERATIONS_MIN} to {ITERATIONS_MAX}; default %(default)s"
    within = count_within(ITERATIONS_MIN, ITERATIONS_MAX)
    add(adding, "--iterations N", what, within, default=ITERATIONS_MIN)
    removing = add_action(actions, "remove", "remove a user", "work.users.remove")
    add(removing, "name NAME", "the user")
    listing = add_action(actions, "list", "list users with their login methods, without secrets", "work.users.list_")
    add_output(listing)
    for each in (adding, removing, listing):
        where = each.add_mutually_exclusive_group(required=True)
        add(where, "--data DIR", "data folder of a stopped service", Path)
        add(where, "--bootstrap HOST:PORT", "a running service", bootstrap)
        add(where, "--file FILE", "users file", Path)
        add(each, "--config FILE", "with --data: settings file of the service", Path)
        add(each, "--set KEY=VALUE", "with --data: one setting", repeated=True)
        _add_properties(each)
    for each in (adding, removing):
        what = f"{', '.join(MECHANISMS)}; default %(default)s"
        add(each, "--mechanism MECHANISM", what, choices=MECHANISMS, default="SCRAM-SHA-512")


def _register_access(commands: Parsers) -> None:
    actions = add_actions(add_command(commands, "acls"))
    acls = add_action(actions, "list", "list ACLs", "work.access.list_acls")
    add(acls, "--principal TYPE:NAME", "only ACLs of this principal, as in User:ann")
    add(acls, "--resource TYPE:NAME", "only ACLs that cover this resource")
    add_acl = add_action(actions, "add", "add an ACL", "work.access.add_acl")
    remove_acl = add_action(actions, "remove", "remove an ACL", "work.access.remove_acl")
    for each in (add_acl, remove_acl):
        add(each, "principal PRINCIPAL", "as in User:ann; User:* for all users")
        add(each, "operation OPERATION", "as in Read, Write or All")
        add(each, "resource TYPE:NAME", "as in Topic:pay.orders or Group:app")
        add(each, "--prefixed", "all resources whose names begin with NAME")
        add(each, "--deny", "deny instead of allow")
        add(each, "--host ADDRESS", "client's address or range; default: all", default="*")
    actions = add_actions(add_command(commands, "quotas"))
    quotas = add_action(actions, "list", "list quotas", "work.access.list_quotas")
    what = "as in user=ann, user=ann,client-id=app or ip=10.0.0.7; <default> is the name of the default"
    add(quotas, "entity ENTITY", f"only quotas of this entity, {what}", nargs="?")
    add_quotas = add_action(actions, "add", "set quotas of an entity", "work.access.add_quotas")
    remove_quotas = add_action(actions, "remove", "remove quotas of an entity", "work.access.remove_quotas")
    for each, values in ((add_quotas, "KEY=NUMBER"), (remove_quotas, "KEY")):
        add(each, "entity ENTITY", what)
        add(each, f"values {values}", "as in controller_mutation_rate", nargs="+")
    for each in (acls, add_acl, remove_acl, quotas, add_quotas, remove_quotas):
        add(each, "--bootstrap HOST:PORT", "a running service, or any Kafka", bootstrap, required=True)
        _add_properties(each)
    for each in (acls, quotas):
        add_output(each)


def _add_properties(parser: argparse.ArgumentParser) -> None:
    add(parser, "--command-config FILE", "with --bootstrap: librdkafka properties for TLS and login")
