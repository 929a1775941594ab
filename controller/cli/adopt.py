"""`topicwright adopt`, `restore`, `handback`, `backup` and `recover`: their flags. `work.adopt` and `work.backup` do
it."""

from __future__ import annotations

import argparse
from pathlib import Path

from controller.cli.commands import COMMANDS, Parsers, later
from controller.cli.terminal.moments import AGO, moment

DEFAULT_DATA = Path("topicwright-data")
_PLACE = "a folder, s3://BUCKET/PATH, gs://BUCKET/PATH or abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    """Add the commands."""
    adopt = commands.add_parser("adopt", description=_summary("adopt"))
    adopt.add_argument(
        "--from",
        dest="source",
        type=Path,
        required=True,
        metavar="METADATA_DIR",
        help="the metadata.log.dir (or log.dirs) of the stopped controller, which is only read",
    )
    restore = commands.add_parser("restore", description=_summary("restore"))
    restore.add_argument(
        "--from",
        dest="sources",
        type=Path,
        action="append",
        required=True,
        metavar="BROKER_METADATA_DIR",
        help="a broker's folder with __cluster_metadata-0 in it; of several, the furthest along is used",
    )
    for parser in (adopt, restore):
        _add_data(parser)
        parser.add_argument(
            "--cluster-id", metavar="ID", help="refuse folders of any other cluster; default: accept any"
        )
        parser.add_argument(
            "--cut-torn-tail",
            action="store_true",
            help="drop an incomplete batch at the very end of the log; default: refuse such a log",
        )
    adopt.set_defaults(func=later("work.adopt", "adopt"))
    restore.set_defaults(func=later("work.adopt", "restore"))
    handback = commands.add_parser("handback", description=_summary("handback"))
    handback.add_argument(
        "--to",
        type=Path,
        required=True,
        metavar="METADATA_DIR",
        help="folder to write: the metadata.log.dir (or log.dirs) of Kafka's controller; empty, or not there yet",
    )
    _add_data(handback)
    handback.add_argument(
        "--replace",
        action="store_true",
        help="if the folder holds this cluster's metadata, rename it to METADATA_DIR.replaced first; default: refuse",
    )
    handback.set_defaults(func=later("work.adopt", "handback"))
    _register_copies(commands)


def _register_copies(commands: Parsers[argparse.ArgumentParser]) -> None:
    backup = commands.add_parser("backup", description=_summary("backup"))
    backup.add_argument("url", metavar="URL", help=f"where to: {_PLACE}")
    backup.add_argument(
        "--data", type=Path, default=DEFAULT_DATA, metavar="DIR", help="the data folder of the service; %(default)s"
    )
    backup.set_defaults(func=later("work.backup", "backup"))
    recover = commands.add_parser("recover", description=_summary("recover"))
    recover.add_argument("url", metavar="URL", help=f"a backup, or the archive of a service: {_PLACE}")
    recover.add_argument("--data", type=Path, required=True, metavar="DIR", help="the data folder to make")
    recover.add_argument(
        "--at",
        metavar="OFFSET|TIME",
        type=moment,
        help=f"up to which moment: an offset, an ISO-8601 time, {AGO}; default: all",
    )
    recover.set_defaults(func=later("work.backup", "recover"))


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        type=Path,
        default=DEFAULT_DATA,
        metavar="DIR",
        help="data folder of this controller; default: ./%(default)s",
    )


def _summary(name: str) -> str:
    return f"{COMMANDS[name].headline}."
