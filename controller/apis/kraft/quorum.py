"""The handlers of the KRaft quorum's APIs, for `listener`: Vote, Fetch, FetchSnapshot and changes of the voters
(KIP-595, KIP-630, KIP-836, KIP-853), and registrations of controllers (KIP-919, KIP-1312)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import structlog

from controller.brokers.kraft.catch_up import EventPages
from controller.brokers.kraft.membership import NAMED_MAX, controller_record
from controller.brokers.kraft.replication import QuorumReplication
from controller.controller_api import ControllerApi
from controller.kafka.handling import Handler, RequestContext
from controller.kafka.messages import Message, cluster
from controller.kafka.messages.quorum import AddRaftVoterRequest, AddRaftVoterResponse, FetchRequest, FetchResponse
from controller.machine.errors import ErrorCode
from controller.quorum.features import RegisteredControllers
from controller.quorum.files import QuorumFiles
from controller.quorum.log import metadata_records as kinds
from controller.quorum.log.batches import METADATA_TOPIC, BrokenBatch
from controller.quorum.log.metadata_codec import MalformedRecord, encode_record
from controller.quorum.log.record_kinds import METADATA_VERSION_FEATURE
from controller.quorum.node import QuorumNode
from controller.quorum.raft.effects import NotLeader
from projections.text.points_in_time import iso
from projections.views.overviews import QuorumView, VoterView

LOGGED_EVERY_S: Final = 30.0
"""The interval between log lines of the same rejection: rejected nodes retry every few milliseconds."""
_DIVERGES: Final = 0
_LOGGED_MAX: Final = 1000
"""The maximum number of remembered rejections; above it all of them are forgotten."""

logger = structlog.get_logger("topicwright.kraft")


def quorum_handler(
    api: ControllerApi, node: QuorumNode, replication: QuorumReplication, clock: Callable[[], float]
) -> Handler:
    """The handler of the quorum's requests to one voter. `clock` is monotonic, in seconds."""
    rejected = RejectedFetches(api.cluster_id, clock)

    async def answer(context: RequestContext, request: Any) -> Message:
        if EventPages.takes(request):
            return await replication.pages.respond(request, replication.applied)
        if replication.leads and _names_a_broker(api, request):
            return AddRaftVoterResponse(
                error_code=ErrorCode.INVALID_REQUEST,
                error_message=f"node {request.voter_id} is a registered broker, which cannot vote",
            )
        response = await node.request(request)
        if isinstance(response, FetchResponse):
            rejected.on_response(context, request, response)
        return response

    return answer


def _names_a_broker(api: ControllerApi, request: Message) -> bool:
    """True for AddRaftVoter of a broker: the broker would exit, and still count as a voter (KAFKA-18775)."""
    return (
        isinstance(request, AddRaftVoterRequest)
        and request.cluster_id in (None, api.cluster_id)
        and request.voter_id in api.cluster.brokers
    )


class RejectedFetches:
    """Logs rejected fetches, each every `LOGGED_EVERY_S`."""

    def __init__(self, cluster_id: str, clock: Callable[[], float]) -> None:
        self._cluster_id = cluster_id
        self._clock = clock
        self._logged: dict[tuple[str, int, int], float] = {}
        """The time of the last log line, by peer host, replica id and error code."""

    def on_response(self, context: RequestContext, request: FetchRequest, response: FetchResponse) -> None:
        if response.error_code:
            self._log("fetch rejected", context, request, response.error_code, self._why(request, response.error_code))
        elif _replica_id(context, request) >= 0 and response.responses[0].partitions[0].diverging_epoch.epoch >= 0:
            why = "it is truncated to the common prefix"
            self._log("metadata log of a node diverges", context, request, _DIVERGES, why)

    def _why(self, request: FetchRequest, code: int) -> str:
        if code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            return (
                f"the node is of cluster {request.cluster_id}, and this is {self._cluster_id}: "
                "its log directories were formatted for the other one"
            )
        return f"only partition 0 of {METADATA_TOPIC} is served here"

    def _log(self, event: str, context: RequestContext, request: FetchRequest, code: int, why: str) -> None:
        replica_id = _replica_id(context, request)
        key = (context.peer.rpartition(":")[0], replica_id, code)
        now = self._clock()
        if now - self._logged.get(key, float("-inf")) < LOGGED_EVERY_S:
            return
        if len(self._logged) >= _LOGGED_MAX:
            self._logged.clear()
        self._logged[key] = now
        logger.warning(event, node=replica_id, peer=context.peer, code=code, why=why)


