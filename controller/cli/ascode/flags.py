"""Flags of the commands for topics as code. The work is loaded only when a command runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from controller.cli.commands import COMMANDS, Parsers, later
from controller.cli.reads.common import add_backend

_FORMATS = "files or folders of YAML: Topicwright's format, topicctl, jikkou, Strimzi KafkaTopic, or Julie"


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    plan = _add(commands, "plan", "plan topics/", "plan topics/ --prune --save plan.json")
    plan.add_argument("files", nargs="+", type=Path, metavar="FILE", help=_FORMATS)
    _add_prune(plan)
    plan.add_argument("--save", type=Path, metavar="FILE", help="save the plan for `topicwright apply --plan FILE`")
    add_backend(plan, later("ascode.commands", "plan"))
    apply = _add(commands, "apply", "apply topics/ strimzi.yaml", "apply --plan plan.json")
    apply.add_argument("files", nargs="*", type=Path, metavar="FILE", help=_FORMATS)
    _add_prune(apply)
    what = "apply exactly this saved plan; if its result has changed since, say how and apply nothing"
    apply.add_argument("--plan", type=Path, metavar="FILE", help=what)
    add_backend(apply, later("ascode.commands", "apply"), may_be_stopped=False)
    importing = _add(commands, "import", "import > topics.yaml", "import 'pay.*' > pay.yaml")
    what = "only topics with this name or pattern, such as 'pay.*'; default: all topics"
    importing.add_argument("pattern", nargs="?", default="*", metavar="NAME|PATTERN", help=what)
    add_backend(importing, later("ascode.commands", "write_files"), formats=())
    drift = _add(commands, "drift", "drift topics/")
    drift.add_argument("files", nargs="+", type=Path, metavar="FILE", help=_FORMATS)
    add_backend(drift, later("ascode.commands", "drift"))


def _add(commands: Parsers[argparse.ArgumentParser], name: str, *examples: str) -> argparse.ArgumentParser:
    lines = "\n".join(f"    topicwright {each}" for each in examples)
    return commands.add_parser(
        name,
        description=f"{COMMANDS[name].description}\n{_EXIT_CODES[name]}",
        epilog=f"examples:\n{lines}\n\ndocs/topics-as-code.md describes the files.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _add_prune(parser: argparse.ArgumentParser) -> None:
    what = "also delete topics that this set of files (`set: NAME`) created and no longer has"
    parser.add_argument("--prune", action="store_true", help=what)


_REFUSED = "Exit codes: 0 done, 1 a change is refused, 2 error."
_EXIT_CODES = {
    "plan": _REFUSED,
    "apply": _REFUSED,
    "import": "",
    "drift": "Exit codes: 0 no difference, 1 differences, 2 error.",
}
