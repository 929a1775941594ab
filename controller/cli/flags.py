"""Flags of the commands in `controller.cli.reads`, `controller.cli.work` and `controller.cli.ascode`.

The modules that run them are loaded only when their command runs, so that `--help` stays fast.
"""

import argparse
from pathlib import Path

from controller.cli.arguments import (
    AGO,
    api_pattern,
    count,
    count_within,
    event_type,
    event_types,
    host_pattern,
    key_value,
    non_empty,
    point_in_time,
)
from controller.cli.commands import Parsers, add, add_action, add_actions, add_command
from controller.cli.output import FORMATS
from controller.cli.reads.common import (
    TOPIC_COLUMNS,
    add_at,
    add_backend,
    add_filter,
    add_kafka_properties,
    add_label,
    add_span,
    topic_names,
)
from controller.cli.serve import bootstrap
from projections.text.names import OUTCOMES, STATUSES

_STORE = "a folder, s3://BUCKET/PATH, gs://BUCKET/PATH or abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"
TAIL_MAX = 100_000
LIMIT = 100
LIMIT_MAX = 100_000


def register(commands: Parsers) -> None:
    _register_migration(commands)
    _register_copies(commands)
    _register_proofs(commands)
    _register_topics(commands)
    _register_topic(commands)
    _register_history(commands)
    _register_cluster(commands)
    _register_rules(commands)
    for name, run in (("mcp", "work.mcp.serve"), ("demo", "work.demo.demo")):
        add_backend(add_command(commands, name), run, formats=(), may_be_stopped=False)


def _register_migration(commands: Parsers) -> None:
    adopt = add_command(commands, "adopt", "work.folders.adopt")
    what = "metadata.log.dir (or log.dirs) of the stopped Kafka controller; it is only read"
    add(adopt, "--from METADATA_DIR", what, Path, dest="source", required=True)
    restore = add_command(commands, "restore", "work.folders.restore")
    what = "a broker's folder with __cluster_metadata-0; if repeated, the one with the longest log is used"
    add(restore, "--from BROKER_METADATA_DIR", what, Path, repeated=True, dest="sources", required=True)
    for parser in (adopt, restore):
        _add_data(parser)
        add(parser, "--cluster-id ID", "refuse folders of other clusters; default: accept any")
        add(parser, "--cut-torn-tail", "drop an incomplete batch at the end of the log; default: refuse such a log")
    handback = add_command(commands, "handback", "work.folders.handback")
    what = "folder to write to, the metadata.log.dir (or log.dirs) of Kafka's controller; must be empty or missing"
    add(handback, "--to METADATA_DIR", what, Path, required=True)
    _add_data(handback)
    what = "if the folder has this cluster's metadata, rename it to METADATA_DIR.before-handback; default: refuse"
    add(handback, "--replace", what)


def _register_copies(commands: Parsers) -> None:
    backup = add_command(commands, "backup", "work.folders.backup")
    add(backup, "url URL", f"destination: {_STORE}")
    _add_data(backup)
    recover = add_command(commands, "recover", "work.folders.recover")
    add(recover, "url URL", f"a backup, or the archive of a service: {_STORE}")
    add(recover, "--data DIR", "data folder to create", Path, required=True)
    what = f"recover the state as of an offset, an ISO-8601 time, {AGO}; default: the end"
    add(recover, "--at OFFSET|TIME", what, point_in_time)


def _add_data(parser: argparse.ArgumentParser) -> None:
    what = "data folder of this controller; default: ./%(default)s"
    add(parser, "--data DIR", what, Path, default=Path("topicwright-data"))


def _register_proofs(commands: Parsers) -> None:
    prove = add_command(commands, "prove")
    add(prove, "subject REQUEST|TOPIC|OFFSET", "prove the events of a request or a topic, or the event at an offset")
    add(prove, "--from OFFSET", "first offset to prove", count, dest="start", default=0)
    add(prove, "--limit N", "maximum number of events, up to 1000; default %(default)s", count, default=100)
    add(prove, "--head FILE", "prove against this head; default: the newest head", Path)
    add_backend(prove, "work.verify.prove", formats=())
    verify = add_command(commands, "verify", "work.verify.verify")
    what = "a proof from `prove`, the folder of a stopped service, an archive or backup, or a service's HTTP address"
    add(verify, "what PROOF|DIR|URL|HOST:PORT", what)
    add(verify, "--key PEM", "public key that must have signed the tree heads", Path)
    add(verify, "--head FILE", "a tree head saved earlier: a response of GET /v1/log/head, or a proof", Path)
    add(verify, "--command-config FILE", "properties for the login, as for `topics`", Path)
    for each in (prove, verify):
        add(each, "--partition N", "partition of the log, if it has several", count)


