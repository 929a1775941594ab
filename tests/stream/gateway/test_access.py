"""Access at a gateway: cluster requests, mutation quotas, counted refusals, listeners."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from msgspec.structs import replace

from controller.access import refusals
from controller.access.mutation_quotas import MutationQuotas
from controller.machine.commands.access import (
    AclFilter,
    AlterClientQuotas,
    CreateAcls,
    DeleteAcls,
    QuotaAlteration,
    RecordRefusals,
)
from controller.machine.commands.commands import ChangeSettings
from controller.machine.errors import ErrorCode
from controller.stream.gateway.members import Announcement, node_id_of
from controller.stream.log.codec import CLUSTER_PARTITION, decode_command
from events.access import Acl
from events.catalog import Endpoint
from events.names import RequestId
from tests.simulation.virtual_time import on_virtual_time
from tests.stream.gateway.stage import SESSION_S, Rig, codes, in_partition
from tests.stream.log.records import BORN_MS, SETTINGS, create, joined

ALICE = "User:alice"
READS = Acl(2, 3, "t", ALICE, "*", 3, 3)
WRITES = replace(READS, operation=4)
BROKEN = replace(READS, name="")
LONG = "x" * 40_000
ADMIN: dict[str, Any] = {"at_ms": BORN_MS, "principal": "User:admin"}


@pytest.fixture
def rig_with_quota(tmp_path: Path) -> Iterator[Rig]:
    """A gateway where alice has a controller mutation rate of 2 a second, with a burst of two."""
    one = Rig(tmp_path, MutationQuotas(windows_s=1.0))
    one.begin()
    alteration = QuotaAlteration((("user", "alice"),), (("controller_mutation_rate", 2.0),))
    one.workers[CLUSTER_PARTITION].decide(
        AlterClientQuotas(request_id=RequestId("q"), alterations=(alteration,), **ADMIN)
    )
    one.read()
    yield one
    one.close()


def creates(*acls: Acl, request: str = "c") -> CreateAcls:
    return CreateAcls(request_id=RequestId(request), acls=acls, **ADMIN)


def create_by_alice(number: int, **fields: Any) -> Any:
    """A create of two partitions in partition 1, which does not store quotas."""
    command = create(in_partition(1), timeout_ms=0, principal=ALICE, **fields)
    return replace(command, request_id=RequestId(f"a{number}"))


def last_produced_command(rig: Rig) -> Any:
    return decode_command(rig.put[-1][3])


# --- requests about the cluster


@on_virtual_time
async def test_cluster_requests_are_decided_in_one_partition(rig: Rig) -> None:
    held: list[bool] = []
    pending = rig.request(creates(READS, BROKEN, WRITES))
    pending.add_done_callback(lambda _: held.append(READS in rig.gateway.cluster.acls))
    assert [one[:3] for one in rig.put] == [("commands", CLUSTER_PARTITION, b"")], "one order for all gateways"
    rig.work()
    (answer,) = await pending
    assert (answer.code, [each.code for each in answer.details]) == (0, [0, ErrorCode.INVALID_REQUEST, 0])
    assert "empty resource name" in answer.details[1].message
    gone = rig.request(
        DeleteAcls(request_id=RequestId("d"), filters=(AclFilter(operation=3), AclFilter(name="x")), **ADMIN)
    )
    await asyncio.sleep(0)
    assert held == [True]
    rig.work(acknowledge_first=False)
    (answer,) = await gone
    assert [each.acls for each in answer.details] == [(READS,), ()], "each filter has the ACLs that it matched"
    assert list(rig.gateway.cluster.acls) == [WRITES]


@on_virtual_time
async def test_gateway_brokers_follow_the_slowest_partition_and_acls_do_not(new_rig: Rig) -> None:
    new_rig.begin(brokers=1)
    new_rig.workers[CLUSTER_PARTITION].decide(*joined(2), creates(READS))
    new_rig.read()
    assert list(new_rig.gateway.cluster.live) == [1], "the other partition has not registered broker 2"
    assert READS in new_rig.gateway.cluster.acls
    new_rig.workers[1].decide(*joined(2), *joined(3))
    new_rig.read()
    assert list(new_rig.gateway.cluster.live) == [1, 2]
    assert READS in new_rig.gateway.cluster.acls


# --- quotas


@on_virtual_time
async def test_workers_refuse_requests_beyond_the_mutation_quota(rig_with_quota: Rig) -> None:
    outcomes: list[int] = []
    for number in range(3):
        outcomes += codes(await rig_with_quota.answers(create_by_alice(number, validate_only=True))).values()
    assert outcomes == [0, 0, ErrorCode.THROTTLING_QUOTA_EXCEEDED], "a token bucket may go below zero once"
    other = replace(create_by_alice(9, validate_only=True), principal="User:bob")
    assert codes(await rig_with_quota.answers(other)) == {in_partition(1): 0}
    await asyncio.sleep(1.5)
    pending = rig_with_quota.request(create_by_alice(10, validate_only=True))
    assert last_produced_command(rig_with_quota).throttle_ms == 0
    rig_with_quota.work()
    assert codes(await pending) == {in_partition(1): 0}


@on_virtual_time
async def test_mutation_quotas_apply_with_create_topic_policies(rig_with_quota: Rig) -> None:
    settings = (("create.topic.policy.class.name", "some.Policy"), *SETTINGS)
    for worker in rig_with_quota.workers:
        worker.decide(ChangeSettings(request_id=RequestId("s"), at_ms=BORN_MS, settings=settings, release="1.0"))
    rig_with_quota.read()
    stamps = []
    for number in range(3):
        rig_with_quota.request(create_by_alice(number))
        stamps.append(last_produced_command(rig_with_quota).throttle_ms)
    assert stamps == [0, 0, 1000]


@on_virtual_time
async def test_a_gateway_exception_still_sends_commands(rig_with_quota: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr("controller.stream.gateway.node.decide", broken)
    rig_with_quota.put.clear()
    rig_with_quota.request(create_by_alice(1))
    assert [last_produced_command(rig_with_quota).request_id] == ["a1"]


@on_virtual_time
async def test_an_exception_before_produce_fails_only_its_command(
    rig_with_quota: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig_with_quota.put.clear()

    def charge(*_: Any) -> Any:
        raise OverflowError("cannot convert float infinity to integer")

    fine, unsendable = create("fine", validate_only=True), create("unsendable", client_id="\ud800")
    with monkeypatch.context() as patch:
        patch.setattr(MutationQuotas, "charge", charge)
        assert codes(await rig_with_quota.request(create_by_alice(1))) == {in_partition(1): -1}
    pending = rig_with_quota.request(fine, replace(unsendable, request_id=fine.request_id))
    assert rig_with_quota.node._unacknowledged == {(fine.request_id, fine.topic)}, "the failed command is not tracked"
    noted = [decode_command(put[3]) for put in rig_with_quota.put]
    refused = [one.refusals[0] for one in noted if isinstance(one, RecordRefusals)]
    assert [(one.principal, one.client_id, one.resource, one.error_code, one.rule) for one in refused] == [
        (ALICE, None, f"Topic:{in_partition(1)}", -1, "fault:OverflowError"),
        ("User:ANONYMOUS", "?", "Topic:unsendable", -1, "fault:UnicodeEncodeError"),
    ], "the workers record it"
    rig_with_quota.work()
    assert codes(await pending) == {"fine": 0, "unsendable": -1}
    assert rig_with_quota.failed == ["CreateTopic", "CreateTopic"]
    assert rig_with_quota.node.failure is None


# --- refusals


@on_virtual_time
async def test_similar_refusals_are_counted_and_not_produced(rig: Rig) -> None:
    denied = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    for number in range(4):
        pending = rig.request(create_by_alice(number, denied=denied))
        assert len(rig.put) == (1 if number == 0 else 0), "the gateway produces only the first refusal"
        rig.work()
        assert codes(await pending) == {in_partition(1): denied}
    rig.node.stop_accepting()
    rig.node.refusals.stop()
    command = last_produced_command(rig)
    assert rig.put[-1][:3] == ("commands", CLUSTER_PARTITION, b"")
    assert isinstance(command, RecordRefusals)
    (refusal,) = command.refusals
    assert (refusal.principal, refusal.resource, refusal.count) == (ALICE, f"Topic:{in_partition(1)}", 3)


@on_virtual_time
async def test_validation_refusals_are_produced_up_to_a_limit(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "RECORDED_BYTES_MAX", 700)
    put = []
    for number in range(4):
        pending = rig.request(replace(create_by_alice(number), num_partitions=0))
        put.append(len(rig.put))
        rig.work()
        assert codes(await pending) == {in_partition(1): ErrorCode.INVALID_PARTITIONS}
    assert put == [1, 1, 0, 0]


@on_virtual_time
async def test_unanswered_commands_are_dropped_without_kafka(rig: Rig) -> None:
    rig.put.clear()
    noted = RecordRefusals(request_id=RequestId("x"), at_ms=BORN_MS, refusals=())
    rig.node.submit_internal(noted)
    (_, partition, key, value, done) = rig.put.pop()
    assert (partition, key, decode_command(value)) == (CLUSTER_PARTITION, b"", noted)
    done(-1, KafkaError(KafkaError._MSG_TIMED_OUT))
    rig.full = True
    rig.node.submit_internal(noted)
    rig.full = False
    rig.clock.now_s += SESSION_S + 1
    rig.members.announce()
    rig.put.clear()
    rig.node.submit_internal(noted)
    assert rig.put == []


@on_virtual_time
async def test_a_refused_request_with_long_texts_is_counted_and_not_produced(rig: Rig) -> None:
    rig.request(create("u"))
    rig.work()
    refused = create("u", client_id=LONG), create("n" * 40_000), create("t", configs=(("a", "v" * 10**6),))
    for number, (command, code) in enumerate(zip(refused, (36, 17, 40), strict=True)):
        reply = await rig.request(replace(command, request_id=RequestId(f"long-{number}")))
        assert codes(reply.answers) == {command.topic: code}
    assert not [one for one in rig.put if one[0] == "commands"]
    short, accepted = create("u"), create("w", client_id=LONG)
    sent = []
    for number, command in enumerate((short, accepted)):
        sent.append(replace(command, request_id=RequestId(f"sent-{number}")))
        rig.request(sent[-1])
    assert [decode_command(one[3]) for one in rig.put if one[0] == "commands"] == sent
    rig.put.clear()
    rig.node.refusals.stop()
    counted = [decode_command(one[3]) for one in rig.put]
    events = [event for one in counted if isinstance(one, RecordRefusals) for event in one.refusals]
    assert [event.count for event in events] == [1, 1, 1]
    assert max(len(event.resource) for event in events) <= 256


# --- listeners


def at_two_listeners(gateway_id: str) -> Announcement:
    endpoints = (Endpoint("PLAINTEXT", gateway_id, 9092), Endpoint("SASL_SSL", gateway_id, 9093))
    return Announcement(gateway_id, "p1", endpoints)


@on_virtual_time
async def test_metadata_has_gateway_endpoints_of_the_clients_listener(new_rig: Rig) -> None:
    new_rig.members.own = at_two_listeners("a-gateway")
    new_rig.begin(brokers=1)
    new_rig.on_heartbeat(at_two_listeners("b-gateway"))
    new_rig.on_heartbeat(Announcement("c-gateway", "p", (Endpoint("PLAINTEXT", "c-gateway", 9092),)))
    secured = new_rig.gateway.at_listener(Endpoint("SASL_SSL", "a-gateway", 9093))
    assert [(node.node_id, node.host, node.port) for node in secured.nodes()] == [
        (1, "a-gateway", 9093),
        (node_id_of("b-gateway"), "b-gateway", 9093),
        (node_id_of("c-gateway"), "c-gateway", 9092),
    ]
    assert secured.controller_id() == 1
    plain = new_rig.gateway.at_listener(Endpoint("PLAINTEXT", "a-gateway", 9092))
    assert {node.port for node in plain.nodes()} == {9092}
