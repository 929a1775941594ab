"""Flags of `users`, `acls` and `quotas`."""

from __future__ import annotations

import argparse
from pathlib import Path

from controller.cli.arguments import count_within
from controller.cli.commands import Parsers, add, add_action, add_actions, add_command
from controller.cli.output import add_output
from controller.cli.serve import bootstrap

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
    _register_users(commands)
    _register_access(commands)


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
