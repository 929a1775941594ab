"""Flags of the commands that read, and of those that change topics and rules. The modules that run them are loaded only
when their command runs, so that `--help` stays fast.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from controller.cli.arguments import (
    AGO,
    add_action,
    completed_by,
    count,
    count_within,
    key_value,
    non_empty,
    point_in_time,
    suggestion,
)
from controller.cli.commands import COMMANDS, Parsers, later
from controller.cli.output import FORMATS
from controller.cli.reads import common
from controller.cli.reads.common import event_types, topic_names
from projections.text.names import OUTCOMES, STATUSES

TAIL_MAX = 100_000
LIMIT = 100
LIMIT_MAX = 100_000


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    _register_topics(commands)
    _register_topic(commands)
    _register_events(commands)
    _register_requests(commands)
    _register_cluster(commands)
    _register_rules(commands)
    _register_files(commands)


def _register_topics(commands: Parsers[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("topics", description=COMMANDS["topics"].description)
    what = "a topic to show in full, or a pattern such as 'pay.*' to list; default: list all topics"
    completed_by(parser.add_argument("name", nargs="?", type=non_empty, metavar="NAME|PATTERN", help=what), topic_names)
    common.add_at(parser)
    parser.add_argument("--status", choices=STATUSES, help="list only topics with this status: " + ", ".join(STATUSES))
    what = "list only topics that this user created, such as User:alice"
    parser.add_argument("--principal", metavar="PATTERN", help=what)
    what = "list only topics with this label, such as owner=payments; NAME alone for any value"
    parser.add_argument("--label", type=non_empty, metavar="NAME[=VALUE]", help=what)
    common.add_backend(parser, later("reads.topics", "topics"))
    parser = commands.add_parser("explain", description=f"Explain {COMMANDS['explain'].summary.partition(' ')[2]}.")
    what = "name of a topic, or id of a request"
    completed_by(parser.add_argument("subject", type=non_empty, metavar="TOPIC|REQUEST", help=what), topic_names)
    common.add_at(parser)
    formats = [each for each in FORMATS if each != "name"]
    common.add_backend(parser, later("reads.topics", "explain"), formats=formats)


def _register_topic(commands: Parsers[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("topic", description=COMMANDS["topic"].description)
    change = later("reads.topics", "change")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = _add_topic_action(actions, "create", "create a topic, and wait until it is ready")
    create.add_argument("--partitions", type=int, metavar="N", help="number of partitions; default: the cluster's")
    create.add_argument("--replication-factor", type=int, metavar="N", help="default: the cluster's")
    _add_configs(create)
    what = "how long to wait until it is ready; default: 30000"
    create.add_argument("--timeout-ms", type=count, metavar="MS", help=what)
    create.add_argument("--dry-run", action="store_true", help="validate, and show the replicas that it would get")
    common.add_backend(create, change)
    delete = _add_topic_action(actions, "delete", "delete a topic; its history remains in the log")
    common.add_backend(delete, change, may_be_stopped=False)
    again = _add_topic_action(actions, "recreate", "create a deleted topic again, as it was")
    what = "the point in time whose replicas, configs and labels it gets; default: before its last deletion"
    again.add_argument("--at", metavar="OFFSET|TIME", type=point_in_time, help=what)
    again.add_argument("--new-replicas", action="store_true", help="choose replicas, instead of those that it had")
    again.add_argument("--dry-run", action="store_true", help="validate, and show the topic that would be created")
    common.add_backend(again, change, may_be_stopped=False)
    alter = _add_topic_action(actions, "alter", "change configs of a topic")
    _add_configs(alter)
    what = "reset to the cluster's default"
    alter.add_argument("--delete-config", action="append", default=[], type=non_empty, metavar="KEY", help=what)
    common.add_backend(alter, change, may_be_stopped=False)
    grow = _add_topic_action(actions, "grow", "add partitions to a topic")
    grow.add_argument("--partitions", type=int, required=True, metavar="N", help="the new number of partitions")
    common.add_backend(grow, change, may_be_stopped=False)

    label = _add_topic_action(actions, "label", "set labels of a topic, such as its owner")
    what = "a label, such as owner=payments, description=… or contact=…"
    label.add_argument("labels", nargs="*", type=key_value, metavar="LABEL=VALUE", help=what)
    label.add_argument("--delete", action="append", default=[], type=non_empty, metavar="LABEL", help="remove a label")
    common.add_backend(label, change, may_be_stopped=False)


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
    of_topic = parser.add_argument("--topic", type=non_empty, metavar="NAME", help="only events of this topic")
    completed_by(of_topic, topic_names)
    parser.add_argument("--request", type=non_empty, metavar="ID", help="only events of this request")
    parser.add_argument("--partition", type=count, metavar="N", help="only events of this partition of the log")
    what = "only events of this type, e.g. TopicCreated; repeatable"
    of_type = parser.add_argument("--type", action="append", type=_type, metavar="TYPE", help=what)
    completed_by(of_type, event_types)
    what = "only events of this user's requests, such as User:alice or 'User:a*'"
    parser.add_argument("--principal", metavar="PATTERN", help=what)
    parser.add_argument("--from", dest="start", type=count, metavar="OFFSET", help="first offset")
    common.add_span(parser)
    parser.add_argument("--tail", type=count_within(1, TAIL_MAX), metavar="N", help="only the last N events")
    parser.add_argument("--follow", action="store_true", help="print new events as they come, until interrupted")
    common.add_backend(parser, later("reads.events", "events"))


def _type(text: str) -> str:
    known = list(event_types())
    if text not in known:
        raise argparse.ArgumentTypeError(f"{text!r} is not an event type{suggestion(text, known)}")
    return text


def _register_requests(commands: Parsers[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("requests", description=COMMANDS["requests"].description)
    parser.add_argument("id", nargs="?", type=non_empty, metavar="ID", help="show this request in full; default: list")
    parser.add_argument("--principal", metavar="NAME", help="only requests of this user, such as User:alice")
    outcomes = "only requests with this outcome of a topic: " + ", ".join(OUTCOMES)
    parser.add_argument("--outcome", choices=OUTCOMES, metavar="OUTCOME", help=outcomes)
    parser.add_argument("--rule", metavar="RULE", help="only requests with a topic that this rule refused")
    parser.add_argument("--api", metavar="NAME", help="only requests through this API, such as CreateTopics or HTTP")
    parser.add_argument("--host", metavar="ADDRESS", help="only requests from this client address")
    common.add_span(parser)
    common.add_at(parser)
    of_limit = "maximum number of requests; default %(default)s"
    parser.add_argument("--limit", type=count_within(1, LIMIT_MAX), default=LIMIT, metavar="N", help=of_limit)
    common.add_backend(parser, later("reads.topics", "requests"))


def _register_cluster(commands: Parsers[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "status", description=f"{COMMANDS['status'].description} Exit codes: 0 healthy, 1 problems, 2 error."
    )
    common.add_at(parser)
    common.add_backend(parser, later("reads.brokers", "status"))
    parser = commands.add_parser(
        "whatif",
        description=f"{COMMANDS['whatif'].description} Nothing is changed. "
        "Exit codes: 0 no topic gets worse, 1 some do or could not be created, 2 error.",
        epilog="Example: topicwright whatif lose-broker 3 min.insync.replicas=2",
    )
    what = "in order: lose-broker ID, lose-rack RACK, drain ID (controlled shutdown), add-broker, or NAME=VALUE"
    parser.add_argument("change", nargs="+", metavar="CHANGE", help=what)
    common.add_backend(parser, later("reads.brokers", "whatif"))
    parser = commands.add_parser("brokers", description=COMMANDS["brokers"].description)
    parser.add_argument("id", nargs="?", type=count, metavar="ID", help="only this broker; default: all")
    common.add_at(parser)
    common.add_backend(parser, later("reads.brokers", "brokers"))
    parser = commands.add_parser("settings", description=COMMANDS["settings"].description)
    what = "only this key, or keys that match a pattern such as 'default.*'; docs/settings.md describes them"
    parser.add_argument("key", nargs="?", default="*", metavar="KEY|PATTERN", help=what)
    common.add_at(parser)
    common.add_backend(parser, later("reads.brokers", "settings"))
    parser = commands.add_parser(
        "diff", description=f"{COMMANDS['diff'].description} Exit codes: 0 no difference, 1 differences, 2 error."
    )
    what = f"an offset, an ISO-8601 time, {AGO}"
    parser.add_argument("before", type=point_in_time, metavar="FROM", help=what)
    parser.add_argument("after", nargs="?", type=point_in_time, metavar="TO", help="default: now")
    common.add_backend(parser, later("reads.brokers", "diff"))


def _register_rules(commands: Parsers[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("rules", description=COMMANDS["rules"].description)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    shown = add_action(verbs, "show", "list the effective rules, now or in the past")
    shown.add_argument("--text", action="store_true", help="print the text of the rules")
    common.add_at(shown)
    common.add_backend(shown, later("reads.rules", "show_rules"))
    tested = add_action(verbs, "test", "check a file of rules, and try its examples, without a server")
    tested.set_defaults(func=later("reads.rules", "test"))
    what = "find the past requests of a running service that the rules of a file would decide otherwise"
    tried = add_action(verbs, "backtest", what)
    what = f"default: %(default)s; {AGO}"
    tried.add_argument("--since", type=point_in_time, default="30d", metavar="OFFSET|TIME", help=what)
    common.add_backend(tried, later("reads.rules", "backtest"), may_be_stopped=False)
    applied = add_action(verbs, "apply", "replace the effective rules by those of a file")
    applied.add_argument("--after", type=count, metavar="VERSION", help="only if this version is effective; 0 for none")
    common.add_backend(applied, later("reads.rules", "apply"), may_be_stopped=False)
    for parser in (tested, tried, applied):
        parser.add_argument("file", type=Path, metavar="FILE", help="file of rules (TOML)")
    removed = add_action(verbs, "remove", "remove all rules: apply a version without any")
    removed.set_defaults(file=None, after=None)
    common.add_backend(removed, later("reads.rules", "apply"), may_be_stopped=False)
    history = add_action(verbs, "history", "list all versions, the newest first")
    common.add_backend(history, later("reads.rules", "history"))
    diff = add_action(verbs, "diff", "compare versions or files; exit code 1 if they differ")
    what = "a version or a file; a file alone is compared with the effective rules"
    diff.add_argument("first", metavar="VERSION|FILE", help=what)
    what = "a version or a file; default: the effective rules"
    diff.add_argument("second", nargs="?", metavar="VERSION|FILE", help=what)
    common.add_backend(diff, later("reads.rules", "diff"), formats=())


def _register_files(commands: Parsers[argparse.ArgumentParser]) -> None:
    refused = "\nExit codes: 0 done, 1 a change is refused, 2 error."
    plan = _add_with_files(commands, "plan", refused, "plan topics/", "plan topics/ --prune --save plan.json")
    plan.add_argument("--save", type=Path, metavar="FILE", help="save the plan for `topicwright apply --plan FILE`")
    apply = _add_with_files(commands, "apply", refused, "apply topics/ strimzi.yaml", "apply --plan plan.json")
    what = "apply exactly this saved plan; if its result has changed since, say how and apply nothing"
    apply.add_argument("--plan", type=Path, metavar="FILE", help=what)
    importing = _add_with_files(commands, "import", "", "import > topics.yaml", "import 'pay.*' > pay.yaml")
    what = "only topics with this name or pattern, such as 'pay.*'; default: all topics"
    importing.add_argument("pattern", nargs="?", default="*", metavar="NAME|PATTERN", help=what)
    common.add_backend(importing, later("ascode.planning", "write_files"), formats=())
    codes = "\nExit codes: 0 no difference, 1 differences, 2 error."
    drift = _add_with_files(commands, "drift", codes, "drift topics/")
    what = "files or folders of YAML: Topicwright's format, topicctl, jikkou, Strimzi KafkaTopic, or Julie"
    for parser, number in ((plan, "+"), (apply, "*"), (drift, "+")):
        parser.add_argument("files", nargs=number, type=Path, metavar="FILE", help=what)
    what = "also delete topics that this set of files (`set: NAME`) created and no longer has"
    for parser in (plan, apply):
        parser.add_argument("--prune", action="store_true", help=what)
    common.add_backend(plan, later("ascode.planning", "plan"))
    common.add_backend(apply, later("ascode.planning", "apply"), may_be_stopped=False)
    common.add_backend(drift, later("ascode.planning", "drift"))


def _add_with_files(
    commands: Parsers[argparse.ArgumentParser], name: str, exit_codes: str, *examples: str
) -> argparse.ArgumentParser:
    lines = "\n".join(f"    topicwright {each}" for each in examples)
    return commands.add_parser(
        name,
        description=f"{COMMANDS[name].description}{exit_codes}",
        epilog=f"examples:\n{lines}\n\ndocs/topics-as-code.md describes the files.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
