"""The handlers of a controller listener in KRaft mode, for brokers, voters, clients, and requests that brokers forward.

While another controller leads, only the quorum's own APIs are answered. Listeners for clients lack the APIs of brokers
and controllers.

Envelope (KIP-590) has a client's request with its header, and the client's principal and address. `forward` calls the
handler of the forwarded API, which answers as if the client had sent the request. Only client APIs of this listener may
be forwarded.
"""

import asyncio
import ipaddress
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Any, Final

from controller.apis import ApiFunction, bound, checked, guarded
from controller.apis.cluster import describe_cluster, supported_features, with_api_versions
from controller.apis.kraft import broker_requests, quorum
from controller.apis.limits import CHANGES
from controller.apis.partitions import alter_partition_reassignments, elect_leaders, list_reassignments
from controller.apis.tables import administration, descriptions, rows
from controller.brokers.kraft.kraft_brokers import KraftBrokers
from controller.controller_api import ControllerApi
from controller.kafka.codec import codec
from controller.kafka.codec.primitives import MalformedRequest
from controller.kafka.handling import (
    ApiHandler,
    ClientConnection,
    Disconnect,
    Handler,
    RequestContext,
    Session,
    normal_host,
)
from controller.kafka.messages import ApiKey, Message
from controller.kafka.messages.cluster import EnvelopeRequest, EnvelopeResponse
from controller.kafka.messages.records import DefaultPrincipalData
from controller.kafka.sasl_gate import UNEXPECTED_SASL
from controller.kafka.server.protocol import DECODED_ON_LOOP_BYTES_MAX
from controller.machine.errors import ErrorCode
from controller.quorum.features import PRIORITY, SUPPORTED, FeatureRange
from controller.quorum.log.metadata_codec import MalformedRecord, decode_control

PRINCIPAL_DESERIALIZATION_FAILURE = 97
_VERSION_0 = bytes(2)
FORWARDABLE = CHANGES | {
    ApiKey.ELECT_LEADERS, ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_QUORUM, ApiKey.UPDATE_FEATURES, ApiKey.UNREGISTER_BROKER, ApiKey.DESCRIBE_CLUSTER,
    ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER, ApiKey.UNREGISTER_CONTROLLER,
}  # fmt: skip
"""The APIs that a broker may forward, as in Kafka, without delegation tokens. Brokers describe ACLs, users and quotas
themselves."""


async def forward(
    handlers: Mapping[int, ApiHandler], context: RequestContext, request: EnvelopeRequest
) -> EnvelopeResponse:
    """The response of the listener's `handlers` to the forwarded request, or an error of the envelope."""
    try:
        principal = read_principal(request.request_principal)
        header = codec.parse_header(request.request_data)
        api = handlers.get(header.api_key)
        if api is None or header.api_key not in FORWARDABLE:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        if not api.min_version <= header.api_version <= api.max_version:
            return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        forwarded_request = await _read(header, request.request_data, api.elements_max)
    except MalformedRecord:
        return EnvelopeResponse(error_code=PRINCIPAL_DESERIALIZATION_FAILURE)
    except MalformedRequest:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    host = _address(request.client_host_address)
    client = ClientConnection(
        Session(principal=principal, host=host, listener=context.connection.session.listener), host
    )
    forwarded = RequestContext(
        header.api_key, header.api_version, header.correlation_id, header.client_id or "", client
    )
    try:
        answer: Any = api.handle(forwarded, forwarded_request)
        answer = await answer if isinstance(answer, Awaitable) else answer
    except Disconnect:  # of the client, but the forwarding broker must stay connected
        answer = None
    if answer is None:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    frame = codec.encode_response(header.api_key, header.api_version, header.correlation_id, answer)
    return EnvelopeResponse(response_data=frame[4:])


async def _read(header: codec.RequestHeader, frame: bytes, elements_max: int) -> Message:
    """Decode the forwarded request, a large one in another thread. Raises MalformedRequest."""
    read = partial(codec.read_request, header.api_key, header.api_version, frame, header.body_offset, elements_max)
    if len(frame) <= DECODED_ON_LOOP_BYTES_MAX:
        return read()[0]
    return (await asyncio.to_thread(read))[0]


