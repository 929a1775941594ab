"""`topicwright join`, `leave` and `quorum`: a voter among the controllers of a Kafka cluster.

`join` runs until it is stopped, and is a voter from its first start to `leave`; both work without a restart of anything
else. `quorum` shows who votes, and the controllers that left and block upgrades; `leave` frees these. Exit codes:
0 done, 1 refused by the quorum or not finished, 2 wrong usage or settings.
"""

from __future__ import annotations

import argparse
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controller.cli import starting
from controller.cli.commands import COMMANDS, Parsers, later

if TYPE_CHECKING:
    from controller.settings.load import ServeSettings


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    """Add the commands."""
    joining = starting.register_process(
        commands,
        "join",
        _join,
        http="127.0.0.1:8080",
        data="topicwright-voter",
        kept="the metadata log and this node's vote",
    )
    joining.add_argument(
        "--listen",
        type=starting.address,
        metavar="HOST:PORT",
        help=f"where controllers and brokers reach this one; default {starting.DEFAULT_LISTEN}",
    )
    leaving = commands.add_parser("leave", description=f"{COMMANDS['leave'].headline}.")
    leaving.add_argument("--data", type=Path, metavar="DIR", help="the data folder of the voter that leaves")
    leaving.add_argument(
        "--id",
        type=int,
        metavar="NODE",
        help="or its node id, if the folder is lost or not here; also of a controller that left and blocks upgrades",
    )
    leaving.set_defaults(func=later("work.quorum", "leave"))
    showing = commands.add_parser("quorum", description=f"Show {COMMANDS['quorum'].summary}.")
    showing.set_defaults(func=later("work.quorum", "show"))
    for parser in (joining, leaving, showing):
        parser.add_argument(
            "--bootstrap-controller",
            type=starting.bootstrap,
            required=True,
            metavar="HOST:PORT[,…]",
            help="some of the controllers that there are",
        )
        parser.add_argument(
            "--command-config", metavar="FILE", help="librdkafka properties for reaching them: TLS, a login"
        )


def _join(options: argparse.Namespace, settings: ServeSettings) -> Coroutine[Any, Any, int]:
    from controller.cli.work.quorum import start

    return start(options, settings)
