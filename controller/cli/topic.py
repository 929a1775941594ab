"""`topicwright topic`: create, delete, alter and grow topics of a running service, over HTTP.

Exit codes: 0 done; 1 refused, or there is no such topic; 2 wrong usage, or no service reached.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from controller.cli.commands import COMMANDS, Parsers
from controller.cli.reads import common
from controller.cli.reads.completing import completed_by, topic_names
from controller.cli.terminal.printing import show
from controller.cli.terminal.usage import count, named, pair

if TYPE_CHECKING:
    from controller.cli.sources.http import Source


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser("topic", description=f"{COMMANDS['topic'].headline}.")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = _action(actions, "create", "create a topic, and wait until it is complete")
    create.add_argument("--partitions", type=int, metavar="N", help="how many; default: the cluster's")
    create.add_argument("--replication-factor", type=int, metavar="N", help="replicas of each; default: the cluster's")
    _add_configs(create)
    create.add_argument("--timeout-ms", type=count, metavar="MS", help="how long to wait until it is complete")
    create.add_argument("--dry-run", action="store_true", help="run every check and show the replicas it would get")
    common.add_source(create, _create)
    common.add_source(_action(actions, "delete", "delete a topic; its history stays"), _delete, may_be_stopped=False)
    alter = _action(actions, "alter", "change configs of a topic")
    _add_configs(alter)
    alter.add_argument(
        "--delete-config", action="append", default=[], type=named, metavar="KEY", help="back to the cluster's default"
    )
    common.add_source(alter, _alter, may_be_stopped=False)
    grow = _action(actions, "grow", "add partitions to a topic")
    grow.add_argument("--partitions", type=int, required=True, metavar="N", help="how many it is to have then")
    common.add_source(grow, _grow, may_be_stopped=False)


def _action(actions: Parsers[argparse.ArgumentParser], name: str, summary: str) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=summary, description=f"{summary[:1].upper()}{summary[1:]}.")
    name_of = parser.add_argument("name", type=named, metavar="NAME", help="the topic")
    if name != "create":
        completed_by(name_of, topic_names)
    return parser


def _add_configs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", action="append", default=[], type=pair, metavar="KEY=VALUE", help="a config; may be repeated"
    )


def _create(options: argparse.Namespace, source: Source) -> int:
    from controller.cli.reads import in_words
    from controller.cli.sources.http import Create

    if not options.dry_run and options.data is not None:
        raise common.Misuse("a stopped service creates nothing: --data goes with --dry-run")
    if options.dry_run and options.timeout_ms is not None:
        raise common.Misuse("a dry run waits for nothing: it goes without --timeout-ms")
    given = {
        "num_partitions": options.partitions,
        "replication_factor": options.replication_factor,
        "timeout_ms": options.timeout_ms,
    }
    create = Create(options.name, dict(options.config), **{name: one for name, one in given.items() if one is not None})

    def run() -> int:
        answer = source.dry_run(create) if options.dry_run else source.create(create)
        show(options, answer, lambda look: in_words.created(answer, look), lambda: [answer.name])
        return common.DONE

    return _refused_or(run, options, "would be refused" if options.dry_run else "is refused")


def _delete(options: argparse.Namespace, source: Source) -> int:
    def run() -> int:
        gone = source.delete(options.name)
        lines = [f"{gone.name} is deleted, in request {gone.request_id}; its history stays: `topicwright explain`"]
        show(options, gone, lambda _: lines, lambda: [gone.name])
        return common.DONE

    return _refused_or(run, options, "is not deleted")


def _alter(options: argparse.Namespace, source: Source) -> int:
    if not options.config and not options.delete_config:
        raise common.Misuse("say what to change: --config KEY=VALUE or --delete-config KEY")
    _refuse_unknown(options.delete_config, options, source)
    configs = {**dict(options.config), **dict.fromkeys(options.delete_config)}
    return _changed(options, source, {"configs": configs})


def _refuse_unknown(names: list[str], options: argparse.Namespace, source: Source) -> None:
    """Kafka takes the deletion of a config that there is not. So that a typing error is found, raise Misuse for one
    that Kafka does not have, and the topic neither."""
    from controller.cli.terminal.parser import meant
    from controller.machine.configs.table import BY_NAME

    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        of_topic = source.topic(options.name, None).configs
        for name in unknown:
            if name not in of_topic:
                raise common.Misuse(f"--delete-config {name}: there is no such topic config{meant(name, BY_NAME)}")


def _grow(options: argparse.Namespace, source: Source) -> int:
    return _changed(options, source, {"num_partitions": options.partitions})


def _changed(options: argparse.Namespace, source: Source, change: dict[str, object]) -> int:
    from controller.cli.reads import in_words

    def run() -> int:
        source.change(options.name, change)
        topic = source.topic(options.name, None)
        show(options, topic, lambda look: in_words.topic(topic, look), lambda: [topic.name])
        return common.DONE

    return _refused_or(run, options, "is not changed")


def _refused_or(run: Callable[[], int], options: argparse.Namespace, what: str) -> int:
    """The exit code of a change, or a line that says why it was refused."""
    from controller.cli.sources.http import Refusal

    try:
        return run()
    except Refusal as refusal:
        if refusal.status >= 500 or (refusal.status == 404 and not refusal.error.rule):
            raise
        error = refusal.error
        show(options, error, lambda _: [f"{options.name} {what}: {common.in_words(error)}"], lambda: [options.name])
        return common.FOUND
