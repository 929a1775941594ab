"""The versions that kio does not describe, written as kio writes its classes; each name ends in its version.

Old ones: Kafka 4.0 dropped them (KIP-896), and kafka-go and old settings of sarama still send them. Sources: KIP-4 for
CreateTopics and DeleteTopics v0, KIP-133 for DescribeConfigs v0, and the message definitions of Kafka 3.9.

New ones: those of Kafka 4.4, whose messages kio 0.6.5 does not have. Source: the message definitions of Kafka 4.4.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar

from kio.schema.api_versions.v4.response import ApiVersionsResponse
from kio.schema.create_topics.v2.request import CreatableTopic, CreateTopicsRequest
from kio.schema.delete_topics.v1.request import DeleteTopicsRequest
from kio.schema.delete_topics.v1.response import DeletableTopicResult
from kio.schema.describe_configs.v1.request import DescribeConfigsResource
from kio.schema.errors import ErrorCode
from kio.schema.request_header.v1.header import RequestHeader
from kio.schema.request_header.v2.header import RequestHeader as FlexibleRequestHeader
from kio.schema.response_header.v0.header import ResponseHeader
from kio.schema.response_header.v1.header import ResponseHeader as FlexibleResponseHeader
from kio.schema.types import TopicName
from kio.static.primitive import i8, i32, i32Timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsRequestV0:
    """Version 1 without `validate_only`."""

    __flexible__: ClassVar[bool] = False
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    topics: tuple[CreatableTopic, ...]
    timeout: i32Timedelta = field(
        metadata={"kafka_type": "timedelta_i32"}, default=i32Timedelta.parse(timedelta(minutes=1))
    )


CreateTopicsRequestV1 = CreateTopicsRequest
"""Version 2 changed the answer only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopicResultV0:
    """Without `error_message`."""

    __flexible__: ClassVar[bool] = False
    name: TopicName = field(metadata={"kafka_type": "string"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsResponseV0:
    """No throttle time, no messages."""

    __flexible__: ClassVar[bool] = False
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    topics: tuple[CreatableTopicResultV0, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopicResultV1:
    """With `error_message`."""

    __flexible__: ClassVar[bool] = False
    name: TopicName = field(metadata={"kafka_type": "string"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsResponseV1:
    """No throttle time."""

    __flexible__: ClassVar[bool] = False
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    topics: tuple[CreatableTopicResultV1, ...]


DeleteTopicsRequestV0 = DeleteTopicsRequest
"""Version 1 changed the answer only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsResponseV0:
    """No throttle time."""

    __flexible__: ClassVar[bool] = False
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    responses: tuple[DeletableTopicResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsRequestV0:
    """Version 1 without `include_synonyms`."""

    __flexible__: ClassVar[bool] = False
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    resources: tuple[DescribeConfigsResource, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsResourceResultV0:
    """`is_default` where later versions have a source, and no synonyms."""

    __flexible__: ClassVar[bool] = False
    name: str = field(metadata={"kafka_type": "string"})
    value: str | None = field(metadata={"kafka_type": "string"})
    read_only: bool = field(metadata={"kafka_type": "bool"})
    is_default: bool = field(metadata={"kafka_type": "bool"})
    is_sensitive: bool = field(metadata={"kafka_type": "bool"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsResultV0:
    """All configs of one resource, or why not."""

    __flexible__: ClassVar[bool] = False
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"})
    resource_type: i8 = field(metadata={"kafka_type": "int8"})
    resource_name: str = field(metadata={"kafka_type": "string"})
    configs: tuple[DescribeConfigsResourceResultV0, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsResponseV0:
    """One result a resource."""

    __flexible__: ClassVar[bool] = False
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    throttle_time: i32Timedelta = field(metadata={"kafka_type": "timedelta_i32"})
    results: tuple[DescribeConfigsResultV0, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsRequestV5:
    """With the cluster and the node that the client expects (KIP-1242)."""

    __flexible__: ClassVar[bool] = True
    __header_schema__: ClassVar[type[FlexibleRequestHeader]] = FlexibleRequestHeader
    client_software_name: str = field(metadata={"kafka_type": "string"})
    client_software_version: str = field(metadata={"kafka_type": "string"})
    cluster_id: str | None = field(metadata={"kafka_type": "string"}, default=None)
    node_id: i32 = field(metadata={"kafka_type": "int32"}, default=i32(-1))


ApiVersionsResponseV5 = ApiVersionsResponse
"""Version 5 changed the request only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterControllerRequestV0:
    """KIP-1312."""

    __flexible__: ClassVar[bool] = True
    __header_schema__: ClassVar[type[FlexibleRequestHeader]] = FlexibleRequestHeader
    controller_id: i32 = field(metadata={"kafka_type": "int32"})


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterControllerResponseV0:
    """KIP-1312."""

    __flexible__: ClassVar[bool] = True
    __header_schema__: ClassVar[type[FlexibleResponseHeader]] = FlexibleResponseHeader
    throttle_time: i32Timedelta = field(metadata={"kafka_type": "timedelta_i32"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"})