def _replica_id(context: RequestContext, request: FetchRequest) -> int:
    return request.replica_state.replica_id if context.api_version >= 15 else request.replica_id


UNREGISTERED_SINCE: Final = 33
"""4.4-IV2: the metadata.version from which a registration can be removed."""


async def register_controller(
    node: QuorumNode,
    registered: RegisteredControllers,
    _: RequestContext,
    request: cluster.ControllerRegistrationRequest,
) -> cluster.ControllerRegistrationResponse:
    """Answer ControllerRegistration: append the record to the metadata log. The state machine ignores the record.

    A node may register if it votes, has fetched the metadata log, or is already registered.
    """
    if len(request.listeners) > NAMED_MAX or len(request.features) > NAMED_MAX:
        return cluster.ControllerRegistrationResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message=f"more than {NAMED_MAX} listeners or features"
        )
    node_id, quorum = request.controller_id, node.quorum
    try:
        has_fetched = quorum.leading is not None and quorum.leading.progress.end_of(node_id) > 0
        if not has_fetched and node_id not in quorum.voters.by_id and node_id not in await registered.all():
            return cluster.ControllerRegistrationResponse(
                error_code=ErrorCode.INVALID_REQUEST,
                error_message=f"node {node_id} does not vote, is not registered, and has not fetched the metadata log",
            )
        await node.committed(node.append([(None, encode_record(controller_record(request)))]))
    except (NotLeader, OSError, BrokenBatch, MalformedRecord):  # a full or damaged disk: the client retries
        return cluster.ControllerRegistrationResponse(error_code=ErrorCode.NOT_CONTROLLER)
    return cluster.ControllerRegistrationResponse()


async def unregister_controller(
    api: ControllerApi,
    node: QuorumNode,
    registered: RegisteredControllers,
    one_at_a_time: asyncio.Lock,
    _: RequestContext,
    request: cluster.UnregisterControllerRequest,
) -> cluster.UnregisterControllerResponse:
    """Answer UnregisterController: append the record that removes a registration to the metadata log.

    A Kafka controller exits when it replays the removal of a missing registration. So one request is handled at a time,
    and nothing may be appended between the check of the log and the record.
    """
    controller_id = request.controller_id
    if controller_id == node.quorum.me.id:
        return _not_unregistered(ErrorCode.INVALID_REQUEST, "Controller cannot unregister itself while it is active.")
    if api.cluster.feature(METADATA_VERSION_FEATURE) < UNREGISTERED_SINCE:
        message = "The current MetadataVersion is too old to support controller unregistration."
        return _not_unregistered(ErrorCode.UNSUPPORTED_VERSION, message)
    try:
        async with one_at_a_time:
            if controller_id not in await registered.all():
                message = f"Controller ID {controller_id} is not currently registered."
                return _not_unregistered(ErrorCode.CONTROLLER_ID_NOT_REGISTERED, message)
            record = kinds.UnregisterControllerRecord(controller_id=controller_id)
            offset = node.append([(None, encode_record(record))])
        await node.committed(offset)
    except (NotLeader, OSError, BrokenBatch, MalformedRecord):  # as above
        return _not_unregistered(ErrorCode.NOT_CONTROLLER, None)
    return cluster.UnregisterControllerResponse()


def _not_unregistered(code: ErrorCode, message: str | None) -> cluster.UnregisterControllerResponse:
    return cluster.UnregisterControllerResponse(error_code=code, error_message=message)


def quorum_view(node: QuorumNode, files: QuorumFiles, applied: int) -> QuorumView:
    """The current status of the quorum according to this node."""
    core = node.quorum
    beginning = files.beginning(core.epoch)
    since_ms = None if beginning is None else beginning.timestamp_ms
    priorities = {address: peer.priority for address, peer in core.peers.items()}
    priorities[core.address_of(core.me)] = core.options.priority
    voters = []
    for voter in core.voters:
        address, end = core.address_of(voter), None
        if core.leading is not None:
            end = core.log.end if voter.id == core.me.id else max(0, core.leading.progress.of(voter).end)
        voters.append(
            VoterView(
                node_id=voter.id,
                host=address[0],
                port=address[1],
                priority=priorities.get(address),
                log_end=end,
                lag=None if end is None else core.log.end - end,
            )
        )
    return QuorumView(
        node_id=core.me.id,
        role=core.role.value,
        epoch=core.epoch,
        leader=core.leader_id if core.leader_id >= 0 else None,
        leads_since=None if since_ms is None else iso(since_ms),
        leads_since_ms=since_ms,
        high_watermark=core.high_watermark,
        applied=applied,
        voters=tuple(voters),
    )
