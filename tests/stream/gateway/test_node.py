"""A gateway's commands and answers, without Kafka."""

import asyncio
from typing import Any

import pytest
from confluent_kafka import KafkaError
from msgspec.structs import replace

from controller.machine.commands.commands import DeleteTopic
from controller.machine.errors import ErrorCode
from controller.stream.gateway.kafka import FollowedEvents, Record
from controller.stream.gateway.members import Announcement, encode_announcement, node_id_of
from controller.stream.gateway.node import GRACE_S
from events.catalog import Endpoint
from events.names import RequestId, TopicName
from tests.simulation.virtual_time import on_virtual_time
from tests.stream.gateway.stage import SESSION_S, Rig, both, codes, in_partition
from tests.stream.log.records import BORN_MS, create, joined


@on_virtual_time
async def test_a_gateway_is_caught_up_after_events_own_heartbeat_and_settings(new_rig: Rig) -> None:
    assert not new_rig.node.caught_up
    new_rig.read(ended=True)
    assert not new_rig.node.caught_up, "no worker has recorded settings"
    new_rig.on_heartbeat(new_rig.members.own)
    for worker in new_rig.workers[:1]:
        worker.fence()
    new_rig.read()
    assert not new_rig.node.caught_up, "one partition has no settings"
    new_rig.workers[1].fence()
    new_rig.read()
    assert new_rig.node.caught_up


@on_virtual_time
async def test_a_create_is_readable_before_its_response(rig: Rig) -> None:
    seen: list[list[str]] = []
    pending = rig.request(*both())
    pending.add_done_callback(lambda _: seen.append([t.name for t in rig.gateway.store.durable_from(None)]))
    assert [one[1] for one in rig.put] == [0, 1]
    assert [one[2] for one in rig.put] == [in_partition(0).encode(), in_partition(1).encode()]
    rig.work()
    answers = await pending
    assert codes(answers) == {in_partition(0): 7, in_partition(1): 7}, "created, but not confirmed in time"
    await asyncio.sleep(0)
    assert seen == [sorted([in_partition(0), in_partition(1)])]
    assert all(answer.topic is not None and answer.topic.partitions for answer in answers)


@on_virtual_time
async def test_commands_of_another_gateway_are_applied(rig: Rig) -> None:
    name = in_partition(1)
    rig.workers[1].decide(create(name, timeout_ms=0))
    rig.read()
    assert rig.gateway.topic(name) is not None
    (gone,) = await rig.answers(DeleteTopic(request_id=RequestId("d"), at_ms=BORN_MS, topic=TopicName(name)))
    assert gone.code == 0
    assert rig.gateway.topic(name) is None


@on_virtual_time
async def test_a_command_that_kafka_rejects_is_answered_with_not_controller(rig: Rig) -> None:
    pending = rig.request(*both())
    (_, _, _, _, first), (_, _, _, _, second) = rig.put
    first(-1, KafkaError(KafkaError._MSG_TIMED_OUT))
    second(-1, KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
    answers = (await pending).answers
    assert [answer.code for answer in answers] == [ErrorCode.NOT_CONTROLLER, ErrorCode.INVALID_REQUEST]
    assert "it may still be decided" in answers[0].message
    rig.full = True
    assert codes(await rig.request(create("t"))) == {"t": ErrorCode.NOT_CONTROLLER}


@on_virtual_time
async def test_a_request_without_a_decision_times_out(rig: Rig) -> None:
    pending = rig.request(*both(), timeout_ms=20_000)
    rig.acknowledge([(rig.put[0][4], 6)])
    answers = (await pending).answers
    assert asyncio.get_running_loop().time() == pytest.approx(20 + GRACE_S), "workers may answer first"
    assert [answer.code for answer in answers] == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER]
    assert len(rig.node.replies) == 0
    rig.work()
    assert rig.gateway.topic(in_partition(0)) is not None, "the command is decided later, and the gateway reads it"


@on_virtual_time
async def test_no_command_is_produced_without_own_heartbeats(rig: Rig) -> None:
    rig.clock.now_s += SESSION_S - 1
    rig.members.announce()
    assert rig.node.storage_error is None
    rig.clock.now_s += 2
    rig.members.announce()
    assert rig.node.storage_error == "this gateway does not receive its own heartbeats from Kafka"
    rig.put.clear()
    assert codes(await rig.request(*both())) == dict.fromkeys((in_partition(0), in_partition(1)), 41)
    assert rig.put == []
    rig.on_heartbeat(rig.members.own)
    rig.members.announce()
    assert rig.node.storage_error is None
    assert set(codes(await rig.answers(*both())).values()) == {7}


