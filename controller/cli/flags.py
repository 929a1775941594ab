"""Flags of the commands that `controller.cli.work` implements: migration, backups, the quorum, users, proofs, demo.

A module of `work` is loaded only when its command runs, so that `--help` stays fast.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from controller.cli import serve
from controller.cli.arguments import AGO, add_action, count, count_within, point_in_time
from controller.cli.commands import COMMANDS, Parsers, later
from controller.cli.output import add_output
from controller.cli.reads import common

_STORE = "a folder, s3://BUCKET/PATH, gs://BUCKET/PATH or abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    _register_migration(commands)
    _register_copies(commands)
    _register_quorum(commands)
    _register_users(commands)
    _register_proofs(commands)
    commands.add_parser("demo", description=COMMANDS["demo"].description).set_defaults(func=later("work.demo", "demo"))


def _register_migration(commands: Parsers[argparse.ArgumentParser]) -> None:
    adopt = commands.add_parser("adopt", description=COMMANDS["adopt"].description)
    what = "metadata.log.dir (or log.dirs) of the stopped Kafka controller; it is only read"
    adopt.add_argument("--from", dest="source", type=Path, required=True, metavar="METADATA_DIR", help=what)
    restore = commands.add_parser("restore", description=COMMANDS["restore"].description)
    restore.add_argument(
        "--from",
        dest="sources",
        type=Path,
        action="append",
        required=True,
        metavar="BROKER_METADATA_DIR",
        help="a broker's folder with __cluster_metadata-0; if repeated, the one with the longest log is used",
    )
    for parser in (adopt, restore):
        _add_data(parser)
        parser.add_argument("--cluster-id", metavar="ID", help="refuse folders of other clusters; default: accept any")
        what = "drop an incomplete batch at the end of the log; default: refuse such a log"
        parser.add_argument("--cut-torn-tail", action="store_true", help=what)
    adopt.set_defaults(func=later("work.adopt", "adopt"))
    restore.set_defaults(func=later("work.adopt", "restore"))
    handback = commands.add_parser("handback", description=COMMANDS["handback"].description)
    what = "folder to write to, the metadata.log.dir (or log.dirs) of Kafka's controller; must be empty or missing"
    handback.add_argument("--to", type=Path, required=True, metavar="METADATA_DIR", help=what)
    _add_data(handback)
    what = "if the folder has this cluster's metadata, rename it to METADATA_DIR.before-handback; default: refuse"
    handback.add_argument("--replace", action="store_true", help=what)
    handback.set_defaults(func=later("work.adopt", "handback"))


def _register_copies(commands: Parsers[argparse.ArgumentParser]) -> None:
    backup = commands.add_parser("backup", description=COMMANDS["backup"].description)
    backup.add_argument("url", metavar="URL", help=f"destination: {_STORE}")
    _add_data(backup)
    backup.set_defaults(func=later("work.backup", "backup"))
    recover = commands.add_parser("recover", description=COMMANDS["recover"].description)
    recover.add_argument("url", metavar="URL", help=f"a backup, or the archive of a service: {_STORE}")
    recover.add_argument("--data", type=Path, required=True, metavar="DIR", help="data folder to create")
    what = f"recover the state as of an offset, an ISO-8601 time, {AGO}; default: the end"
    recover.add_argument("--at", metavar="OFFSET|TIME", type=point_in_time, help=what)
    recover.set_defaults(func=later("work.backup", "recover"))


def _add_data(parser: argparse.ArgumentParser) -> None:
    what = "data folder of this controller; default: ./%(default)s"
    parser.add_argument("--data", type=Path, default=Path("topicwright-data"), metavar="DIR", help=what)


def _register_quorum(commands: Parsers[argparse.ArgumentParser]) -> None:
    joining = serve.register_process(
        commands,
        "join",
        later("work.quorum", "start"),
        http="127.0.0.1:8080",
        data="topicwright-voter",
        content="the metadata log and this node's vote",
    )
    what = f"listen here for controllers and brokers; default {serve.DEFAULT_LISTEN}"
    joining.add_argument("--listen", type=serve.address, metavar="HOST:PORT", help=what)
    order = "Stop a Kafka controller before it leaves, a Topicwright voter afterwards."
    leaving = commands.add_parser("leave", description=f"{COMMANDS['leave'].description} {order}")
    leaving.add_argument("--data", type=Path, metavar="DIR", help="data folder of the leaving voter; it is not changed")
    what = "node id, if the voter's folder is lost; a controller removed so no longer limits the features (KIP-919)"
    leaving.add_argument("--id", type=int, metavar="NODE", help=what)
    leaving.set_defaults(func=later("work.quorum", "leave"))
    showing = commands.add_parser("quorum", description=COMMANDS["quorum"].description)
    showing.set_defaults(func=later("work.quorum", "show"))
    for parser in (joining, leaving, showing):
        flag, what = "--bootstrap-controller", "controllers of the cluster"
        parser.add_argument(flag, type=serve.bootstrap, required=True, metavar="HOST:PORT[,…]", help=what)
        parser.add_argument("--command-config", metavar="FILE", help="librdkafka properties for TLS and login")


_USERS = """\
Add, list and remove users.

    --data DIR                 SCRAM users in the log of a stopped service: to create the first one
    --bootstrap HOST:PORT      SCRAM users of a running service, or of any Kafka, through the admin API
    --file FILE                passwords (for PLAIN and HTTP) and tokens (for HTTP) in the file of `users.file`

