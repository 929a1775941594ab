"""The handlers of the KRaft quorum's APIs, for `listener`: Vote, Fetch, FetchSnapshot and changes of the voters
(KIP-595, KIP-630, KIP-836, KIP-853), registrations of controllers (KIP-919, KIP-1312), and the features that these
support: UpdateFeatures (KIP-584, KIP-778)."""

import asyncio
from collections.abc import Hashable
from typing import Any, Final

import structlog

from controller.apis import Call
from controller.apis.cluster import finalized_keys
from controller.apis.kraft.broker_requests import broker_error
from controller.brokers.kraft.catch_up import EventPages
from controller.brokers.kraft.kraft_brokers import KraftBrokers
from controller.brokers.kraft.membership import NAMED_MAX, controller_record
from controller.brokers.kraft.replication import QuorumReplication
from controller.brokers.port import stamp
from controller.controller_api import ControllerApi
from controller.kafka.handling import Handler, RequestContext
from controller.kafka.messages import Message, cluster
from controller.kafka.messages import records as kinds
from controller.kafka.messages.quorum import AddRaftVoterRequest, AddRaftVoterResponse, FetchRequest, FetchResponse
from controller.machine.commands.commands import ChangeFeatures
from controller.machine.errors import ErrorCode
from controller.quorum.features import KRAFT_VERSION, SUPPORTED, Registered, RegisteredControllers, why_unsupported
from controller.quorum.files import QuorumFiles
from controller.quorum.log.batches import KRAFT_VERSION_MAX, METADATA_TOPIC, BrokenBatch
from controller.quorum.log.metadata_codec import MalformedRecord, encode_record
from controller.quorum.log.record_kinds import METADATA_VERSION_FEATURE
from controller.quorum.node import QuorumNode
from controller.quorum.raft.effects import NotLeader, Refused
from projections.text.points_in_time import iso
from projections.views.overviews import QuorumView, VoterView

logger = structlog.get_logger("topicwright.kraft")
LOGGED_S: Final = 60.0
LOGGED_MAX: Final = 1000


def quorum_handler(api: ControllerApi, node: QuorumNode, replication: QuorumReplication) -> Handler:
    """Returns the handler of all requests of the quorum at this voter: those of Raft, and the pages of missing events
    that other Topicwright voters request. It logs rejected fetches."""
    logged = set[Hashable]()

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
            _log_rejection(logged, api.cluster_id, context, request, response)
        return response

    return answer


def _names_a_broker(api: ControllerApi, request: Message) -> bool:
    """True for AddRaftVoter of a broker: the broker would exit, and still count as a voter (KAFKA-18775)."""
    return (
        isinstance(request, AddRaftVoterRequest)
        and request.cluster_id in (None, api.cluster_id)
        and request.voter_id in api.cluster.brokers
    )


def _log_rejection(
    logged: set[Hashable], cluster_id: str, context: RequestContext, request: FetchRequest, response: FetchResponse
) -> None:
    """Log a rejected fetch, or that the node's log diverges, unless it is one of those `logged` since `LOGGED_S`.
    Rejected nodes retry every few milliseconds."""
    node_id, code = _replica_id(context, request), response.error_code
    event, why = "fetch rejected", f"only partition 0 of {METADATA_TOPIC} is served here"
    if code == ErrorCode.INCONSISTENT_CLUSTER_ID:
        why = (
            f"the node is of cluster {request.cluster_id}, and this is {cluster_id}: "
            "its log directories were formatted for the other one"
        )
    elif not code:
        if node_id < 0 or response.responses[0].partitions[0].diverging_epoch.epoch < 0:
            return
        event, why = "metadata log of a node diverges", "it is truncated to the common prefix"
    kind = (context.peer.rpartition(":")[0], node_id, code)
    if kind in logged or len(logged) >= LOGGED_MAX:
        return
    if not logged:
        asyncio.get_running_loop().call_later(LOGGED_S, logged.clear)
    logged.add(kind)
    logger.warning(event, node=node_id, peer=context.peer, code=code, why=why)


def _replica_id(context: RequestContext, request: FetchRequest) -> int:
    return request.replica_state.replica_id if context.api_version >= 15 else request.replica_id


UNREGISTERED_SINCE: Final = 33
"""4.4-IV2: the metadata.version from which a registration can be removed."""


async def register_controller(
    node: QuorumNode, registered: RegisteredControllers, _: Call, request: cluster.ControllerRegistrationRequest
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
    node: QuorumNode,
    registered: RegisteredControllers,
    one_at_a_time: asyncio.Lock,
    call: Call,
    request: cluster.UnregisterControllerRequest,
) -> cluster.UnregisterControllerResponse:
    """Answer UnregisterController: append the record that removes a registration to the metadata log.

    A Kafka controller exits when it replays the removal of a missing registration. So one request is handled at a time,
    and nothing may be appended between the check of the log and the record.
    """
    controller_id = request.controller_id
    if controller_id == node.quorum.me.id:
        return _not_unregistered(ErrorCode.INVALID_REQUEST, "Controller cannot unregister itself while it is active.")
    if call.api.cluster.feature(METADATA_VERSION_FEATURE) < UNREGISTERED_SINCE:
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