def _register_topics(commands: Parsers) -> None:
    parser = add_command(commands, "topics")
    what = "a topic to show in full, or a pattern such as 'pay.*' to list; default: list all topics"
    add(parser, "name NAME|PATTERN", what, non_empty, completer=topic_names, nargs="?")
    add_at(parser)
    what = f"list only topics with this status: {', '.join(STATUSES)}"
    add(parser, "--status STATUS", what, choices=STATUSES)
    add_filter(parser, "--principal", "list only topics that this user created")
    what = f"sort by {', '.join(TOPIC_COLUMNS)}; default: topic"
    add(parser, "--sort-by COLUMN", what, choices=TOPIC_COLUMNS)
    add_label(parser)
    what = "list only topics that have had no record since, such as 30d; needs --bootstrap"
    add(parser, "--unused TIME", what, point_in_time)
    add(parser, "--bootstrap HOST:PORT[,…]", "with --unused: the Kafka that has the records", bootstrap)
    add_kafka_properties(parser, "with --bootstrap: ")
    add_backend(parser, "reads.topics.topics")
    parser = add_command(commands, "explain")
    what = "name of a topic, or id of a request"
    add(parser, "subject TOPIC|REQUEST", what, non_empty, completer=topic_names)
    add_at(parser)
    add_backend(parser, "reads.topics.explain", formats=[each for each in FORMATS if each != "name"])


def _register_topic(commands: Parsers) -> None:
    actions = add_actions(add_command(commands, "topic"))
    create = add_action(actions, "create", "create a topic, and wait until it is ready")
    add(create, "name NAME", "the topic", non_empty)
    delete = add_action(actions, "delete", "delete a topic; its history remains in the log")
    again = add_action(actions, "recreate", "create a deleted topic again, as it was")
    alter = add_action(actions, "alter", "change configs of a topic")
    grow = add_action(actions, "grow", "add partitions to a topic")
    label = add_action(actions, "label", "set labels of a topic, such as its owner")
    wait = add_action(actions, "wait", "wait until a topic is ready or deleted")
    for parser in (delete, again, alter, grow, label, wait):
        add(parser, "name NAME", "the topic", non_empty, completer=topic_names)
    add(create, "--partitions N", "number of partitions; default: the cluster's", int)
    add(create, "--replication-factor N", "default: the cluster's", int)
    for parser in (create, alter):
        add(parser, "--config KEY=VALUE", "a config; may be repeated", key_value, repeated=True)
    add(create, "--timeout-ms MS", "how long to wait until it is ready; default: 30000", count)
    add(create, "--dry-run", "validate, and show the replicas that it would get")
    what = "the point in time whose replicas, configs and labels it gets; default: before its last deletion"
    add(again, "--at OFFSET|TIME", what, point_in_time)
    add(again, "--new-replicas", "choose replicas, instead of those that it had")
    add(again, "--dry-run", "validate, and show the topic that would be created")
    add(alter, "--delete-config KEY", "reset to the cluster's default", non_empty, repeated=True)
    add(grow, "--partitions N", "the new number of partitions", int, required=True)
    what = "a label, such as owner=payments, description=… or contact=…"
    add(label, "labels LABEL=VALUE", what, key_value, nargs="*")
    add(label, "--delete LABEL", "remove a label", non_empty, repeated=True)
    what, statuses = "%(choices)s; default %(default)s", ("ready", "deleted")
    add(wait, "--for STATUS", what, dest="status", choices=statuses, default="ready")
    add(wait, "--timeout-ms MS", "default %(default)s", count, default=30_000)
    for parser in (alter, grow, label):
        add(parser, "--dry-run", "validate, and show the values before and after")
    for parser in (create, delete, again, alter, grow, label, wait):
        add_backend(parser, "reads.topics.change", may_be_stopped=False)


def _register_history(commands: Parsers) -> None:
    parser = add_command(commands, "events")
    add(parser, "--topic NAME|PATTERN", "only events of this topic", non_empty, completer=topic_names)
    add(parser, "--request ID", "only events of this request", non_empty)
    add(parser, "--partition N", "only events of this partition of the log", count)
    what = "only events of this type, e.g. TopicCreated; repeatable"
    add(parser, "--type TYPE", what, event_type, repeated=True, completer=event_types)
    add_filter(parser, "--principal", "only events of this user's requests")
    add_span(parser)
    add(parser, "--tail N", "only the last N events", count_within(1, TAIL_MAX))
    add(parser, "--follow", "print new events as they come, until interrupted")
    add_backend(parser, "reads.events.events")
    parser = add_command(commands, "changes")
    what = "only changes of this topic, or of topics that match a pattern such as 'pay.*'"
    add(parser, "name NAME|PATTERN", what, non_empty, completer=topic_names, nargs="?")
    add_filter(parser, "--principal", "only changes by this user")
    add_label(parser)
    _add_window(parser, "changes")
    add_backend(parser, "reads.events.changes")
    parser = add_command(commands, "requests")
    add(parser, "id ID", "show this request in full; default: list", non_empty, nargs="?")
    add(parser, "--pending", "list the requests that wait for approval")
    add_filter(parser, "--principal", "only requests of this user")
    add_label(parser)
    what = f"only requests with this outcome of a topic: {', '.join(OUTCOMES)}"
    add(parser, "--outcome OUTCOME", what, choices=OUTCOMES)
    add_filter(parser, "--rule", "only requests with a topic that this rule rejected")
    what = "only requests through this API, such as CreateTopics or HTTP"
    add(parser, "--api NAME|PATTERN", what, api_pattern)
    what = "only requests from this client address, such as 10.1.2.3 or '10.1.*'"
    add(parser, "--host ADDRESS|PATTERN", what, host_pattern)
    _add_window(parser, "requests")
    add_backend(parser, "reads.topics.requests")


