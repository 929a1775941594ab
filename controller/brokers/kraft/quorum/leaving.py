"""Leaving a quorum without a trace that blocks upgrades, and freeing the registrations that others left (KIP-919)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from controller.brokers.kraft.log.batches import BrokenBatch
from controller.brokers.kraft.log.metadata_codec import MalformedRecord
from controller.brokers.kraft.quorum.joining import SILENT_MS, QuorumClient, QuorumError
from controller.brokers.kraft.quorum.registered import Registered, fold, limits
from controller.kafka.messages.quorum import DescribeQuorumPartitionResult

POLL_S: Final = 0.5
WATCH_S: Final = 10.0
"""Kafka's controllers with controller.quorum.auto.join.enable=true become voters again after 6 s."""

Limits = Mapping[str, int]
"""The highest level of a feature that a registration allows, by name."""


def running(quorum: DescribeQuorumPartitionResult) -> frozenset[int]:
    """The nodes that the leader knows to fetch its log."""
    states = (*quorum.current_voters, *quorum.observers)
    now = max(each.last_fetch_timestamp for each in quorum.current_voters)
    return frozenset(each.replica_id for each in states if each.last_fetch_timestamp >= now - SILENT_MS)


async def all_limits(client: QuorumClient) -> dict[int, Limits]:
    """The limits of each registered controller, by node id; those without any are left out. Raises QuorumError."""
    registered: Registered = {}
    try:
        async for batches in client.committed():
            fold(registered, batches)
    except (BrokenBatch, MalformedRecord) as error:
        raise QuorumError(f"the leader's metadata log is malformed: {error}") from None
    features = await client.features()
    found = {node_id: limits(each, features) for node_id, each in registered.items()}
    return {node_id: each for node_id, each in found.items() if each}


async def stays_away(client: QuorumClient, node_id: int) -> None:
    """Wait until a node that was removed has stopped. Raises QuorumError if it votes again, or runs on."""
    loop = asyncio.get_running_loop()
    begun = seen_at = loop.time()
    while loop.time() - seen_at < SILENT_MS / 1000:
        quorum = await client.describe()
        if node_id in [each.replica_id for each in quorum.current_voters]:
            raise QuorumError(
                f"node {node_id} votes again: it runs, and joins by itself (controller.quorum.auto.join.enable=true). "
                "Stop it, then run this command again"
            )
        if node_id in running(quorum):
            seen_at = loop.time()
        if seen_at - begun > WATCH_S:
            raise QuorumError(
                f"node {node_id} does not vote, but it runs and is registered, so no feature can be raised past what "
                "it supports. Stop it, then run this command again"
            )
        await asyncio.sleep(POLL_S)