UPGRADE = 1
"""The upgrade type of a feature update that may not lower the level; version 0 has only `allow_downgrade`."""
_FAILED_WITHOUT_RESULTS_SINCE = 2


def finalized_features(brokers: KraftBrokers) -> tuple[int, tuple[cluster.FinalizedFeatureKey, ...]]:
    """The newest applied metadata offset (the features epoch in ApiVersions), and the finalized features."""
    levels = dict(brokers.membership.cluster.features)
    if brokers.node.quorum.kraft_version:
        levels[KRAFT_VERSION] = brokers.node.quorum.kraft_version
    return brokers.replication.applied - 1, finalized_keys(levels.items())


async def update_features(
    node: QuorumNode, registered: RegisteredControllers, call: Call, request: cluster.UpdateFeaturesRequest
) -> cluster.UpdateFeaturesResponse:
    """Answer UpdateFeatures: apply all changes of a request, or none. `registered` reads the features that the other
    controllers support."""
    levels = dict(call.api.cluster.features)
    try:
        controllers = await registered.all()
    except (OSError, BrokenBatch, MalformedRecord):  # a damaged disk, or a file replaced meanwhile
        return cluster.UpdateFeaturesResponse(error_code=ErrorCode.NOT_CONTROLLER)
    results: list[cluster.UpdatableFeatureResult] = []
    for update in request.feature_updates:
        why = _why_refused(call.api, node, update, levels, controllers)
        why = why and f"Invalid update version {update.max_version_level} for feature {why}"
        code = ErrorCode.NONE if why is None else ErrorCode.INVALID_UPDATE_VERSION
        results.append(cluster.UpdatableFeatureResult(feature=update.feature, error_code=code, error_message=why))
        levels[update.feature] = update.max_version_level
    failed = next((each for each in results if each.error_code), None)
    if failed is not None and call.context.api_version >= _FAILED_WITHOUT_RESULTS_SINCE:
        message = f"The update failed for all features since the following feature had an error: {failed.error_message}"
        return cluster.UpdateFeaturesResponse(error_code=failed.error_code, error_message=message)
    if failed is None and not request.validate_only:
        if any(each.feature == KRAFT_VERSION for each in request.feature_updates):
            failed_response = await _raise_kraft_version(node)
            if failed_response is not None:
                return failed_response
        features = tuple(sorted((name, level) for name, level in levels.items() if level and name != KRAFT_VERSION))
        stamped, reason = stamp(call.api.controller, "features"), f"requested by {call.context.principal}"
        (answer,) = await call.api.submit([ChangeFeatures(**stamped, features=features, reason=reason)])
        if answer.code:
            return cluster.UpdateFeaturesResponse(
                error_code=broker_error(answer.code), error_message=answer.message or None
            )
    return cluster.UpdateFeaturesResponse(results=tuple(results))


def _why_refused(
    api: ControllerApi,
    node: QuorumNode,
    update: cluster.FeatureUpdateKey,
    levels: dict[str, int],
    registered: Registered,
) -> str | None:
    """The end of the error message, from the feature's name on; None if the update is allowed."""
    name, level, current, quorum = update.feature, update.max_version_level, levels.get(update.feature, 0), node.quorum
    is_upgrade = update.upgrade_type == UPGRADE and not update.allow_downgrade
    known = SUPPORTED.get(name)
    if known is None:
        return f"{name}. Local controller {quorum.me.id} does not support this feature."
    if name == KRAFT_VERSION:
        current = quorum.kraft_version
        if not current <= level <= KRAFT_VERSION_MAX:
            highest = f"{KRAFT_VERSION_MAX} is the highest supported version"
            return f"{name}. It is {current}, cannot be lowered, and {highest}."
    elif level != 0 and not known.lowest <= level <= known.highest:
        return f"{name}: {known.lowest} to {known.highest} are supported."
    elif level < current and is_upgrade:
        return (
            f"{name}. Can't downgrade the version of this feature without setting the upgrade type to either safe "
            "or unsafe downgrade."
        )
    elif name == METADATA_VERSION_FEATURE and level < current:
        return f"{name}: a downgrade from {current} is not supported."
    for broker_id, broker in sorted(api.cluster.brokers.items()):
        if not broker.supports(name, level):
            return f"{name}. Broker {broker_id} does not support it."
    controllers = {*registered, *quorum.voters.ids} - {quorum.me.id}
    why = why_unsupported(registered, controllers, name, level)
    return None if why is None else f"{name}. {why}"


async def _raise_kraft_version(node: QuorumNode) -> cluster.UpdateFeaturesResponse | None:
    """Raise kraft.version from 0 to 1 (KIP-853). Returns the response if that fails."""
    if node.quorum.kraft_version:
        return None
    try:
        await node.raise_kraft_version()
    except (NotLeader, OSError):  # the disk is full, or failed and stopped the node
        return cluster.UpdateFeaturesResponse(error_code=ErrorCode.NOT_CONTROLLER)
    except Refused as why:
        return cluster.UpdateFeaturesResponse(error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=str(why))
    return None


def quorum_view(node: QuorumNode, files: QuorumFiles, applied: int) -> QuorumView:
    """The quorum as this node knows it. Only the leader knows the log ends of the voters. `applied` is the offset up to
    which this node has applied the metadata log."""
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
