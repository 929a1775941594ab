"""What a controller of real brokers speaks for clients, directly or in the envelopes of brokers.

The APIs that only brokers use for themselves (registration, heartbeats, …) are added to these;
so are the quorum's own, which alone are answered by who does not lead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from controller.apis.kraft.allocate_producer_ids import AllocateProducerIdsHandler
from controller.apis.kraft.alter_partition import AlterPartitionHandler
from controller.apis.kraft.assign_replicas_to_dirs import AssignReplicasToDirsHandler
from controller.apis.kraft.delegation_tokens import refuse_creation, refuse_expiry, refuse_renewal
from controller.apis.kraft.elect_leaders import ElectLeadersHandler
from controller.apis.kraft.envelope import EnvelopeHandler
from controller.apis.kraft.epochs import BrokerEpochs
from controller.apis.kraft.reassignments import AlterPartitionReassignmentsHandler, ListReassignmentsHandler
from controller.apis.sasl import not_expected
from controller.apis.tables import administration, descriptions, rows
from controller.controller_api import ControllerApi
from controller.kafka.handling import ApiHandler, Handler, RequestContext
from controller.kafka.messages import APIS, ApiKey
from controller.machine.configs.groups import GROUPS
from controller.machine.configs.resource_configs import CLIENT_METRICS
from controller.machine.errors import ErrorCode
from controller.machine.state import BROKERS

WAIT_MS_MAX = 25_000
"""How long a create may keep a broker waiting: it forwards one request at a time, and gives up after 30 s."""
WITH_CONFIGS = frozenset({BROKERS, CLIENT_METRICS, GROUPS})


def kraft_listener(
    api: ControllerApi,
    epochs: BrokerEpochs,
    of_brokers: Mapping[int, Handler],
    of_quorum: Mapping[int, Handler],
    versions_max: Mapping[str, int],
    leads: Callable[[], bool],
) -> dict[int, ApiHandler]:
    """The table of a listener for real brokers; `of_brokers` handle APIs for brokers alone, `of_quorum` those that are
    answered whoever leads.

    ApiVersions is to be added by `with_api_versions`, with the features that the brokers have.
    """
    handlers: dict[int, Handler] = {
        **administration(api, WAIT_MS_MAX, WITH_CONFIGS),
        **descriptions(api),
        ApiKey.ELECT_LEADERS: ElectLeadersHandler(api),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: AlterPartitionReassignmentsHandler(api),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: ListReassignmentsHandler(api),
        ApiKey.ALTER_PARTITION: AlterPartitionHandler(api, epochs),
        ApiKey.ASSIGN_REPLICAS_TO_DIRS: AssignReplicasToDirsHandler(api, epochs),
        ApiKey.ALLOCATE_PRODUCER_IDS: AllocateProducerIdsHandler(api, epochs),
        ApiKey.CREATE_DELEGATION_TOKEN: refuse_creation,
        ApiKey.RENEW_DELEGATION_TOKEN: refuse_renewal,
        ApiKey.EXPIRE_DELEGATION_TOKEN: refuse_expiry,
        **of_brokers,
    }
    led = {key: _of_leader(key, handle, leads) for key, handle in handlers.items()}
    table = rows({**led, **of_quorum, **not_expected}, versions_max)
    envelope = EnvelopeHandler(table, lambda context: api.grants(context, "ClusterAction"))
    envelope_api = APIS[ApiKey.ENVELOPE]
    table[ApiKey.ENVELOPE] = ApiHandler(
        envelope_api.min_version, envelope_api.max_version, _of_leader(ApiKey.ENVELOPE, envelope, leads)
    )
    return table


def _of_leader(key: int, handle: Handler, leads: Callable[[], bool]) -> Handler:
    """A handler that knows only while this controller leads. Then whoever sent it looks for the leader; responses with
    an error for each part are made by the handler itself."""
    response: Any = APIS[key].response
    if "error_code" not in response.__struct_fields__:
        return handle

    def answer(context: RequestContext, request: Any) -> Any:
        return handle(context, request) if leads() else response(error_code=int(ErrorCode.NOT_CONTROLLER))

    return answer
