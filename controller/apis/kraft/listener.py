"""The APIs of a controller listener in KRaft mode, for clients and for requests that brokers forward.

APIs that only brokers use (registration, heartbeats) and those of the quorum are passed in. Only the quorum's own APIs
are answered while another controller leads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from controller.apis.kraft.broker_reports import (
    AllocateProducerIdsHandler,
    AlterPartitionHandler,
    AssignReplicasToDirsHandler,
    BrokerEpochs,
)
from controller.apis.kraft.envelope import EnvelopeHandler
from controller.apis.kraft.partitions import (
    AlterPartitionReassignmentsHandler,
    ElectLeadersHandler,
    ListReassignmentsHandler,
)
from controller.apis.tables import UNEXPECTED_SASL, administration, descriptions, rows
from controller.controller_api import ControllerApi
from controller.kafka.handling import ApiHandler, Handler, RequestContext
from controller.kafka.messages import APIS, ApiKey, Message
from controller.kafka.messages.access import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from controller.kafka.messages.message import Outcome
from controller.machine.configs.changes import CLIENT_METRICS
from controller.machine.configs.groups import GROUPS
from controller.machine.errors import ErrorCode
from controller.machine.state import BROKERS

WAIT_MS_MAX = 25_000
"""The longest timeout of CreateTopics: a broker forwards one request at a time, and gives up after 30 s."""
CONFIG_KINDS = frozenset({BROKERS, CLIENT_METRICS, GROUPS})


def kraft_listener(
    api: ControllerApi,
    epochs: BrokerEpochs,
    of_brokers: Mapping[int, Handler],
    of_quorum: Mapping[int, Handler],
    versions_max: Mapping[str, int],
    leads: Callable[[], bool],
) -> dict[int, ApiHandler]:
    """The table of a controller listener. `of_brokers` are handlers for brokers, `of_quorum` those that work on any
    voter. Add ApiVersions with `with_api_versions`.
    """
    handlers: dict[int, Handler] = {
        **administration(api, WAIT_MS_MAX, CONFIG_KINDS),
        **descriptions(api),
        ApiKey.ELECT_LEADERS: ElectLeadersHandler(api),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: AlterPartitionReassignmentsHandler(api),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: ListReassignmentsHandler(api),
        ApiKey.ALTER_PARTITION: AlterPartitionHandler(api, epochs),
        ApiKey.ASSIGN_REPLICAS_TO_DIRS: AssignReplicasToDirsHandler(api, epochs),
        ApiKey.ALLOCATE_PRODUCER_IDS: AllocateProducerIdsHandler(api, epochs),
        ApiKey.CREATE_DELEGATION_TOKEN: reject_create_token,
        ApiKey.RENEW_DELEGATION_TOKEN: reject_token_change,
        ApiKey.EXPIRE_DELEGATION_TOKEN: reject_token_change,
        **of_brokers,
    }
    led = {key: _of_leader(key, handle, leads) for key, handle in handlers.items()}
    table = rows({**led, **of_quorum, **UNEXPECTED_SASL}, versions_max)
    envelope = EnvelopeHandler(table, lambda context: api.grants(context, "ClusterAction"))
    row = APIS[ApiKey.ENVELOPE]
    table[ApiKey.ENVELOPE] = ApiHandler(row.min_version, row.max_version, _of_leader(ApiKey.ENVELOPE, envelope, leads))
    return table


def _of_leader(key: int, handle: Handler, leads: Callable[[], bool]) -> Handler:
    """Answer NOT_CONTROLLER unless this controller leads. Handlers of APIs without a top-level error code check it
    themselves."""
    response: Any = APIS[key].response
    if "error_code" not in response.__struct_fields__:
        return handle

    def answer(context: RequestContext, request: Any) -> Any:
        return handle(context, request) if leads() else response(error_code=int(ErrorCode.NOT_CONTROLLER))

    return answer


_DISABLED = int(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)


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


def reject_token_change(_: RequestContext, __: Message) -> Outcome:
    return Outcome(error_code=_DISABLED)
