"""Flags of the commands for files of topics."""

from __future__ import annotations

import argparse
from pathlib import Path

from controller.cli.commands import COMMANDS, Parsers, later
from controller.cli.governance import add_target
from controller.cli.reads import common


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    codes = {
        **dict.fromkeys(("plan", "apply"), " Exit code 1 if a change is rejected."),
        "import": "",
        "drift": " Exit code 1 if there are differences.",
    }
    more = " docs/topics-as-code.md describes the files."
    plan, apply, importing, drift = (
        commands.add_parser(name, description=COMMANDS[name].description + more + text) for name, text in codes.items()
    )
    plan.add_argument("--save", type=Path, metavar="FILE", help="save the plan for `topicwright apply --plan FILE`")
    what = "apply exactly this saved plan; if its result has changed since, say how and apply nothing"
    apply.add_argument("--plan", type=Path, metavar="FILE", help=what)
    what = "only topics with this name or pattern, such as 'pay.*'; default: all topics"
    importing.add_argument("pattern", nargs="?", default="*", metavar="NAME|PATTERN", help=what)
    common.add_backend(importing, later("ascode.planning", "write_files"), formats=())
    what = "files or folders of YAML: Topicwright's format, topicctl, jikkou, Strimzi KafkaTopic, or Julie"
    for parser, number in ((plan, "+"), (apply, "*"), (drift, "+")):
        parser.add_argument("files", nargs=number, type=Path, metavar="PATH", help=what)
    what = "also delete topics that this set of files (`set: NAME`) created and no longer has"
    for parser in (plan, apply):
        parser.add_argument("--prune", action="store_true", help=what)
    common.add_backend(plan, later("ascode.planning", "plan"), may_be_stopped=False)
    common.add_backend(apply, later("ascode.planning", "apply"), may_be_stopped=False)
    add_target(drift)
    common.add_backend(drift, later("ascode.planning", "drift"), may_be_stopped=False)
