"""The codec compared with kio and kafka-python: random messages have the same bytes, and are decoded again."""

import random

import pytest

from controller.kafka.codec import codec
from controller.kafka.codec.codec import load_layout
from controller.kafka.messages import APIS, ZERO_UUID, ApiKey, Encoded, Message
from controller.kafka.messages.configs import AlterConfigsResponse
from controller.kafka.messages.quorum import VoteResponse
from controller.kafka.schema import Direction
from tests.kafka.codec.samples import (
    EVERY_VERSION,
    EVERY_VERSION_IDS,
    KAFKA_PYTHON_LACKS,
    KIO_LACKS,
    OF_KAFKA_44,
    kafka_python_bytes,
    kio_bytes,
    samples,
)


def body(api_key: int, version: int, direction: Direction, message: Message) -> bytes:
    has_tags = load_layout(api_key, version, direction).flexible
    tags = has_tags and not (api_key == ApiKey.API_VERSIONS and direction == "response")
    if direction == "request":
        return codec.encode_request(api_key, version, 7, None, message)[14 + tags :]
    return codec.encode_response(api_key, version, 7, message)[8 + tags :]


@pytest.mark.parametrize(("api_key", "version", "direction"), EVERY_VERSION, ids=EVERY_VERSION_IDS)
def test_bytes_equal_kio_and_kafka_python(api_key: int, version: int, direction: Direction) -> None:
    for message in samples(api_key, version, direction, 6):
        _is_as_others_write_it(api_key, version, direction, message)
        if direction == "request":
            _request_is_read_back(api_key, version, message)
        else:
            _response_is_read_back(api_key, version, message)
            _encoded_arrays_are_spliced_in(api_key, version, message)


def _is_as_others_write_it(api_key: int, version: int, direction: Direction, message: Message) -> None:
    ours = body(api_key, version, direction, message)
    if (api_key, version) not in KIO_LACKS:
        assert ours == kio_bytes(api_key, version, direction, message), f"other bytes than kio's for {message}"
    if api_key not in KAFKA_PYTHON_LACKS and (api_key, version) not in OF_KAFKA_44:
        theirs = kafka_python_bytes(api_key, version, direction, message)
        assert ours == theirs, f"other bytes than kafka-python's for {message}"


def _response_is_read_back(api_key: int, version: int, message: Message) -> None:
    frame = codec.encode_response(api_key, version, -5, message)
    assert len(frame) == 4 + int.from_bytes(frame[:4], "big"), "the frame does not begin with its size"
    assert codec.decode_response(api_key, version, frame[4:]) == (-5, message), "decoded to another message"


def _request_is_read_back(api_key: int, version: int, message: Message) -> None:
    client_id = random.choice((None, "", "client", "é\U0001f600"))
    frame = codec.encode_request(api_key, version, 2**31 - 1, client_id, message)
    assert len(frame) == 4 + int.from_bytes(frame[:4], "big"), "the frame does not begin with its size"
    header = codec.parse_header(frame[4:])
    read = (header.api_key, header.api_version, header.correlation_id, header.client_id)
    assert read == (api_key, version, 2**31 - 1, client_id), "decoded to another header"
    again = codec.read_request(api_key, version, frame[4:], header.body_offset)[0]
    assert again == message, "decoded to another message"


def _encoded_arrays_are_spliced_in(api_key: int, version: int, message: Message) -> None:
    arrays = {
        field.name: getattr(message, field.name)
        for field in load_layout(api_key, version, "response").fields
        if field.is_array and field.entity is not None and getattr(message, field.name) is not None
    }
    spliced = {
        name: Encoded(codec.encode_element(api_key, version, item) for item in items) for name, items in arrays.items()
    }
    plain = body(api_key, version, "response", message)
    kept = {name: getattr(message, name) for name in message.__struct_fields__}
    same = type(message)(**(kept | spliced))
    assert body(api_key, version, "response", same) == plain, "spliced bytes differ from plain ones"


def test_encode_element_of_another_api_raises() -> None:
    from controller.kafka.messages.topics import MetadataResponseTopic

    with pytest.raises(LookupError, match="CreateTopics v7 has no MetadataResponseTopic"):
        codec.encode_element(19, 7, MetadataResponseTopic(topic_id=ZERO_UUID))


def test_api_names_are_kafkas() -> None:
    for api in APIS.values():
        for message, suffix in ((api.request, "Request"), (api.response, "Response")):
            is_own = message.__name__ == api.name + suffix
            assert is_own or message in (AlterConfigsResponse, VoteResponse), f"{message} in the row of {api.name}"
