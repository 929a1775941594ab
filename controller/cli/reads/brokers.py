"""`topicwright brokers` and `settings`: who carries decisions out, and what decides, now or as it was."""

from __future__ import annotations

import argparse
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from controller.cli.commands import COMMANDS, Parsers
from controller.cli.reads import common
from controller.cli.terminal.printing import show
from controller.cli.terminal.usage import complain, count

if TYPE_CHECKING:
    from controller.cli.sources.http import Source


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    """Add the commands."""
    parser = commands.add_parser("brokers", description=f"{COMMANDS['brokers'].headline}.")
    parser.add_argument("id", nargs="?", type=count, metavar="ID", help="only this one; default: all")
    common.add_at(parser)
    common.add_source(parser, _brokers)
    parser = commands.add_parser("settings", description=f"{COMMANDS['settings'].headline}.")
    what = "only these: a key or a pattern such as 'default.*'; docs/settings.md says what each is for"
    parser.add_argument("key", nargs="?", default="*", metavar="KEY|PATTERN", help=what)
    common.add_at(parser)
    common.add_source(parser, _settings)


def _brokers(options: argparse.Namespace, source: Source) -> int:
    from controller.cli.reads import in_words

    answer = source.brokers(options.at)
    if options.id is not None:
        found = tuple(one for one in answer.brokers if one.broker_id == options.id)
        if not found:
            known = in_words.ids([one.broker_id for one in answer.brokers])
            return complain(f"no broker {options.id} is registered; there are: {known}", common.FOUND)
        from msgspec.structs import replace

        answer = replace(answer, brokers=found)
    show(
        options,
        {"brokers": answer.brokers, "live": answer.live, "as_of": answer.as_of},
        lambda look: in_words.brokers(answer, look),
        lambda: (one.broker_id for one in answer.brokers),
    )
    return common.DONE


def _settings(options: argparse.Namespace, source: Source) -> int:
    from controller.cli.reads import in_words

    answer = source.brokers(options.at)
    chosen = {key: value for key, value in answer.settings.items() if fnmatchcase(key, options.key)}
    if not chosen:
        known = ", ".join(sorted(answer.settings)) or "none"
        return complain(f"no setting {options.key!r} decides here; there are: {known}", common.FOUND)
    show(
        options,
        {"settings": chosen, "release": answer.release, "as_of": answer.as_of},
        lambda look: in_words.settings(answer, chosen, look),
        lambda: sorted(chosen),
    )
    return common.DONE
