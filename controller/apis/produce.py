"""Produce: refused, for a controller keeps no records. Old Java clients hang unless it is advertised."""

from __future__ import annotations

from typing import Final

from controller.kafka.handling import ApiHandler, Disconnect, RequestContext
from controller.kafka.messages import APIS, ApiKey
from controller.kafka.messages.clients import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

INVALID_REQUEST: Final = 42
ANSWERED_MAX: Final = 10_000
REFUSAL: Final = "This is a controller, which keeps no records: produce to a broker."


def handle(context: RequestContext, request: ProduceRequest) -> ProduceResponse:
    """Refuse each partition. Raises Disconnect for `acks=0`, the only way to let such a client know, as Kafka does."""
    if request.acks == 0:
        raise Disconnect(REFUSAL)
    if len(request.topic_data) + sum(len(topic.partition_data) for topic in request.topic_data) > ANSWERED_MAX:
        raise Disconnect(f"{REFUSAL} A refusal is answered to at most {ANSWERED_MAX} partitions.")
    return ProduceResponse(
        responses=tuple(
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=tuple(
                    PartitionProduceResponse(
                        index=partition.index, error_code=INVALID_REQUEST, base_offset=-1, error_message=REFUSAL
                    )
                    for partition in topic.partition_data
                ),
            )
            for topic in request.topic_data
        )
    )


def produce() -> ApiHandler:
    """The row for a listener's table, advertised from version 0 as Kafka 4 does for old librdkafka (KAFKA-18659)."""
    api = APIS[ApiKey.PRODUCE]
    return ApiHandler(api.min_version, api.max_version, handle, min_version_advertised=0)
