"""`topicwright join`, `leave` and `quorum`: run and manage a voter among the KRaft controllers of a Kafka cluster.

The node of `join` stays a voter until `leave`, also while it is stopped; other nodes need no restart. `quorum` prints
the voters, and the controllers that left but are still registered: no feature can be upgraded above the levels that
these support. `leave` removes this limit.
"""

import argparse
import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from typing import Any, Final

from controller.cli import serve as flags
from controller.cli.arguments import Negative
from controller.cli.output import Style
from controller.kafka.connections import addresses
from controller.kafka.messages.quorum import QuorumReplica
from controller.quorum.client import SILENT_MS, QuorumClient, QuorumError, QuorumStatus, all_limits, running_nodes
from controller.quorum.folder import META_PROPERTIES, FolderError, read_properties, uuid_of, uuid_text
from controller.serving.reach_cluster import security_in
from controller.serving.serve import ServeOptions, serve
from controller.settings.load import ServeSettings, SettingsError
from projections.text.points_in_time import iso

POLL_S: Final = 0.5
WATCH_S: Final = 10.0
"""Kafka's controllers with controller.quorum.auto.join.enable=true become voters again after 6 s."""


def start(options: argparse.Namespace, settings: ServeSettings) -> Coroutine[Any, Any, int]:
    """The main loop of a voter. Raises SettingsError."""
    if "node.id" not in settings.given:
        raise SettingsError("give this node an id that no controller or broker has: --set node.id=N")
    if settings.listeners and options.listen is not None:
        raise SettingsError("give either --listen or the setting listeners")
    security = security_in(options.command_config, "--command-config")
    listen = options.listen or flags.address(flags.DEFAULT_LISTEN)
    flags.refuse_taken(settings, listen=None if settings.listeners else listen, http=options.http)
    joining = QuorumClient(addresses(options.bootstrap_controller), security)
    given = {"kafka": listen, "brokers": flags.KRAFT, "joining": joining, "settings": settings}
    return serve(flags.options_of(ServeOptions, options, **given))


def _with_client(
    work: Callable[[argparse.Namespace, QuorumClient], Coroutine[Any, Any, None]],
) -> Callable[[argparse.Namespace], None]:
    """Wraps `work` as a command: it gets a client of the quorum, and a QuorumError becomes exit code 1."""

    async def run(options: argparse.Namespace) -> None:
        security = security_in(options.command_config, "--command-config")
        with closing(QuorumClient(addresses(options.bootstrap_controller), security)) as client:
            await work(options, client)

    def command(options: argparse.Namespace) -> None:
        try:
            asyncio.run(run(options))
        except QuorumError as error:
            raise Negative(str(error)) from error

    return command


@_with_client
async def leave(options: argparse.Namespace, client: QuorumClient) -> None:
    if (options.id is None) == (options.data is None):
        raise SettingsError("leave: give either --data DIR of the voter, or --id NODE if the folder is lost")
    found = await client.find()
    quorum = await client.describe()
    voters, node_id, directory = quorum.current_voters, options.id, None
    if options.data is not None:
        known = read_properties(options.data / META_PROPERTIES)
        node_id, directory = int(known["node.id"]), uuid_of(known.get("directory.id", ""))
        if known["cluster.id"] != found.cluster_id:
            raise FolderError(f"{options.data} belongs to cluster {known['cluster.id']}, not to {found.cluster_id}")
    leaver = next((each for each in voters if each.replica_id == node_id), None)
    if leaver is not None and directory not in (None, leaver.replica_directory_id):
        raise QuorumError(
            f"{options.data} has directory id {uuid_text(directory)}, but the voter with node id {node_id} has "
            f"{uuid_text(leaver.replica_directory_id)}: name the folder of that voter, or give --id {node_id}"
        )
    found_limits = (await all_limits(client)).get(node_id)
    if leaver is None and found_limits is None:
        voting = ", ".join(f"{each.replica_id} ({uuid_text(each.replica_directory_id)})" for each in voters)
        raise QuorumError(
            f"node {node_id} is not a voter, and has no registration that blocks upgrades: there is nothing to "
            f"remove; voters: {voting}"
        )
    runs = node_id in running_nodes(quorum) and options.data is None
    if leaver is not None:
        runs = runs and (await client.status()).priorities.get(node_id) is None
        await client.remove(found.cluster_id, quorum, leaver)
        left = ", ".join(str(each.replica_id) for each in voters if each != leaver)
        print(f"node {node_id} is no longer a voter; the voters are {left}", flush=True)
    if runs:
        await _wait_until_stopped(client, node_id)
    if found_limits is not None:
        await client.unblock_upgrades(node_id, {*found_limits, *await client.features()})
        print(f"the registration of node {node_id} no longer blocks upgrades")


