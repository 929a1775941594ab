"""`topicwright join`, `leave` and `quorum`: a voter among the controllers of a Kafka cluster.

`join` runs until it is stopped, and is a voter from its first start to `leave`; both work without a restart of anything
else. `quorum` shows who votes. Exit codes: 0 done, 1 refused by the quorum, 2 wrong usage or settings.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from controller.brokers.kraft.quorum.folder import META_PROPERTIES, FolderError, read_properties, uuid_of, uuid_text
from controller.brokers.kraft.quorum.joining import QuorumClient, QuorumError
from controller.brokers.kraft.quorum.raft.voters import Place
from controller.cli import starting
from controller.cli.tables import table
from controller.cli.usage import complain
from controller.kafka.messages.describe_quorum import ReplicaState, ResponsePartitionData
from controller.serving.quorum_member import Joining
from controller.serving.reach_cluster import security_in
from controller.serving.serve import ServeOptions, serve
from controller.settings.load import ServeSettings, SettingsError

REFUSED = 1
DEFAULT_LISTEN = "127.0.0.1:9093"


def register(commands: starting.Commands) -> None:
    """Add the commands."""
    joining = starting.register_process(
        commands,
        "join",
        _join,
        summary="vote among the controllers of a Kafka cluster",
        http="127.0.0.1:8080",
        data="topicwright-voter",
        kept="the metadata log and this node's vote",
    )
    joining.add_argument(
        "--listen",
        type=starting.address,
        metavar="HOST:PORT",
        help=f"where controllers and brokers reach this one; default {DEFAULT_LISTEN}",
    )
    leaving = commands.add_parser("leave", help="take a voter out of a quorum of controllers")
    leaving.add_argument("--data", type=Path, metavar="DIR", help="the data folder of the voter that leaves")
    leaving.add_argument("--id", type=int, metavar="NODE", help="or its node id, where its folder is lost")
    leaving.set_defaults(func=lambda options: _once(options, _leave))
    showing = commands.add_parser("quorum", help="show who votes among the controllers, and how far they are")
    showing.set_defaults(func=lambda options: _once(options, _show))
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


def _places(text: str) -> list[Place]:
    parts = (each.strip().rpartition(":") for each in text.split(","))
    return [(host.strip("[]"), int(port)) for host, _, port in parts]


def _join(options: argparse.Namespace, settings: ServeSettings) -> Coroutine[Any, Any, int]:
    if settings.listeners and options.listen is not None:
        raise SettingsError("the address for controllers and brokers is given by --listen or by listeners, not by both")
    security = security_in(options.command_config, "--command-config")
    return serve(
        ServeOptions(
            kafka=options.listen or starting.address(DEFAULT_LISTEN),
            http=options.http,
            data=options.data,
            simulated_brokers=0,
            kraft=True,
            joining=Joining(_places(options.bootstrap_controller), security),
            settings=settings,
        )
    )


def _once(
    options: argparse.Namespace, work: Callable[[argparse.Namespace, QuorumClient], Coroutine[Any, Any, None]]
) -> int:
    async def run() -> None:
        security = security_in(options.command_config, "--command-config")
        client = QuorumClient(_places(options.bootstrap_controller), security)
        try:
            await work(options, client)
        finally:
            client.close()

    try:
        asyncio.run(run())
    except QuorumError as error:
        return complain(str(error), REFUSED)
    except (SettingsError, FolderError, OSError) as error:
        return complain(str(error))
    return 0


async def _leave(options: argparse.Namespace, client: QuorumClient) -> None:
    if (options.id is None) == (options.data is None):
        raise SettingsError("leave: say --data DIR of the voter, or --id NODE where that is lost")
    found = await client.find()
    quorum = await client.describe()
    voters, node_id, directory = quorum.current_voters, options.id, None
    if options.data is not None:
        known = read_properties(options.data / META_PROPERTIES)
        node_id, directory = int(known["node.id"]), uuid_of(known.get("directory.id", ""))
        if known["cluster.id"] != found.cluster_id:
            raise FolderError(f"{options.data} is of cluster {known['cluster.id']}, not of {found.cluster_id}")
    leaver = next((each for each in voters if each.replica_id == node_id), None)
    if leaver is None or (directory is not None and leaver.replica_directory_id != directory):
        voting = ", ".join(f"{each.replica_id} ({uuid_text(each.replica_directory_id)})" for each in voters)
        shown = "" if directory is None else f" with directory id {uuid_text(directory)}"
        raise QuorumError(f"node {node_id}{shown} is no voter; voters: {voting}")
    await client.remove(found.cluster_id, quorum, leaver)
    left = ", ".join(str(each.replica_id) for each in voters if each != leaver)
    print(f"node {node_id} votes no longer; the voters are {left}")


async def _show(_: argparse.Namespace, client: QuorumClient) -> None:
    part = await client.describe()
    print(f"leader {part.leader_id}, epoch {part.leader_epoch}, high watermark {part.high_watermark}")
    print("\n".join(table(("NODE", "DIRECTORY", "ROLE", "LOG END", "LAG", "CAUGHT UP"), _rows(part))))


def _rows(part: ResponsePartitionData) -> Iterator[tuple[object, ...]]:
    leader = next(each for each in part.current_voters if each.replica_id == part.leader_id)

    def row(each: ReplicaState, role: str) -> tuple[object, ...]:
        behind_ms = leader.last_caught_up_timestamp - each.last_caught_up_timestamp
        caught_up = "never" if each.last_caught_up_timestamp < 0 else f"{max(0, behind_ms) / 1000:.1f} s ago"
        directory = uuid_text(each.replica_directory_id) if any(each.replica_directory_id) else "-"
        return (
            each.replica_id,
            directory,
            role,
            each.log_end_offset,
            leader.log_end_offset - each.log_end_offset,
            caught_up,
        )

    for voter in part.current_voters:
        yield row(voter, "leader" if voter.replica_id == part.leader_id else "voter")
    for observer in part.observers:
        yield row(observer, "observer")
