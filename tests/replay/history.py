"""Writes a small real log: a controller with simulated brokers, clients, a policy, and faults."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from controller.brokers.simulated import SimulatedBrokers
from controller.engine import requests
from controller.engine.group_commit import Controller
from controller.engine.reports import Reports
from controller.machine.commands import access, commands
from controller.machine.state import ScramCredential
from controller.policy import RequestMetadata
from controller.policy.interface import Request
from controller.store.tree import head_of
from events import catalog
from events.access import Acl, RequestsRefused
from events.catalog import Assignment, HeadSigned, Observation, Recorded, Verdict
from events.codec import encode_event
from events.logs.log import EventLog
from events.logs.rocksdb_log import RocksDbLog
from events.logs.tree_heads import Head, HeadSigner
from events.names import BrokerId, TopicId, TopicName, shard_key
from projections.replay.log.kafka_scan import Stored
from projections.replay.redecide.recorded import (
    CountHistory,
    RecordedRequest,
    Timeline,
    group_changes,
    limits_of,
    recorded_requests,
)
from projections.replay.shards import Shard

BORN_MS = 1_700_000_000_000
CLUSTER_ID = "replayed-cluster"
SETTINGS = {
    "create.topic.policy.class.name": "tests.Owned",
    "default.replication.factor": "3",
    "enable.under.replicated.topic.creation": "true",
    "min.insync.replicas": "2",
    "num.partitions": "2",
}
LIVE_WITHIN_S = 240.0


SIGNER = HeadSigner(Ed25519PrivateKey.from_private_bytes(bytes(32)))
"""Its key is public."""


class Owned:
    """A policy, wrapped as the controller calls it."""

    async def judge(self, requests: Sequence[Request]) -> tuple[Verdict, ...]:
        return tuple(owned(request) for request in requests if isinstance(request, RequestMetadata))

    async def close(self, timeout_s: float) -> tuple[str, ...]:
        return ()


def owned(request: RequestMetadata) -> Verdict:
    """Refuses names without an owner; observes topics of one partition."""
    if "." not in request.topic:
        return Verdict("refused", "tests.Owned", "policy:tests.Owned/owner", f"{request.topic} has no owner")
    noted = (Observation("policy:tests.Owned/size", "one partition is few"),) if request.num_partitions == 1 else ()
    return Verdict("allowed", observed=noted)


def open_log(folder: Path) -> RocksDbLog:
    """The log in a folder, for writing."""
    return RocksDbLog(folder, cluster_id=CLUSTER_ID, new_cluster_id=lambda: CLUSTER_ID)


class Day:
    """A running controller on a log. Each reading of its clock advances it by 10 ms, so that times differ."""

    def __init__(self, log: RocksDbLog) -> None:
        self.log = log
        self.brokers = SimulatedBrokers(3)
        self._now_ms = BORN_MS
        self.controller = Controller(
            log,
            self.brokers,
            boot_id="day",
            clock_ms=self._clock_ms,
            flush=lambda: asyncio.to_thread(log.flush),
            reports=Reports(Mock(), lambda _: None, Mock()),
            policies=Owned(),
        )

    async def start(self) -> Day:
        """Start with three live brokers."""
        await self.controller.start(tuple(sorted(SETTINGS.items())), "1.0")
        await self.live(1, 2, 3)
        return self

    async def live(self, *broker_ids: int) -> None:
        """Wait until exactly these brokers are live and the controller is idle."""
        async with asyncio.timeout(LIVE_WITHIN_S):
            while tuple(self.controller.state.cluster.live) != broker_ids:  # noqa: ASYNC110 - the state is what counts
                await asyncio.sleep(0.005)
        await self.settled()

    async def complete(self, name: str) -> None:
        """Wait until a topic is complete."""
        async with asyncio.timeout(LIVE_WITHIN_S):
            while shard_key(name) in self.controller.state.waiting:  # noqa: ASYNC110 - the state is what counts
                await asyncio.sleep(0.005)
        await self.settled()

    async def settled(self) -> None:
        """Wait until no work is pending."""
        end = -1
        while end != self.log.durable_offset:
            end = self.log.durable_offset
            await self.controller.decided()
            await asyncio.sleep(0.02)

    async def create(self, *names: str, timeout_ms: int = 30_000, **fields: Any) -> None:
        """Send one request that creates topics."""
        request_id = self.controller.new_request_id()
        creates = [
            commands.CreateTopic(
                topic=TopicName(name),
                topic_id=TopicId(f"{request_id}{name}".encode()[-16:].rjust(16, b".")),
                timeout_ms=timeout_ms,
                request_id=request_id,
                **self._common(**fields),
            )
            for name in names
        ]
        await self.controller.submit(creates, timeout_ms)

    async def change(self, kind: Callable[..., commands.TopicCommand], topic: str, **fields: Any) -> None:
        """Send one request that changes a topic."""
        common = self._common(**fields)
        await self.controller.submit([kind(topic=topic, request_id=self.controller.new_request_id(), **common)])

    async def submit_cluster(self, kind: Callable[..., access.ClusterCommand], **fields: Any) -> None:
        """Send one request that concerns no topic."""
        request_id = self.controller.new_request_id()
        (answer,) = await self.controller.submit([kind(request_id=request_id, **self._common(**fields))])
        assert not answer.code, answer
        assert not any(each.code for each in answer.details), answer

    def _common(self, **fields: Any) -> dict[str, Any]:
        return {"at_ms": self.controller.now_ms(), "principal": "User:ann", "client_id": "terraform", **fields}

    def submit_internal(self, kind: Any, **fields: Any) -> None:
        """Submit an internal command."""
        self.controller.submit_internal(
            kind(request_id=self.controller.new_request_id("seen"), at_ms=self.controller.now_ms(), **fields)
        )

    def _clock_ms(self) -> int:
        self._now_ms += 10
        return self._now_ms


async def live_a_day(day: Day) -> None:
    """Cause every type of event at least once."""
    await day.create("pay.orders", num_partitions=3, configs=(("retention.ms", "1000"),))
    await day.create("orders", num_partitions=3)
    await day.create("pay.refunds", "pay.refunds~", "pay_refunds", principal="User:bob", client_id=None)
    by_hand = (Assignment(0, (BrokerId(2), BrokerId(1))), Assignment(1, (BrokerId(1), BrokerId(3))))
    await day.create("team.by-hand", assignments=by_hand, timeout_ms=0)
    await day.create("team.auto", num_partitions=1, replication_factor=1, api="Metadata", timeout_ms=1)
    await day.change(commands.CreatePartitions, "pay.orders", count=5)
    await day.change(commands.CreatePartitions, "pay.orders", count=2)
    day.brokers.stop_broker(3)
    await day.live(1, 2)
    await day.create("late.one", num_partitions=2, principal="User:bob")
    await day.change(commands.AlterTopicConfigs, "late.one", ops=(catalog.ConfigOp("retention.ms", 0, "5000"),))
    day.brokers.start_broker(3)
    await day.live(1, 2, 3)
    await day.change(commands.DeleteTopic, "pay.refunds")
    await day.change(commands.DeleteTopic, "pay.nothing")
    await day.create("pay_refunds.2", num_partitions=1)
    day.brokers.set_delay(2, 40)
    await day.create("slow.one", num_partitions=1, timeout_ms=10)
    day.brokers.set_delay(2, 0)
    await day.complete("slow.one")
    await _changes_of_access(day)
    await _changes_of_brokers(day)
    await day.create("pay.refunds", num_partitions=1, replication_factor=2)


async def _changes_of_access(day: Day) -> None:
    entry = Acl(2, 4, "pay.", "User:bob", "*", 5, 3)
    await day.submit_cluster(access.CreateAcls, acls=(entry, Acl(4, 3, "kafka-cluster", "User:*", "10.0.0.7", 8, 2)))
    await day.submit_cluster(access.DeleteAcls, filters=(access.AclFilter(resource_type=2),))
    bob = (("user", "bob"), ("client-id", None))
    for value in (7.5, None):
        quotas = (access.QuotaAlteration(bob, (("controller_mutation_rate", value),)),)
        await day.submit_cluster(access.AlterClientQuotas, alterations=quotas)
    for credential in (ScramCredential(4096, bytes(16), bytes(range(64)), bytes(range(64))), None):
        change = commands.ScramChange("bob", 2, credential)
        await day.submit_cluster(commands.AlterUserScramCredentials, changes=(change,))
    day.submit_internal(access.DrawLoginSecret, secret=bytes(range(32)))
    await day.settled()
    day.submit_internal(commands.RecordHead, **signed_head(day.log))
    refused = RequestsRefused(
        *("User:eve", None, "10.0.0.7", "Metadata", "Describe", "Topic:pay.orders", 29, "authorizer", 4711, BORN_MS)
    )
    day.submit_internal(access.RecordRefusals, refusals=(refused,))
    await day.settled()


def signed_head(log: EventLog, signer: HeadSigner = SIGNER) -> dict[str, Any]:
    """The tree head of a log, as stored. The default signer's key is public."""
    size, root = head_of(log)
    signed = signer.signed(Head(log=log.cluster_id, size=size, root=root.hex(), at_ms=BORN_MS))
    return {"head": HeadSigned(size, root, BORN_MS, signed.public_key, signed.signature)}


