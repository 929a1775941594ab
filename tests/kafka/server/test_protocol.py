"""The protocol without I/O: frames, unsupported versions, errors, and the order of responses."""

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.kafka.codec import codec
from controller.kafka.handling import RequestContext
from controller.kafka.messages import ApiKey
from controller.kafka.messages.cluster import ApiVersion, ApiVersionsResponse
from controller.kafka.messages.topics import MetadataRequest, MetadataRequestTopic, MetadataResponse
from controller.kafka.server.protocol import DECODED_ON_LOOP_BYTES_MAX, ELEMENT_BYTES, Exchange, ServerProtocol
from tests.kafka.server.listener import frame, header, metadata_request, table

BYTES_MAX = 1000


def never(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    raise AssertionError("the protocol calls no handler")


def protocol() -> ServerProtocol:
    return ServerProtocol(table({ApiKey.METADATA: never}), BYTES_MAX)


def exchanges(conversation: ServerProtocol) -> list[Exchange]:
    found = []
    while (exchange := conversation.next_exchange()) is not None:
        found.append(exchange)
    return found


def correlation_ids(conversation: ServerProtocol) -> list[int]:
    return [exchange.header.correlation_id for exchange in exchanges(conversation)]


def answered(conversation: ServerProtocol) -> list[int]:
    frames, _ = conversation.frames(1 << 20)
    return [int.from_bytes(each[4:8], "big") for each in frames]


@given(cuts=st.lists(st.integers(0, 400), max_size=30), names=st.lists(st.text("ab", max_size=60), max_size=6))
def test_frames_in_any_chunks_are_decoded_in_order(cuts: list[int], names: list[str]) -> None:
    conversation = protocol()
    stream = b"".join(metadata_request(number, name) for number, name in enumerate(names))
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    seen: list[Exchange] = []
    for start, end in itertools.pairwise(edges):
        conversation.receive(stream[start:end])
        seen += exchanges(conversation)
    got = [(exchange.header.correlation_id, exchange.request.topics[0].name) for exchange in seen]  # type: ignore[union-attr]
    assert got == list(enumerate(names)), "requests lost, changed or out of order"


def test_decoded_bytes_are_released() -> None:
    conversation = protocol()
    stream = b"".join(map(metadata_request, range(1000)))
    for start in range(0, len(stream), 50):
        conversation.receive(stream[start : start + 50])
        exchanges(conversation)
        assert len(conversation._buffer) < 150


def test_requests_wait_in_the_buffer() -> None:
    conversation = protocol()
    conversation.receive(metadata_request(1) + metadata_request(2))
    first = conversation.next_exchange()
    conversation.receive(metadata_request(3)[:10])
    conversation.receive(metadata_request(3)[10:])
    assert first is not None
    assert conversation.has_frame()
    assert correlation_ids(conversation) == [2, 3]
    assert not conversation.has_frame()


@given(order=st.permutations(range(6)))
def test_responses_are_in_order_of_requests(order: list[int]) -> None:
    conversation = protocol()
    conversation.receive(b"".join(metadata_request(number) for number in range(6)))
    requests = exchanges(conversation)
    left: list[int] = []
    for position, number in enumerate(order):
        requests[number].answer(MetadataResponse())
        left += answered(conversation)
        done = set(order[: position + 1])
        assert left == list(range(len(left))), "a response overtook another"
        assert len(left) == next((n for n in range(6) if n not in done), 6), (
            "a response was held back although it was ready to be sent"
        )
    assert conversation.in_flight == conversation.bytes_in_flight == 0


def test_in_flight_requests_and_bytes_are_counted() -> None:
    conversation = protocol()
    conversation.receive(metadata_request(1, "x") + metadata_request(2, "xy"))
    exchanges(conversation)
    assert conversation.in_flight == 2
    frames = len(metadata_request(1, "x")) + len(metadata_request(2, "xy")) - 8
    assert conversation.bytes_in_flight == frames + 2 * ELEMENT_BYTES, "each request has one element"


def test_unsupported_api_versions_version_is_answered_in_version_0() -> None:
    conversation = protocol()
    conversation.receive(frame(header(18, 99, 5) + b"whatever it has") + metadata_request(6))
    fallback, request = exchanges(conversation)
    assert (fallback.outcome, fallback.ends, request.outcome) == ("unsupported", None, None)
    correlation_id, response = codec.decode_response(18, 0, fallback.frame[4:])
    spoken = ApiVersion(api_key=18, min_version=0, max_version=5)
    assert (correlation_id, response) == (5, ApiVersionsResponse(error_code=35, api_keys=(spoken,)))


@pytest.mark.parametrize(
    ("sent", "outcome", "reason"),
    [
        (frame(header(3, 99)), "unsupported", "unsupported version"),
        (frame(header(3, -1)), "unsupported", "unsupported version"),
        (frame(header(999, 0)), "unsupported", "unsupported API"),
        (frame(header(19, 2)), "unsupported", "unsupported API"),
        (frame(b""), "malformed", "request header: the bytes end early"),
        (frame(header(3, 1)), "malformed", "Metadata v1 request: topics: the bytes end early"),
        (struct.pack(">i", -1), "malformed", "frame: -1 bytes announced, 0 to 1000 allowed"),
        (struct.pack(">i", 1001), "malformed", "frame: 1001 bytes announced, 0 to 1000 allowed"),
        (b"GET / HTTP/1.1\r\n", "malformed", "frame: 1195725856 bytes announced, 0 to 1000 allowed"),
    ],
)
def test_unsupported_api_or_version_ends_the_connection(sent: bytes, outcome: str, reason: str) -> None:
    conversation = protocol()
    conversation.receive(metadata_request(1) + sent + metadata_request(2))
    request, end = exchanges(conversation)
    assert (end.outcome, end.ends) == (outcome, reason)
    assert conversation.ended
    assert conversation.frames(BYTES_MAX) == ([], False), "the end waits for earlier responses"
    request.answer(MetadataResponse())
    assert conversation.frames(BYTES_MAX) == ([request.frame], True)
    conversation.receive(metadata_request(3))
    assert conversation.next_exchange() is None, "no request is read after the end"


def test_a_listener_without_handlers_is_starting() -> None:
    conversation = ServerProtocol({}, BYTES_MAX)
    conversation.receive(frame(header(18, 0)))
    assert [one.ends for one in exchanges(conversation)] == ["the service is starting"]


def test_a_frame_of_maximum_size_is_accepted() -> None:
    conversation = protocol()
    name = "x" * (BYTES_MAX - len(metadata_request(1)) + 4)
    conversation.receive(metadata_request(1, name))
    assert correlation_ids(conversation) == [1]


def test_no_response_has_no_bytes() -> None:
    conversation = protocol()
    conversation.receive(metadata_request(1))
    (exchange,) = exchanges(conversation)
    exchange.answer(None)
    assert (exchange.outcome, exchange.frame) == ("unanswered", b"")


def test_large_request_is_not_decoded_on_the_loop() -> None:
    conversation = ServerProtocol(table({ApiKey.METADATA: never}), 1 << 20)
    names = tuple(MetadataRequestTopic(name="") for _ in range(DECODED_ON_LOOP_BYTES_MAX))
    large = codec.encode_request(ApiKey.METADATA, 1, 1, "test", MetadataRequest(topics=names))
    conversation.receive(large + metadata_request(2))
    exchange, small = exchanges(conversation)
    assert (exchange.request, exchange.unread) == (None, large[4:])
    assert small.unread is None
    conversation.resize(exchange, exchange.read(large[4:], DECODED_ON_LOOP_BYTES_MAX))
    assert exchange.request == MetadataRequest(topics=names)
    taken = len(large) - 4 + len(names) * ELEMENT_BYTES + len(metadata_request(2)) - 4 + ELEMENT_BYTES
    assert conversation.bytes_in_flight == taken
