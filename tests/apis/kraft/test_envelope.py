"""Envelope requests: answered like direct requests of the client, or rejected without an error of the broker."""

import asyncio
import struct
import threading
from typing import Any

import pytest

from controller.apis.kraft.listener import forward, read_principal
from controller.kafka.codec import codec
from controller.kafka.codec.primitives import ELEMENTS_MAX
from controller.kafka.handling import ApiHandler, Disconnect, RequestContext
from controller.kafka.messages import ApiKey, Message
from controller.kafka.messages.cluster import EnvelopeRequest, EnvelopeResponse
from controller.kafka.messages.topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    MetadataRequest,
)
from controller.quorum.log.metadata_codec import MalformedRecord

ANN = b"\0\0\x05User\x04ann\0\0"
BROKER = RequestContext(int(ApiKey.ENVELOPE), 0)


def frame(key: int, version: int, request: Message) -> bytes:
    """Encodes a request frame without its size."""
    return codec.encode_request(key, version, 42, "app", request)[4:]


DELETION = frame(ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=("t",), timeout_ms=5))


class Deleting:
    """Handles DeleteTopics and records the requests."""

    def __init__(self) -> None:
        self.requests: list[tuple[RequestContext, DeleteTopicsRequest]] = []

    async def __call__(self, context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        self.requests.append((context, request))
        return DeleteTopicsResponse(responses=(DeletableTopicResult(name="t", error_code=3),))


def answer(
    handler: Any, data: bytes, principal: bytes | None = ANN, elements_max: int = ELEMENTS_MAX
) -> EnvelopeResponse:
    table = {
        int(ApiKey.DELETE_TOPICS): ApiHandler(0, 5, handler, elements_max=elements_max),
        int(ApiKey.METADATA): ApiHandler(0, 13, handler),
    }
    request = EnvelopeRequest(request_data=data, request_principal=principal, client_host_address=b"\x7f\0\0\x01")
    return asyncio.run(forward(table, BROKER, request))


def test_envelope_responds_as_to_the_client_itself() -> None:
    deleting = Deleting()
    reply = answer(deleting, DELETION)
    assert reply.error_code == 0
    assert reply.response_data is not None
    correlation_id, response = codec.decode_response(ApiKey.DELETE_TOPICS, 5, reply.response_data)
    assert correlation_id == 42
    assert isinstance(response, DeleteTopicsResponse)
    assert response.responses[0].error_code == 3
    ((context, request),) = deleting.requests
    assert request.topic_names == ("t",)
    seen = (context.principal, context.peer, context.client_id, context.api_version)
    assert seen == ("User:ann", "127.0.0.1", "app", 5)


@pytest.mark.parametrize(
    ("data", "principal", "code"),
    [
        (DELETION, None, 97),
        (DELETION, b"\0\x01\x05User\x04ann\0\0", 97),
        (frame(ApiKey.DELETE_TOPICS, 6, DeleteTopicsRequest()), ANN, 35),
        (frame(ApiKey.METADATA, 12, MetadataRequest()), ANN, 42),
        (struct.pack(">hhih", 999, 0, 1, -1), ANN, 42),
        (DELETION[:14], ANN, 42),
        (b"", ANN, 42),
    ],
    ids=["no-principal", "other-principal", "version", "not-forwarded", "unknown", "cut", "empty"],
)
def test_invalid_envelopes_are_rejected(data: bytes, principal: bytes | None, code: int) -> None:
    deleting = Deleting()
    reply = answer(deleting, data, principal)
    assert (reply.error_code, reply.response_data, deleting.requests) == (code, None, [])


def test_disconnect_of_a_forwarded_request_keeps_the_brokers_connection() -> None:
    def disconnect(_: RequestContext, __: Any) -> Any:
        raise Disconnect("go away")

    assert answer(disconnect, DELETION).error_code == 42


def test_large_forwarded_request_is_decoded_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    deleting, readers = Deleting(), []
    read_request = codec.read_request

    def read(*args: Any) -> tuple[Message, int]:
        readers.append(threading.current_thread())
        return read_request(*args)

    monkeypatch.setattr(codec, "read_request", read)
    for names in (10, 10_000):
        inside = frame(ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=("t",) * names))
        assert answer(deleting, inside).error_code == 0
    assert [reader is threading.main_thread() for reader in readers] == [True, False]
    assert [len(request.topic_names) for _, request in deleting.requests] == [10, 10_000]


@pytest.mark.parametrize("names", [100, 30_000])
def test_forwarded_request_has_the_element_limit_of_a_client(names: int) -> None:
    deleting = Deleting()
    inside = frame(ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=("t",) * names))
    reply = answer(deleting, inside, elements_max=99)
    assert (reply.error_code, deleting.requests) == (42, [])


@pytest.mark.parametrize(
    ("data", "principal"),
    [(ANN, "User:ann"), (b"\0\0\x05User\x05\xc3\xa9\xc3\xa9\x01\0", "User:éé"), (b"\0\0\x06Token\x01\0\0", "Token:")],
)
def test_envelope_principals_are_decoded(data: bytes, principal: str) -> None:
    assert read_principal(data) == principal


@pytest.mark.parametrize("data", [b"\0", b"\0\0", b"\0\0\x00\x04ann", ANN[:6], ANN[:9], b"\0\0" + b"\xff" * 9])
def test_malformed_envelope_principals_are_rejected(data: bytes) -> None:
    with pytest.raises(MalformedRecord):
        read_principal(data)
