"""The handlers of a controller listener in KRaft mode, for brokers, voters, clients, and requests that brokers forward.

While another controller leads, only the quorum's own APIs are answered. `serving.kraft` opens the listener."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from controller.access.authorizer import Operation
from controller.apis.cluster import describe_controllers
from controller.apis.kraft.broker_life import heartbeat, register_broker, unregister_broker
from controller.apis.kraft.broker_reports import allocate_producer_ids, alter_partition, assign_replicas_to_dirs
from controller.apis.kraft.envelope import forward
from controller.apis.kraft.features import update_features
from controller.apis.kraft.partitions import alter_partition_reassignments, elect_leaders, list_reassignments
from controller.apis.kraft.quorum import quorum_handler, register_controller, unregister_controller
from controller.apis.tables import administration, descriptions, rows
from controller.brokers.kraft.kraft_brokers import KraftBrokers
from controller.controller_api import ControllerApi
from controller.kafka.handling import ApiHandler, Handler, RequestContext
from controller.kafka.messages import APIS, ApiKey, Message
from controller.kafka.messages.access import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from controller.kafka.sasl.gate import UNEXPECTED_SASL
from controller.machine.configs.changes import CLIENT_METRICS
from controller.machine.configs.groups import GROUPS
from controller.machine.errors import ErrorCode
from controller.machine.state import BROKERS

WAIT_MS_MAX = 25_000
"""The longest timeout of CreateTopics: a broker forwards one request at a time, and gives up after 30 s."""
CONFIG_KINDS = frozenset({BROKERS, CLIENT_METRICS, GROUPS})


_OF_QUORUM: Final[Mapping[int, Operation]] = {
    ApiKey.VOTE: "ClusterAction",
    ApiKey.BEGIN_QUORUM_EPOCH: "ClusterAction",
    ApiKey.END_QUORUM_EPOCH: "ClusterAction",
    ApiKey.FETCH: "ClusterAction",
    ApiKey.FETCH_SNAPSHOT: "ClusterAction",
    ApiKey.UPDATE_RAFT_VOTER: "ClusterAction",
    ApiKey.DESCRIBE_QUORUM: "Describe",
    ApiKey.ADD_RAFT_VOTER: "Alter",
    ApiKey.REMOVE_RAFT_VOTER: "Alter",
}
"""The quorum's own APIs, which every voter answers, and the required operations on the cluster."""


def kraft_listener(api: ControllerApi, brokers: KraftBrokers, versions_max: Mapping[str, int]) -> dict[int, ApiHandler]:
    """The table (a handler by API key) of a controller listener. The caller adds ApiVersions (`with_api_versions`)."""
    members, node, registered = brokers.membership, brokers.node, brokers.replication.registered
    of_leader: dict[Operation | None, dict[int, Handler]] = {
        None: {  # handlers that check permissions themselves
            **administration(api, WAIT_MS_MAX, CONFIG_KINDS),
            **descriptions(api),
            ApiKey.CREATE_DELEGATION_TOKEN: reject_create_token,
            ApiKey.RENEW_DELEGATION_TOKEN: reject_token_change,
            ApiKey.EXPIRE_DELEGATION_TOKEN: reject_token_change,
        },
        "ClusterAction": {
            ApiKey.BROKER_REGISTRATION: partial(register_broker, api, members),
            ApiKey.BROKER_HEARTBEAT: partial(heartbeat, api, members, brokers.confirmations),
            ApiKey.CONTROLLER_REGISTRATION: partial(register_controller, node, registered),
            ApiKey.ALTER_PARTITION: partial(alter_partition, api, members),
            ApiKey.ASSIGN_REPLICAS_TO_DIRS: partial(assign_replicas_to_dirs, api, members),
            ApiKey.ALLOCATE_PRODUCER_IDS: partial(allocate_producer_ids, api, members),
        },
        "Alter": {
            ApiKey.UNREGISTER_BROKER: partial(unregister_broker, api),
            ApiKey.UNREGISTER_CONTROLLER: partial(unregister_controller, api, node, registered, asyncio.Lock()),
            ApiKey.UPDATE_FEATURES: partial(update_features, api, node, registered),
            ApiKey.ELECT_LEADERS: partial(elect_leaders, api),
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: partial(alter_partition_reassignments, api),
        },
        "Describe": {ApiKey.LIST_PARTITION_REASSIGNMENTS: partial(list_reassignments, api)},
    }
    of_quorum = quorum_handler(api, node, brokers.replication, brokers.clock)

    def led(key: int, operation: Operation | None, handle: Handler) -> Handler:
        return _guarded(api, key, operation, handle, lambda: brokers.replication.leads)

    handlers: dict[int, Handler] = {
        **{key: led(key, operation, each) for operation, some in of_leader.items() for key, each in some.items()},
        **{key: _guarded(api, key, operation, of_quorum) for key, operation in _OF_QUORUM.items()},
        ApiKey.DESCRIBE_CLUSTER: partial(describe_controllers, api, node.quorum),
        **UNEXPECTED_SASL,
    }
    table = rows(handlers, versions_max)
    table |= rows({ApiKey.ENVELOPE: led(ApiKey.ENVELOPE, "ClusterAction", partial(forward, table))}, versions_max)
    return table


def _guarded(
    api: ControllerApi,
    key: int,
    operation: Operation | None,
    handle: Handler,
    leads: Callable[[], bool] = lambda: True,
) -> Handler:
    """Wraps a handler: answers NOT_CONTROLLER unless this controller leads, and an authorization error without the
    operation on the cluster, as Kafka's ControllerApis does. For APIs without a top-level error code the handler checks
    both itself."""
    response: Any = APIS[key].response
    if "error_code" not in response.__struct_fields__:
        return handle

    def answer(context: RequestContext, request: Any) -> Any:
        if not leads():
            return response(error_code=ErrorCode.NOT_CONTROLLER)
        if operation is not None and not api.grants(context, operation):
            return response(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return handle(context, request)

    return answer


_DISABLED = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def reject_create_token(
    context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    requester_type, _, requester = context.principal.partition(":")
    named = bool(request.owner_principal_name)
    return CreateDelegationTokenResponse(
        error_code=_DISABLED,
        principal_type=(request.owner_principal_type or "") if named else requester_type,
        principal_name=(request.owner_principal_name or "") if named else requester,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester,
    )


def reject_token_change(context: RequestContext, _: Message) -> Message:
    response: Any = APIS[context.api_key].response
    return response(error_code=_DISABLED)  # type: ignore[no-any-return]
