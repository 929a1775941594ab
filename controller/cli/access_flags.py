"""Flags of `users`, `acls` and `quotas`."""

from __future__ import annotations

import argparse
from pathlib import Path

from controller.cli import serve
from controller.cli.arguments import add_action, count_within
from controller.cli.commands import COMMANDS, Parsers, later
from controller.cli.output import add_output

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
_PROPERTIES = "with --bootstrap: librdkafka properties for TLS and login"


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    _register_users(commands)
    _register_access(commands)


def _register_users(commands: Parsers[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("users", description=_USERS)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    add = add_action(actions, "add", "add a user, or set its password")
    add.add_argument("name", metavar="NAME", help="the user")
    add.add_argument("--token", action="store_true", help="create a token for HTTP instead of a password; needs --file")
    what = f"SCRAM iterations, {ITERATIONS_MIN} to {ITERATIONS_MAX}; default %(default)s"
    within = count_within(ITERATIONS_MIN, ITERATIONS_MAX)
    add.add_argument("--iterations", type=within, default=ITERATIONS_MIN, help=what)
    remove = add_action(actions, "remove", "remove a user")
    remove.add_argument("name", metavar="NAME", help="the user")
    listing = add_action(actions, "list", "list users with their login methods, without secrets")
    add_output(listing)
    for each, run in ((add, "add"), (remove, "remove"), (listing, "list_")):
        where = each.add_mutually_exclusive_group(required=True)
        where.add_argument("--data", type=Path, metavar="DIR", help="data folder of a stopped service")
        where.add_argument("--bootstrap", type=serve.bootstrap, metavar="HOST:PORT", help="a running service")
        where.add_argument("--file", type=Path, metavar="FILE", help="users file")
        each.add_argument("--config", type=Path, metavar="FILE", help="with --data: settings file of the service")
        each.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="with --data: one setting")
        each.add_argument("--command-config", metavar="FILE", help=_PROPERTIES)
        each.set_defaults(func=later("work.users", run))
    what = "SASL mechanism; default %(default)s"
    for each in (add, remove):
        each.add_argument("--mechanism", choices=MECHANISMS, default="SCRAM-SHA-512", help=what)


def _register_access(commands: Parsers[argparse.ArgumentParser]) -> None:
    acls = commands.add_parser("acls", description=COMMANDS["acls"].description)
    actions = acls.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = add_action(actions, "list", "list ACLs")
    listing.add_argument("--principal", metavar="TYPE:NAME", help="only ACLs of this principal, as in User:ann")
    listing.add_argument("--resource", metavar="TYPE:NAME", help="only ACLs that cover this resource")
    add = add_action(actions, "add", "add an ACL")
    remove = add_action(actions, "remove", "remove an ACL")
    for each in (add, remove):
        each.add_argument("principal", metavar="PRINCIPAL", help="as in User:ann; User:* for all users")
        each.add_argument("operation", metavar="OPERATION", help="as in Read, Write or All")
        each.add_argument("resource", metavar="TYPE:NAME", help="as in Topic:pay.orders or Group:app")
        each.add_argument("--prefixed", action="store_true", help="all resources whose names begin with NAME")
        each.add_argument("--deny", action="store_true", help="deny instead of allow")
        each.add_argument("--host", default="*", metavar="ADDRESS", help="client's address or range; default: all")
    quotas = commands.add_parser("quotas", description=COMMANDS["quotas"].description)
    actions = quotas.add_subparsers(dest="action", required=True, metavar="ACTION")
    quotas_listing = add_action(actions, "list", "list quotas")
    quotas_add = add_action(actions, "add", "set quotas of an entity")
    quotas_remove = add_action(actions, "remove", "remove quotas of an entity")
    what = "as in user=ann, user=ann,client-id=app or ip=10.0.0.7; <default> is the name of the default"
    quotas_listing.add_argument("entity", nargs="?", metavar="ENTITY", help=f"only quotas of this entity, {what}")
    for each, metavar in ((quotas_add, "KEY=NUMBER"), (quotas_remove, "KEY")):
        each.add_argument("entity", metavar="ENTITY", help=what)
        each.add_argument("values", nargs="+", metavar=metavar, help="as in controller_mutation_rate")
    runs = {listing: "list_acls", add: "add_acl", remove: "remove_acl", quotas_listing: "list_quotas"}
    for each, run in {**runs, quotas_add: "add_quotas", quotas_remove: "remove_quotas"}.items():
        what = "a running service, or any Kafka"
        each.add_argument("--bootstrap", type=serve.bootstrap, required=True, metavar="HOST:PORT", help=what)
        each.add_argument("--command-config", metavar="FILE", help=_PROPERTIES)
        each.set_defaults(func=later("work.access", run))
    for each in (listing, quotas_listing):
        add_output(each)