@on_virtual_time
async def test_a_malformed_events_record_fails_the_gateway(rig: Rig) -> None:
    pending = rig.request(*both())
    rig.node.take(FollowedEvents((Record("events", 0, len(rig.workers[0].topic), b"\xc1"),), frozenset()))
    assert {answer.code for answer in await pending} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert rig.node.failed.is_set()
    assert codes(await rig.request(create("t"))) == {"t": ErrorCode.UNKNOWN_SERVER_ERROR}


@on_virtual_time
async def test_stopping_gateway_rejects_requests_and_answers_waiting_ones(rig: Rig) -> None:
    waiting = rig.request(*both())
    rig.node.stop_accepting()
    assert codes(await rig.request(create("t"))) == {"t": ErrorCode.NOT_CONTROLLER}
    rig.node.replies.abandon_all()
    assert waiting.cancelled()


# --- other gateways


def other(gateway_id: str, **fields: Any) -> Announcement:
    at = (Endpoint("PLAINTEXT", gateway_id, 9092),)
    return Announcement(**{"gateway_id": gateway_id, "process": "p", "endpoints": at, **fields})


@on_virtual_time
async def test_metadata_lists_gateways_under_the_ids_of_simulated_brokers(rig: Rig) -> None:
    assert [(node.node_id, node.host) for node in rig.gateway.nodes()] == [(n, "gateway-a") for n in (1, 2, 3)]
    rig.on_heartbeat(other("b-gateway"))
    assert [(n.node_id, n.host) for n in rig.gateway.nodes()] == [(1, "gateway-a"), (2, "b-gateway"), (3, "gateway-a")]
    assert rig.gateway.controller_id() == 1
    for name in ("0-gateway", "c-gateway", "d-gateway"):
        rig.on_heartbeat(other(name))
    nodes = rig.gateway.nodes()
    assert [node.host for node in nodes] == ["0-gateway", "gateway-a", "b-gateway", "c-gateway", "d-gateway"]
    assert [node.node_id for node in nodes] == [1, 2, 3, node_id_of("c-gateway"), node_id_of("d-gateway")]
    assert rig.gateway.controller_id() == 2, "the broker id under which this gateway is listed"


@on_virtual_time
async def test_gateways_without_heartbeats_are_removed_from_the_list(rig: Rig) -> None:
    rig.on_heartbeat(other("b-gateway"))
    rig.on_heartbeat(other("c-gateway"))
    rig.on_heartbeat(other("c-gateway", leaving=True))
    assert [member.gateway_id for member in rig.members.live()] == ["a-gateway", "b-gateway"]
    rig.clock.now_s += SESSION_S + 1
    assert len(rig.members.live()) == 2, "without any heartbeat, none counts as lost"
    rig.on_heartbeat(rig.members.own)
    assert [member.gateway_id for member in rig.members.live()] == ["a-gateway"]
    assert list(rig.members._latest) == ["a-gateway"], "expired gateways are forgotten"
    rig.members.on_heartbeat(b"\xc1 not an announcement")
    rig.members.on_heartbeat(
        encode_announcement(other("b-gateway", endpoints=(Endpoint("X", "no-utf8", 1),))).replace(b"no", b"n\xff")
    )
    for host, port in (("b", 0), ("b", 1 << 40), ("", 1), ("h" * 40_000, 1)):
        rig.on_heartbeat(other("b-gateway", endpoints=(Endpoint("X", host, port),)))
    rig.members.on_heartbeat(encode_announcement(other("a-gateway", process="an earlier one")))
    assert rig.members.live() == [rig.members.own]


@on_virtual_time
async def test_metadata_lists_broker_endpoints_and_gateways(new_rig: Rig) -> None:
    for worker in new_rig.workers:
        worker.fence()
        (register, unfence) = joined(1)
        worker.decide(replace(register, endpoints=(Endpoint("PLAINTEXT", "kafka", 19092),)), unfence)
    new_rig.read(ended=True)
    new_rig.on_heartbeat(other("b-gateway"))
    assert [(n.node_id, n.host) for n in new_rig.gateway.nodes()] == [
        (1, "kafka"),
        (node_id_of("a-gateway"), "gateway-a"),
        (node_id_of("b-gateway"), new_rig.members.live()[1].endpoints[0].host),
    ]
    assert new_rig.gateway.controller_id() == node_id_of("a-gateway")


# --- simulated brokers