async def _wait_until_stopped(client: QuorumClient, node_id: int) -> None:
    """Wait until a removed node has stopped. Raises QuorumError if the node becomes a voter again, or does not stop."""
    loop = asyncio.get_running_loop()
    begun = seen_at = loop.time()
    while loop.time() - seen_at < SILENT_MS / 1000:
        quorum = await client.describe()
        if node_id in [each.replica_id for each in quorum.current_voters]:
            raise QuorumError(
                f"node {node_id} votes again: it runs, and joins by itself (controller.quorum.auto.join.enable=true). "
                "Stop it, then run this command again"
            )
        if node_id in running_nodes(quorum):
            seen_at = loop.time()
        if seen_at - begun > WATCH_S:
            raise QuorumError(
                f"node {node_id} does not vote, but it runs and is registered, so no feature can be raised past what "
                "it supports. Stop it, then run this command again"
            )
        await asyncio.sleep(POLL_S)


@_with_client
async def show(_: argparse.Namespace, client: QuorumClient) -> None:
    status = await client.status()
    part = status.quorum
    since = "" if status.led_since_ms is None else f" since {iso(status.led_since_ms)}"
    print(f"leader {part.leader_id}{since}, epoch {part.leader_epoch}, high watermark {part.high_watermark}")
    header = ("NODE", "DIRECTORY", "ROLE", "LOG END", "LAG", "CAUGHT UP", "PRIORITY")
    print("\n".join(Style().table(header, _rows(status))))
    present = running_nodes(part).union(each.replica_id for each in part.current_voters)
    try:
        found_limits = await all_limits(client)
    except QuorumError as error:  # the user may describe the quorum, but not read the metadata log
        print(f"\nControllers that left cannot be listed: {error}")
        return
    left = [(each, found) for each, found in sorted(found_limits.items()) if each not in present]
    if left:
        print("\nControllers that left but are still registered. No feature can be raised above these levels:")
        rows = ((node_id, ", ".join(f"{name} {level}" for name, level in found.items())) for node_id, found in left)
        print("\n".join(Style().table(("NODE", "LEVELS"), rows)))
        print("Free each with: topicwright leave --id NODE")


def _rows(status: QuorumStatus) -> Iterator[tuple[object, ...]]:
    part = status.quorum
    replicas = (*part.current_voters, *part.observers)
    end = max(each.log_end_offset for each in replicas)  # the leader's, which may have left the voters
    now_ms = max(each.last_caught_up_timestamp for each in replicas)

    def row(each: QuorumReplica, role: str) -> tuple[object, ...]:
        behind_ms = now_ms - each.last_caught_up_timestamp
        caught_up = "never" if each.last_caught_up_timestamp < 0 else f"{max(0, behind_ms) / 1000:.1f} s ago"
        directory = uuid_text(each.replica_directory_id) if any(each.replica_directory_id) else "-"
        known = status.priorities.get(each.replica_id)
        lag = end - each.log_end_offset
        priority = "-" if known is None else known
        return each.replica_id, directory, role, each.log_end_offset, lag, caught_up, priority

    yield from (row(one, "leader" if one.replica_id == part.leader_id else "voter") for one in part.current_voters)
    yield from (row(one, "observer") for one in part.observers)