The password is read from the terminal, or from the first line of standard input. It is never an argument, because
other users of a machine can see arguments.

Exit codes: 0 done, 1 refused or no such user, 2 wrong usage or no service reached.
"""
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384
"""The limits on SCRAM iterations in `controller.machine.access.requests`, a module that `--help` does not load."""


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
        where.add_argument("--bootstrap", metavar="HOST:PORT", help="a running service")
        where.add_argument("--file", type=Path, metavar="FILE", help="users file")
        each.add_argument("--config", type=Path, metavar="FILE", help="with --data: settings file of the service")
        each.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="with --data: one setting")
        properties = "with --bootstrap: librdkafka properties"
        each.add_argument("--command-config", type=Path, metavar="FILE", help=properties)
        each.set_defaults(func=later("work.users", run))
    what = "SASL mechanism; default %(default)s"
    for each in (add, remove):
        each.add_argument("--mechanism", choices=MECHANISMS, default="SCRAM-SHA-512", help=what)


def _register_proofs(commands: Parsers[argparse.ArgumentParser]) -> None:
    prove = commands.add_parser("prove", description=COMMANDS["prove"].description)
    what = "prove the events of a request or a topic, or the event at an offset"
    prove.add_argument("subject", metavar="REQUEST|TOPIC|OFFSET", help=what)
    prove.add_argument("--from", dest="start", type=count, default=0, metavar="OFFSET", help="first offset to prove")
    what = "maximum number of events, up to 1000; default %(default)s"
    prove.add_argument("--limit", type=count, default=100, metavar="N", help=what)
    what = "prove against this head; default: the newest head"
    prove.add_argument("--head", type=Path, metavar="FILE", help=what)
    common.add_backend(prove, later("work.verify", "prove"), formats=())
    verify = commands.add_parser("verify", description=COMMANDS["verify"].description)
    what = "a proof from `prove`, the folder of a stopped service, an archive or backup, or a service's HTTP address"
    verify.add_argument("what", metavar="PROOF|DIR|URL|HOST:PORT", help=what)
    verify.add_argument("--key", type=Path, metavar="PEM", help="public key that must have signed the tree heads")
    what = "a tree head saved earlier: a response of GET /v1/log/head, or a proof"
    verify.add_argument("--head", type=Path, metavar="FILE", help=what)
    verify.add_argument("--command-config", type=Path, metavar="FILE", help="properties for the login, as for `topics`")
    verify.set_defaults(func=later("work.verify", "verify"))
    for each in (prove, verify):
        each.add_argument("--partition", type=count, metavar="N", help="partition of the log, if it has several")