def _add_window(parser: argparse.ArgumentParser, things: str) -> None:
    add_span(parser)
    add_at(parser)
    what = f"maximum number of {things}; default %(default)s"
    add(parser, "--limit N", what, count_within(1, LIMIT_MAX), default=LIMIT)


def _register_cluster(commands: Parsers) -> None:
    parser = add_command(commands, "status", more="Exit code 1 if there are problems.")
    add_at(parser)
    add_backend(parser, "reads.cluster.status")
    more = "Nothing is changed. Exit code 1 if a topic gets worse or could not be created."
    parser = add_command(commands, "whatif", more=more)
    what = "in order: lose-broker ID, lose-rack RACK, drain ID (controlled shutdown), add-broker, or NAME=VALUE"
    add(parser, "change CHANGE", what, nargs="+")
    add_backend(parser, "reads.cluster.whatif")
    parser = add_command(commands, "brokers")
    add(parser, "id ID", "only this broker; default: all", count, nargs="?")
    add_at(parser)
    add_backend(parser, "reads.cluster.brokers")
    actions = add_actions(add_command(commands, "broker"))
    added = add_action(actions, "add", "add a broker, with the next free id")
    add(added, "--rack RACK", "default: one of its own", non_empty)
    stop = add_action(actions, "stop", "stop a broker: it is fenced, and its partitions elect other leaders")
    start = add_action(actions, "start", "start a broker: it catches up and rejoins the ISRs")
    delay = add_action(actions, "delay", "delay when a broker applies events")
    for parser in (stop, start, delay):
        add(parser, "id ID", "the broker", count)
    add(delay, "delay_ms MS", "from the event's commit on; 0 for none", count)
    for parser in (added, stop, start, delay):
        add_backend(parser, "reads.cluster.control", may_be_stopped=False)
    parser = add_command(commands, "settings")
    what = "only this key, or keys that match a pattern such as 'default.*'; docs/settings.md describes them"
    add(parser, "key KEY|PATTERN", what, nargs="?", default="*")
    add_at(parser)
    add_backend(parser, "reads.cluster.settings")
    parser = add_command(commands, "diff", more="Exit code 1 if there are differences.")
    add(parser, "before FROM", f"an offset, an ISO-8601 time, {AGO}", point_in_time)
    add(parser, "after TO", "default: now", point_in_time, nargs="?")
    add_backend(parser, "reads.cluster.diff")


def _register_rules(commands: Parsers) -> None:
    actions = add_actions(add_command(commands, "rules"), "COMMAND")
    shown = add_action(actions, "show", "list the effective rules, now or in the past")
    add(shown, "--text", "print the text of the rules")
    add_at(shown)
    add_backend(shown, "reads.cluster.show_rules")
    what = "check a file of rules, and try its examples, without a server"
    tested = add_action(actions, "test", what, "reads.cluster.test_rules")
    what = "find the past requests of a running service that the rules of a file would decide otherwise"
    tried = add_action(actions, "backtest", what)
    what = "decide the past requests of a running service again, and list those that end otherwise than recorded"
    redecided = add_action(actions, "redecide", what)
    for parser, run in ((tried, "reads.cluster.backtest_rules"), (redecided, "reads.cluster.redecide")):
        add(parser, "--since OFFSET|TIME", f"default: %(default)s; {AGO}", point_in_time, default="30d")
        add_backend(parser, run, may_be_stopped=False)
    applied = add_action(actions, "apply", "replace the effective rules by those of a file")
    add(applied, "--after VERSION", "only if this version is effective; 0 for none", count)
    for parser in (tested, tried, applied):
        add(parser, "file FILE", "file of rules (TOML)", Path)
    removed = add_action(actions, "remove", "remove all rules: apply a version without any")
    removed.set_defaults(file=None, after=None)
    for parser in (applied, removed):
        add_backend(parser, "reads.cluster.apply_rules", may_be_stopped=False)
    history = add_action(actions, "history", "list all versions, the newest first")
    add_backend(history, "reads.cluster.list_versions")
    diff = add_action(actions, "diff", "compare versions or files; exit code 1 if they differ")
    add(diff, "first VERSION|FILE", "a version or a file; a file alone is compared with the effective rules")
    add(diff, "second VERSION|FILE", "a version or a file; default: the effective rules", nargs="?")
    add_backend(diff, "reads.cluster.diff_rules", formats=())
