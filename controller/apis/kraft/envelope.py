"""Envelope (KIP-590): a client's request that a broker forwards, answered as if the client had sent it.

The envelope has the request with its header, and the client's principal and address. `listener` gives its handlers to
`forward`, which calls the handler of the forwarded API. Only client APIs of that listener may be forwarded.
"""

from __future__ import annotations

import asyncio
import ipaddress
import struct
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Any

from controller.kafka.codec import codec
from controller.kafka.codec.primitives import MalformedRequest, read_string_length, too_long
from controller.kafka.codec.reader import READ_FAILURES
from controller.kafka.handling import NO_RESPONSE, ApiHandler, ClientConnection, Disconnect, RequestContext
from controller.kafka.messages import ApiKey, Message
from controller.kafka.messages.cluster import EnvelopeRequest, EnvelopeResponse
from controller.kafka.server.protocol import DECODED_ON_LOOP_BYTES_MAX
from controller.kafka.session import Session, normal_host
from controller.machine.errors import ErrorCode

PRINCIPAL_DESERIALIZATION_FAILURE = 97
_VERSION = struct.Struct(">h")
FORWARDABLE = frozenset({
    ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ELECT_LEADERS, ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.DESCRIBE_QUORUM, ApiKey.UPDATE_FEATURES, ApiKey.UNREGISTER_BROKER,
    ApiKey.DESCRIBE_CLUSTER, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UNREGISTER_CONTROLLER,
})  # fmt: skip
"""The APIs that a broker may forward, as in Kafka. Brokers describe ACLs, users and quotas themselves."""


class UnreadablePrincipal(Exception):
    """A principal that is not encoded as Kafka's default builder does; the message says why."""


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
    except UnreadablePrincipal:
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
    answer = await _answer(api, forwarded, forwarded_request)
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


async def _answer(api: ApiHandler, context: RequestContext, request: Message) -> Message | None:
    """The response, or None if the client would be disconnected: the forwarding broker must stay connected."""
    try:
        answer: Any = api.handle(context, request)
        if isinstance(answer, Awaitable):
            answer = await answer
    except Disconnect:
        return None
    return None if answer is NO_RESPONSE else answer


def read_principal(data: bytes | None) -> str:
    """Decode a principal of Kafka's default builder: version, type, name, token flag. Raises UnreadablePrincipal."""
    if data is None or len(data) < _VERSION.size:
        raise UnreadablePrincipal("no principal")
    (version,) = _VERSION.unpack_from(data)
    if version != 0:
        raise UnreadablePrincipal(f"unsupported version {version}; only 0 is supported")
    kind, offset = _compact_text(data, _VERSION.size)
    name, _ = _compact_text(data, offset)
    return f"{kind}:{name}"


def _compact_text(data: bytes, offset: int) -> tuple[str, int]:
    try:
        size, offset = read_string_length(data, offset)
        if not 0 <= size <= len(data) - offset:
            raise too_long(size, len(data) - offset)
        return data[offset : offset + size].decode(), offset + size
    except (*READ_FAILURES, UnicodeDecodeError) as error:
        raise UnreadablePrincipal(str(error)) from None


def _address(raw: bytes) -> str:
    return normal_host(str(ipaddress.ip_address(raw))) if len(raw) in (4, 16) else raw.hex()