async def _changes_of_brokers(day: Day) -> None:
    day.brokers.add()
    await day.live(1, 2, 3, 4)
    day.brokers.stop_broker(4)
    await day.live(1, 2, 3)
    day.submit_internal(commands.UnregisterBroker, broker_id=BrokerId(4), reason="scrapped")
    pairs = tuple(sorted({**SETTINGS, "num.partitions": "4"}.items()))
    day.submit_internal(commands.ChangeSettings, settings=pairs, release="1.0")
    await day.settled()


def write_history(folder: Path) -> Path:
    """Write the log of such a day into a folder, and stop the controller."""

    async def whole_day() -> None:
        log = open_log(folder)
        day = await Day(log).start()
        try:
            await live_a_day(day)
            await day.settled()
        finally:
            await day.controller.stop()
            log.close()

    with patch.object(requests, "PACE", 0.0):  # the load of the machine does not change the day's times
        asyncio.run(whole_day())
    return folder


def shards_of(records: Iterable[Recorded]) -> Iterator[Shard]:
    """Yields the shards of a log, as a replay sees them."""
    shards: dict[str, list[Stored]] = {}
    for one in records:
        if hasattr(one.event, "topic"):
            stored = (int(one.offset), encode_event(one.at_ms, one.cause, one.event))
            shards.setdefault(shard_key(one.event.topic), []).append(stored)
    return ((0, shard, iter(shards[shard])) for shard in sorted(shards))


def requests_in(records: Sequence[Recorded], rules: str = "") -> Iterator[RecordedRequest]:
    """Yields the requests of a log; `rules` are to be tried on them."""
    timeline = Timeline(records)
    counts = CountHistory(group_changes(shards_of(records), limits_of((rules, *timeline.rules))))
    return recorded_requests(shards_of(records), {0: timeline}, counts)
