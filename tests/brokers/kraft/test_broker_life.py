"""Registration, sessions, shared features, and applied offsets of brokers."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from controller.apis import Call
from controller.apis.kraft.broker_requests import assign_replicas_to_dirs, heartbeat, register_broker
from controller.brokers.kraft.membership import Membership, refusal
from controller.controller_api import ControllerApi
from controller.kafka.handling import RequestContext
from controller.kafka.messages.cluster import (
    AssignReplicasDirectory,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from controller.machine.commands.commands import FenceBroker, MembershipCommand, RegisterBroker, UnfenceBroker
from controller.machine.decision import Answer
from controller.machine.observing import change_broker
from controller.machine.state import Broker, Cluster, DictTopics, State
from controller.quorum.features import features_at, shared_metadata_version
from controller.store.topic_indexes import Tallies
from events.catalog import BrokerDetails, BrokerRegistered, BrokerUnregistered, Endpoint, SupportedFeature
from events.names import BrokerId, RequestId, TopicName

ONE, TWO = b"1" * 16, b"2" * 16


def broker(
    broker_id: int, *, incarnation: bytes = ONE, fenced: bool = False, dirs: tuple[bytes, ...] = (ONE,)
) -> Broker:
    features = (SupportedFeature("metadata.version", 7, 30),)
    place = (Endpoint("PLAINTEXT", "localhost", 9092),)
    return Broker(BrokerId(broker_id), 1, incarnation.hex(), None, place, fenced, dirs, features=features)


GROUPS = Feature(name="group.version", max_supported_version=1)
TWO_BROKERS = Cluster().with_broker(broker(1)).with_broker(broker(2))


def registration(**fields: Any) -> BrokerRegistrationRequest:
    levels = fields.pop("levels", (7, 30))
    features = (
        Feature(name="metadata.version", min_supported_version=levels[0], max_supported_version=levels[1]),
        replace(GROUPS, max_supported_version=fields.pop("group_version", 1)),
    )
    usual: dict[str, Any] = {
        "broker_id": 1,
        "cluster_id": "cluster",
        "incarnation_id": ONE,
        "listeners": (Listener(name="PLAINTEXT", host="localhost", port=9092),),
        "features": features,
        "log_dirs": (ONE,),
    }
    return BrokerRegistrationRequest(**{**usual, **fields})


@pytest.mark.parametrize(
    ("request_", "has_session", "code", "why"),
    [
        (registration(), False, 0, ""),
        (registration(broker_id=2, log_dirs=(TWO,)), False, 0, ""),
        (registration(cluster_id="other"), True, 104, "the broker belongs to cluster other, not to cluster"),
        (registration(incarnation_id=TWO), True, 101, "another broker with this id has a session"),
        (registration(incarnation_id=TWO), False, 0, ""),
        (registration(is_migrating_zk_broker=True), False, 102, "ZooKeeper"),
        (registration(log_dirs=()), False, 119, "No directories"),
        (registration(log_dirs=(ONE, ONE)), False, 119, "Duplicate directory"),
        (registration(log_dirs=(bytes(15) + b"\5",)), False, 119, "Reserved directory"),
        (registration(broker_id=2), False, 119, "Broker 1 is already registered with directory"),
        (registration(listeners=()), False, 119, "no listeners"),
        (registration(broker_id=-1), False, 119, "invalid broker id -1"),
        (registration(log_dirs=tuple(one.to_bytes(16, "big") for one in range(300, 557))), False, 119, "more than 256"),
        (registration(listeners=(Listener(name="A", host="a", port=1),) * 101), False, 119, "more than 100 listeners"),
        (registration(levels=(1, 19)), False, 35, "metadata.version 1 to 19; the cluster has level 25"),
        (registration(features=(GROUPS,)), False, 35, "the broker supports metadata.version 1 to 1"),
        (registration(group_version=0), False, 35, "the broker supports group.version 0 to 0; the cluster has level 1"),
    ],
)  # fmt: skip
def test_broker_registrations_are_rejected_as_by_kafka(
    request_: BrokerRegistrationRequest, has_session: bool, code: int, why: str
) -> None:
    features = (("group.version", 1), ("metadata.version", 25), ("transaction.version", 0))
    cluster = Cluster(features=features).with_broker(broker(1))
    refused = refusal(request_, cluster, "cluster", has_session=has_session)
    got_code, got_why = (0, "") if refused is None else refused
    assert got_code == code
    assert why in got_why


def members_of(cluster: Cluster, clock: Callable[[], float] = lambda: 0.0, **store: Any) -> Membership:
    """The brokers of a cluster, each registered at offset 41, with sessions of nine seconds."""
    controller = Mock(store=Mock(durable_cluster=cluster, **store))
    return Membership(controller, Mock(broker_epoch=lambda _: 41), Mock(), 9.0, clock)


def test_a_broker_session_expires_after_the_last_heartbeat() -> None:
    clock = Mock(return_value=100.0)
    members = members_of(TWO_BROKERS, clock)
    first, second = BrokerId(1), BrokerId(2)
    assert members.has_session(first)
    for clock.return_value in (102, 104, 106, 108):
        members.touch(first)
        assert members.expired() == []
    clock.return_value = 110
    assert members.expired() == [second]
    clock.return_value = 112
    assert members.expired() == [second]
    members.on_event(BrokerUnregistered(first, 1, ""))
    assert members.expired() == [first, second]


def test_controller_pauses_extend_broker_sessions() -> None:
    clock = Mock(return_value=0.0)
    members = members_of(TWO_BROKERS, clock)
    ended = []
    for clock.return_value in (1, 61, *range(62, 75, 2)):
        if clock.return_value == 1:
            members.touch(BrokerId(1))
        if BrokerId(1) in members.expired():
            ended.append(clock.return_value)
    assert 61 < ended[0] <= 72, "a silent broker must still be fenced"


@pytest.mark.parametrize(
    ("ranges", "shared"),
    [([(7, 30)], 30), ([(7, 30), (1, 19), (1, 21)], 19), ([(7, 99)], 33), ([(7, 18), (20, 30)], None), ([], 33)],
)
def test_metadata_version_is_limited_by_every_broker(ranges: list[tuple[int, int]], shared: int | None) -> None:
    place = (Endpoint("PLAINTEXT", "localhost", 9092),)
    brokers = [
        Broker(BrokerId(n), 1, "", None, place, False, features=(SupportedFeature("metadata.version", *levels),))
        for n, levels in enumerate(ranges)
    ]
    assert shared_metadata_version(brokers) == shared


def test_features_follow_the_metadata_version_if_brokers_support_them() -> None:
    assert features_at(19) == (("metadata.version", 19),)
    assert dict(features_at(30)) == {
        "metadata.version": 30,
        "group.version": 1,
        "transaction.version": 2,
        "eligible.leader.replicas.version": 1,
        "share.version": 1,
        "streams.version": 1,
    }
    assert features_at(30, [broker(1)]) == (("metadata.version", 30),)


def register(membership: Membership, *log_dirs: bytes) -> None:
    details = BrokerDetails((), (), log_dirs)
    membership.on_event(BrokerRegistered(BrokerId(1), 1, ONE.hex(), None, (), details))


def test_a_second_process_with_a_brokers_id_reports_unknown_log_directories() -> None:
    known = members_of(TWO_BROKERS)
    register(known, ONE)
    lost = bytes(15) + b"\1"
    assert [known.is_unknown_directory(1, each) for each in (ONE, TWO, lost, bytes(16))] == [False, True, False, False]
    assert not known.is_unknown_directory(2, TWO), "registered before this process started"
    register(known, TWO)
    assert [known.is_unknown_directory(1, each) for each in (ONE, TWO)] == [True, False], "ONE is now unknown"
    register(known)
    assert not known.is_unknown_directory(1, TWO), "a broker that reports no directories"
    register(known, TWO)
    known.on_event(BrokerUnregistered(BrokerId(1), 1, ""))
    assert not known.is_unknown_directory(1, ONE)


def test_an_unknown_log_directory_is_rejected_as_a_stale_broker_epoch() -> None:
    known = members_of(TWO_BROKERS)
    register(known, ONE)
    request = AssignReplicasToDirsRequest(broker_id=1, broker_epoch=5, directories=(AssignReplicasDirectory(id=TWO),))
    answer = asyncio.run(assign_replicas_to_dirs(known, Call(Mock(), RequestContext(73, 0)), request))
    assert answer.error_code == 77, "the broker retries with back-off"


@pytest.mark.parametrize(
    ("is_registered", "has_replicas", "epoch", "in_order"),
    [(True, True, 41, True), (True, True, -1, False), (True, True, 40, False), (False, False, -1, True),
     (False, True, -1, False), (False, True, 41, False)],
)  # fmt: skip
def test_a_clean_shutdown_counts_only_for_the_newest_registration(
    is_registered: bool, has_replicas: bool, epoch: int, in_order: bool
) -> None:
    """An unregistered broker counts as unclean if it has replicas."""
    cluster = Cluster().with_broker(broker(1)) if is_registered else Cluster()
    members = members_of(cluster, durable_tallies=Tallies(brokers={1: (0, 1)} if has_replicas else {}))
    assert members.shut_down_cleanly(BrokerId(1), epoch) is in_order


def test_requests_of_an_old_broker_incarnation_are_rejected() -> None:
    state = State(DictTopics(), Cluster().with_broker(replace(broker(1, fenced=True), broker_epoch=2)))
    of: dict[str, Any] = {"request_id": RequestId("r"), "at_ms": 7, "broker_id": BrokerId(1), "reason": ""}
    refused = change_broker(state, UnfenceBroker(**of, broker_epoch=1))
    assert (refused.events, refused.answers[0].code) == ((), 77)
    assert len(change_broker(state, UnfenceBroker(**of, broker_epoch=2)).events) == 1


def test_a_broker_that_leads_is_fenced_before_it_registers_again() -> None:
    members, api = membership(fenced=False), Submitting()
    members.has_session.return_value = False
    members.leads.return_value = True
    request = registration(incarnation_id=TWO)
    response = asyncio.run(register_broker(members, Call(cast("ControllerApi", api), RequestContext(62, 4)), request))
    assert response.error_code == 41, "the broker must retry after others lead"
    assert [type(each) for each in api.commands] == [FenceBroker]


class Submitting:
    """An API port that answers every command the same way."""

    cluster_id = "cluster"

    def __init__(self, code: int = 0, number: int = 0) -> None:
        self.controller = SimpleNamespace(new_request_id=lambda origin: RequestId("r"), now_ms=lambda: 7)
        self.commands: list[MembershipCommand] = []
        self._code, self._number = code, number

    async def submit(self, commands: list[MembershipCommand]) -> list[Answer]:
        self.commands += commands
        return [Answer(RequestId("r"), TopicName(""), self._code, number=self._number)]


def membership(*, wire_epoch: int | None = 41, fenced: bool = True) -> Any:
    """Broker 1 is registered: epoch 1, at metadata log offset 41."""
    known = broker(1, fenced=fenced)
    members = Mock(cluster=Cluster(features=(("metadata.version", 25),)).with_broker(known))
    members.broker.return_value = known
    members.wire_epoch.side_effect = lambda _, epoch: wire_epoch if epoch == 1 else None
    return members


@pytest.mark.parametrize(
    ("code", "number", "response"),
    [
        (0, 1, BrokerRegistrationResponse(broker_epoch=41)),
        (0, 2, BrokerRegistrationResponse(error_code=41)),
        (56, 0, BrokerRegistrationResponse(error_code=41)),
        (41, 0, BrokerRegistrationResponse(error_code=41)),
    ],
    ids=["registered", "another incarnation has registered since", "the log cannot be written", "stopping"],
)
def test_a_broker_registration_response_has_the_result_of_its_command(
    code: int, number: int, response: BrokerRegistrationResponse
) -> None:
    api = Submitting(code, number)
    registering = register_broker(membership(), Call(cast("ControllerApi", api), RequestContext(62, 4)), registration())
    assert asyncio.run(registering) == response
    (command,) = api.commands
    assert isinstance(command, RegisterBroker)


@pytest.mark.parametrize(("code", "error_code", "is_fenced"), [(0, 0, False), (56, 41, True)])
def test_a_heartbeat_response_has_the_result_of_its_command(code: int, error_code: int, is_fenced: bool) -> None:
    api = Submitting(code)
    request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=41, current_metadata_offset=50)
    response = asyncio.run(
        heartbeat(membership(), Mock(), Call(cast("ControllerApi", api), RequestContext(63, 1)), request)
    )
    assert (response.error_code, response.is_fenced) == (error_code, is_fenced)
    assert [type(each) for each in api.commands] == [UnfenceBroker]


@pytest.mark.parametrize(("broker_id", "epoch", "code"), [(9, 41, 102), (1, 40, 77)])
def test_a_heartbeat_without_the_current_registration_is_rejected(broker_id: int, epoch: int, code: int) -> None:
    members = members_of(TWO_BROKERS)
    request = BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=epoch)
    response = asyncio.run(heartbeat(members, Mock(), Call(Mock(), RequestContext(63, 1)), request))
    assert response.error_code == code


def test_a_rejected_registration_is_logged_with_the_reason() -> None:
    request = registration(cluster_id="another")
    with capture_logs() as logged:
        answer = register_broker(
            membership(), Call(cast("ControllerApi", Submitting()), RequestContext(62, 4)), request
        )
        assert asyncio.run(answer).error_code == 104
    assert [each["why"] for each in logged] == ["the broker belongs to cluster another, not to cluster"]