def read_principal(data: bytes | None) -> str:
    """Decode a principal, in version 0, as Kafka's default builder encodes it. Raises MalformedRecord."""
    if data is None or not data.startswith(_VERSION_0):
        raise MalformedRecord("no principal, or one in an unsupported version")
    principal = decode_control(DefaultPrincipalData, data[len(_VERSION_0) :])
    return f"{principal.type}:{principal.name}"


def _address(raw: bytes) -> str:
    return normal_host(str(ipaddress.ip_address(raw))) if len(raw) in (4, 16) else raw.hex()


WAIT_MS_MAX = 25_000
"""The longest timeout of CreateTopics: a broker forwards one request at a time, and gives up after 30 s."""


_OF_QUORUM: Final = (
    ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH, ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT,
    ApiKey.UPDATE_RAFT_VOTER, ApiKey.DESCRIBE_QUORUM, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER,
)  # fmt: skip
"""The quorum's own APIs, which every voter answers."""


def kraft_listener(
    brokers: KraftBrokers, of_brokers_name: str, api: ControllerApi, priority: int = 0
) -> dict[int, ApiHandler]:
    """Handlers by API key: for brokers and controllers on the listener `of_brokers_name`, for clients on any other.
    `priority` is the leader priority that this voter reports."""
    members, node, registered = brokers.membership, brokers.node, brokers.replication.registered
    of_nodes: dict[int, ApiFunction] = {
        ApiKey.BROKER_REGISTRATION: partial(broker_requests.register_broker, members),
        ApiKey.BROKER_HEARTBEAT: partial(broker_requests.heartbeat, members, brokers.confirmations),
        ApiKey.CONTROLLER_REGISTRATION: partial(quorum.register_controller, node, registered),
        ApiKey.ALTER_PARTITION: partial(broker_requests.alter_partition, members),
        ApiKey.ASSIGN_REPLICAS_TO_DIRS: partial(broker_requests.assign_replicas_to_dirs, members),
        ApiKey.ALLOCATE_PRODUCER_IDS: partial(broker_requests.allocate_producer_ids, members),
    }
    of_clients: dict[int, ApiFunction] = {
        ApiKey.ELECT_LEADERS: elect_leaders,
        ApiKey.UNREGISTER_BROKER: broker_requests.unregister_broker,
        ApiKey.UNREGISTER_CONTROLLER: partial(quorum.unregister_controller, node, registered, asyncio.Lock()),
        ApiKey.UPDATE_FEATURES: partial(quorum.update_features, node, registered),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: list_reassignments,
    }

    def led(handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """Wraps handlers: while another controller leads, the answer is NOT_CONTROLLER."""
        return checked(handlers, lambda _: ErrorCode.NONE if brokers.replication.leads else ErrorCode.NOT_CONTROLLER)

    table = rows(
        {
            **led(
                administration(api, WAIT_MS_MAX) | descriptions(api) | guarded(api, bound(api, of_nodes | of_clients))
            ),
            **guarded(api, dict.fromkeys(_OF_QUORUM, quorum.quorum_handler(api, node, brokers.replication))),
            **bound(api, {ApiKey.DESCRIBE_CLUSTER: partial(describe_cluster, node.quorum)}),
            **UNEXPECTED_SASL,
        }
    )
    table |= rows(led(guarded(api, {ApiKey.ENVELOPE: partial(forward, table)})))
    if api.advertised.name != of_brokers_name:
        hidden = {*of_nodes, *_OF_QUORUM, ApiKey.ENVELOPE} - {ApiKey.DESCRIBE_QUORUM}
        table = {key: handler for key, handler in table.items() if key not in hidden}
    features = supported_features({**SUPPORTED, PRIORITY: FeatureRange(1, 1 + priority)})
    return with_api_versions(table, supported_features=features, finalized=partial(quorum.finalized_features, brokers))
