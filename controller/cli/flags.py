"""Flags of the commands in `controller.cli.reads`, `controller.cli.work` and `controller.cli.ascode`.

The modules that run them are loaded only when their command runs, so that `--help` stays fast.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from controller.cli.arguments import (
    AGO,
    add_action,
    api_pattern,
    completed_by,
    count,
    count_within,
    event_type,
    event_types,
    host_pattern,
    key_value,
    non_empty,
    point_in_time,
)
from controller.cli.commands import COMMANDS, Parsers, later
from controller.cli.output import FORMATS
from controller.cli.reads import common
from controller.cli.reads.common import topic_names
from controller.cli.serve import bootstrap
from projections.text.names import OUTCOMES, STATUSES

_STORE = "a folder, s3://BUCKET/PATH, gs://BUCKET/PATH or abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    _register_migration(commands)
    _register_copies(commands)
    _register_proofs(commands)
    _register_topics(commands)
    _register_topic(commands)
    _register_events(commands)
    _register_changes(commands)
    _register_requests(commands)
    _register_cluster(commands)
    _register_rules(commands)
    mcp = commands.add_parser("mcp", description=COMMANDS["mcp"].description)
    common.add_backend(mcp, later("work.mcp", "serve"), formats=(), may_be_stopped=False)
    demo = commands.add_parser("demo", description=COMMANDS["demo"].description)
    common.add_backend(demo, later("work.demo", "demo"), formats=(), may_be_stopped=False)


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
    adopt.set_defaults(func=later("work.folders", "adopt"))
    restore.set_defaults(func=later("work.folders", "restore"))
    handback = commands.add_parser("handback", description=COMMANDS["handback"].description)
    what = "folder to write to, the metadata.log.dir (or log.dirs) of Kafka's controller; must be empty or missing"
    handback.add_argument("--to", type=Path, required=True, metavar="METADATA_DIR", help=what)
    _add_data(handback)
    what = "if the folder has this cluster's metadata, rename it to METADATA_DIR.before-handback; default: refuse"
    handback.add_argument("--replace", action="store_true", help=what)
    handback.set_defaults(func=later("work.folders", "handback"))


def _register_copies(commands: Parsers[argparse.ArgumentParser]) -> None:
    backup = commands.add_parser("backup", description=COMMANDS["backup"].description)
    backup.add_argument("url", metavar="URL", help=f"destination: {_STORE}")
    _add_data(backup)
    backup.set_defaults(func=later("work.folders", "backup"))
    recover = commands.add_parser("recover", description=COMMANDS["recover"].description)
    recover.add_argument("url", metavar="URL", help=f"a backup, or the archive of a service: {_STORE}")
    recover.add_argument("--data", type=Path, required=True, metavar="DIR", help="data folder to create")
    what = f"recover the state as of an offset, an ISO-8601 time, {AGO}; default: the end"
    recover.add_argument("--at", metavar="OFFSET|TIME", type=point_in_time, help=what)
    recover.set_defaults(func=later("work.folders", "recover"))


def _add_data(parser: argparse.ArgumentParser) -> None:
    what = "data folder of this controller; default: ./%(default)s"
    parser.add_argument("--data", type=Path, default=Path("topicwright-data"), metavar="DIR", help=what)


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


TAIL_MAX = 100_000
LIMIT = 100
LIMIT_MAX = 100_000


def _register_topics(commands: Parsers[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("topics", description=COMMANDS["topics"].description)
    what = "a topic to show in full, or a pattern such as 'pay.*' to list; default: list all topics"
    completed_by(parser.add_argument("name", nargs="?", type=non_empty, metavar="NAME|PATTERN", help=what), topic_names)
    common.add_at(parser)
    parser.add_argument("--status", choices=STATUSES, help="list only topics with this status: " + ", ".join(STATUSES))
    common.add_filter(parser, "--principal", "list only topics that this user created")
    what = f"sort by {', '.join(common.TOPIC_COLUMNS)}; default: topic"
    parser.add_argument("--sort-by", choices=common.TOPIC_COLUMNS, metavar="COLUMN", help=what)
    common.add_label(parser)
    what = "list only topics that have had no record since, such as 30d; needs --bootstrap"
    parser.add_argument("--unused", type=point_in_time, metavar="TIME", help=what)
    what = "with --unused: the Kafka that has the records"
    parser.add_argument("--bootstrap", type=bootstrap, metavar="HOST:PORT[,…]", help=what)
    common.add_kafka_properties(parser, "with --bootstrap")
    common.add_backend(parser, later("reads.topics", "topics"))
    parser = commands.add_parser("explain", description=f"Explain {COMMANDS['explain'].summary.partition(' ')[2]}.")
    what = "name of a topic, or id of a request"
    completed_by(parser.add_argument("subject", type=non_empty, metavar="TOPIC|REQUEST", help=what), topic_names)
    common.add_at(parser)
    formats = [each for each in FORMATS if each != "name"]
    common.add_backend(parser, later("reads.topics", "explain"), formats=formats)


def _register_topic(commands: Parsers[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("topic", description=COMMANDS["topic"].description)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = _add_topic_action(actions, "create", "create a topic, and wait until it is ready")
    create.add_argument("--partitions", type=int, metavar="N", help="number of partitions; default: the cluster's")
    create.add_argument("--replication-factor", type=int, metavar="N", help="default: the cluster's")
    _add_configs(create)
    what = "how long to wait until it is ready; default: 30000"
    create.add_argument("--timeout-ms", type=count, metavar="MS", help=what)
    create.add_argument("--dry-run", action="store_true", help="validate, and show the replicas that it would get")
    delete = _add_topic_action(actions, "delete", "delete a topic; its history remains in the log")
    again = _add_topic_action(actions, "recreate", "create a deleted topic again, as it was")
    what = "the point in time whose replicas, configs and labels it gets; default: before its last deletion"
    again.add_argument("--at", metavar="OFFSET|TIME", type=point_in_time, help=what)
    again.add_argument("--new-replicas", action="store_true", help="choose replicas, instead of those that it had")
    again.add_argument("--dry-run", action="store_true", help="validate, and show the topic that would be created")
    alter = _add_topic_action(actions, "alter", "change configs of a topic")
    _add_configs(alter)
    what = "reset to the cluster's default"
    alter.add_argument("--delete-config", action="append", default=[], type=non_empty, metavar="KEY", help=what)
    grow = _add_topic_action(actions, "grow", "add partitions to a topic")
    grow.add_argument("--partitions", type=int, required=True, metavar="N", help="the new number of partitions")
    label = _add_topic_action(actions, "label", "set labels of a topic, such as its owner")
    what = "a label, such as owner=payments, description=… or contact=…"
    label.add_argument("labels", nargs="*", type=key_value, metavar="LABEL=VALUE", help=what)
    label.add_argument("--delete", action="append", default=[], type=non_empty, metavar="LABEL", help="remove a label")
    wait = _add_topic_action(actions, "wait", "wait until a topic is ready or deleted")
    what = "%(choices)s; default %(default)s"
    wait.add_argument(
        "--for", dest="status", choices=("ready", "deleted"), default="ready", metavar="STATUS", help=what
    )
    wait.add_argument("--timeout-ms", type=count, default=30_000, metavar="MS", help="default %(default)s")
    for parser in (alter, grow, label):
        parser.add_argument("--dry-run", action="store_true", help="validate, and show the values before and after")
    for parser in (create, delete, again, alter, grow, label, wait):
        common.add_backend(parser, later("reads.topics", "change"), may_be_stopped=False)


def _add_topic_action(actions: Parsers[argparse.ArgumentParser], name: str, summary: str) -> argparse.ArgumentParser:
    parser = add_action(actions, name, summary)
    topic = parser.add_argument("name", type=non_empty, metavar="NAME", help="the topic")
    if name != "create":
        completed_by(topic, topic_names)
    return parser


def _add_configs(parser: argparse.ArgumentParser) -> None:
    what = "a config; may be repeated"
    parser.add_argument("--config", action="append", default=[], type=key_value, metavar="KEY=VALUE", help=what)


def _register_events(commands: Parsers[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("events", description=COMMANDS["events"].description)
    of_topic = parser.add_argument("--topic", type=non_empty, metavar="NAME|PATTERN", help="only events of this topic")
    completed_by(of_topic, topic_names)
    parser.add_argument("--request", type=non_empty, metavar="ID", help="only events of this request")
    parser.add_argument("--partition", type=count, metavar="N", help="only events of this partition of the log")
    what = "only events of this type, e.g. TopicCreated; repeatable"
    of_type = parser.add_argument("--type", action="append", type=event_type, metavar="TYPE", help=what)
    completed_by(of_type, event_types)
    common.add_filter(parser, "--principal", "only events of this user's requests")
    common.add_span(parser)
    parser.add_argument("--tail", type=count_within(1, TAIL_MAX), metavar="N", help="only the last N events")
    parser.add_argument("--follow", action="store_true", help="print new events as they come, until interrupted")
    common.add_backend(parser, later("reads.events", "events"))


def _register_changes(commands: Parsers[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("changes", description=COMMANDS["changes"].description)
    what = "only changes of this topic, or of topics that match a pattern such as 'pay.*'"
    completed_by(parser.add_argument("name", nargs="?", type=non_empty, metavar="NAME|PATTERN", help=what), topic_names)
    common.add_filter(parser, "--principal", "only changes by this user")
    common.add_label(parser)
    common.add_span(parser)
    common.add_at(parser)
    _add_limit(parser, "changes")
    common.add_backend(parser, later("reads.events", "changes"))


def _add_limit(parser: argparse.ArgumentParser, things: str) -> None:
    what = f"maximum number of {things}; default %(default)s"
    parser.add_argument("--limit", type=count_within(1, LIMIT_MAX), default=LIMIT, metavar="N", help=what)


def _register_requests(commands: Parsers[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("requests", description=COMMANDS["requests"].description)
    parser.add_argument("id", nargs="?", type=non_empty, metavar="ID", help="show this request in full; default: list")
    parser.add_argument("--pending", action="store_true", help="list the requests that wait for approval")
    common.add_filter(parser, "--principal", "only requests of this user")
    common.add_label(parser)
    outcomes = "only requests with this outcome of a topic: " + ", ".join(OUTCOMES)
    parser.add_argument("--outcome", choices=OUTCOMES, metavar="OUTCOME", help=outcomes)
    common.add_filter(parser, "--rule", "only requests with a topic that this rule rejected")
    what = "only requests through this API, such as CreateTopics or HTTP"
    parser.add_argument("--api", type=api_pattern, metavar="NAME|PATTERN", help=what)
    what = "only requests from this client address, such as 10.1.2.3 or '10.1.*'"
    parser.add_argument("--host", type=host_pattern, metavar="ADDRESS|PATTERN", help=what)
    common.add_span(parser)
    common.add_at(parser)
    _add_limit(parser, "requests")
    common.add_backend(parser, later("reads.topics", "requests"))


def _register_cluster(commands: Parsers[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "status", description=f"{COMMANDS['status'].description} Exit code 1 if there are problems."
    )
    common.add_at(parser)
    common.add_backend(parser, later("reads.cluster", "status"))
    parser = commands.add_parser(
        "whatif",
        description=f"{COMMANDS['whatif'].description} Nothing is changed. "
        "Exit code 1 if a topic gets worse or could not be created.",
    )
    what = "in order: lose-broker ID, lose-rack RACK, drain ID (controlled shutdown), add-broker, or NAME=VALUE"
    parser.add_argument("change", nargs="+", metavar="CHANGE", help=what)
    common.add_backend(parser, later("reads.cluster", "whatif"))
    parser = commands.add_parser("brokers", description=COMMANDS["brokers"].description)
    parser.add_argument("id", nargs="?", type=count, metavar="ID", help="only this broker; default: all")
    common.add_at(parser)
    common.add_backend(parser, later("reads.cluster", "brokers"))
    parser = commands.add_parser("broker", description=COMMANDS["broker"].description)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for action, summary in (
        ("add", "add a broker, with the next free id"),
        ("stop", "stop a broker: it is fenced, and its partitions elect other leaders"),
        ("start", "start a broker: it catches up and rejoins the ISRs"),
        ("delay", "delay when a broker applies events"),
    ):
        each = add_action(actions, action, summary)
        if action == "add":
            each.add_argument("--rack", type=non_empty, metavar="RACK", help="default: one of its own")
        else:
            each.add_argument("id", type=count, metavar="ID", help="the broker")
        if action == "delay":
            each.add_argument("delay_ms", type=count, metavar="MS", help="from the event's commit on; 0 for none")
        common.add_backend(each, later("reads.cluster", "control"), may_be_stopped=False)
    parser = commands.add_parser("settings", description=COMMANDS["settings"].description)
    what = "only this key, or keys that match a pattern such as 'default.*'; docs/settings.md describes them"
    parser.add_argument("key", nargs="?", default="*", metavar="KEY|PATTERN", help=what)
    common.add_at(parser)
    common.add_backend(parser, later("reads.cluster", "settings"))
    parser = commands.add_parser(
        "diff", description=f"{COMMANDS['diff'].description} Exit code 1 if there are differences."
    )
    what = f"an offset, an ISO-8601 time, {AGO}"
    parser.add_argument("before", type=point_in_time, metavar="FROM", help=what)
    parser.add_argument("after", nargs="?", type=point_in_time, metavar="TO", help="default: now")
    common.add_backend(parser, later("reads.cluster", "diff"))


def _register_rules(commands: Parsers[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("rules", description=COMMANDS["rules"].description)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    shown = add_action(verbs, "show", "list the effective rules, now or in the past")
    shown.add_argument("--text", action="store_true", help="print the text of the rules")
    common.add_at(shown)
    common.add_backend(shown, later("reads.cluster", "show_rules"))
    tested = add_action(verbs, "test", "check a file of rules, and try its examples, without a server")
    tested.set_defaults(func=later("reads.cluster", "test_rules"))
    what = "find the past requests of a running service that the rules of a file would decide otherwise"
    tried = add_action(verbs, "backtest", what)
    what = "decide the past requests of a running service again, and list those that end otherwise than recorded"
    redecided = add_action(verbs, "redecide", what)
    what = f"default: %(default)s; {AGO}"
    for parser, name in ((tried, "backtest_rules"), (redecided, "redecide")):
        parser.add_argument("--since", type=point_in_time, default="30d", metavar="OFFSET|TIME", help=what)
        common.add_backend(parser, later("reads.cluster", name), may_be_stopped=False)
    applied = add_action(verbs, "apply", "replace the effective rules by those of a file")
    applied.add_argument("--after", type=count, metavar="VERSION", help="only if this version is effective; 0 for none")
    common.add_backend(applied, later("reads.cluster", "apply_rules"), may_be_stopped=False)
    for parser in (tested, tried, applied):
        parser.add_argument("file", type=Path, metavar="FILE", help="file of rules (TOML)")
    removed = add_action(verbs, "remove", "remove all rules: apply a version without any")
    removed.set_defaults(file=None, after=None)
    common.add_backend(removed, later("reads.cluster", "apply_rules"), may_be_stopped=False)
    history = add_action(verbs, "history", "list all versions, the newest first")
    common.add_backend(history, later("reads.cluster", "list_versions"))
    diff = add_action(verbs, "diff", "compare versions or files; exit code 1 if they differ")
    what = "a version or a file; a file alone is compared with the effective rules"
    diff.add_argument("first", metavar="VERSION|FILE", help=what)
    what = "a version or a file; default: the effective rules"
    diff.add_argument("second", nargs="?", metavar="VERSION|FILE", help=what)
    common.add_backend(diff, later("reads.cluster", "diff_rules"), formats=())
