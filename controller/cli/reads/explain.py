"""`topicwright explain`: why a topic is as it is, or how a request went."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from controller.cli.commands import COMMANDS, Parsers
from controller.cli.reads import common
from controller.cli.reads.completing import completed_by, topic_names
from controller.cli.terminal.printing import FORMATS, show
from controller.cli.terminal.usage import named

if TYPE_CHECKING:
    from controller.cli.sources.http import Source


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser("explain", description=f"Say {COMMANDS['explain'].summary}.")
    what = "the name of a topic, or the id of a request"
    completed_by(parser.add_argument("subject", type=named, metavar="TOPIC|REQUEST", help=what), topic_names)
    common.add_at(parser)
    common.add_source(parser, _explain, formats=[each for each in FORMATS if each != "name"])


def _explain(options: argparse.Namespace, source: Source) -> int:
    from projections.views import lines

    chain = source.explain(options.subject, options.at)
    show(options, chain, lambda look: lines.explanation(chain, None if look.wide else look.width), tuple)
    return common.DONE
