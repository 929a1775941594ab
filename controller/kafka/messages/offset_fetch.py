"""OffsetFetch (9): the offsets that a group has committed."""

from controller.kafka.messages.message import Message


class OffsetFetchRequestTopic(Message, frozen=True, kw_only=True):
    name: str = ""
    partition_indexes: tuple[int, ...] = ()


class OffsetFetchRequest(Message, frozen=True, kw_only=True):
    group_id: str = ""
    topics: tuple[OffsetFetchRequestTopic, ...] | None = None
    require_stable: bool = False


class OffsetFetchResponsePartition(Message, frozen=True, kw_only=True):
    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    metadata: str | None = None
    error_code: int = 0


class OffsetFetchResponseTopic(Message, frozen=True, kw_only=True):
    name: str = ""
    partitions: tuple[OffsetFetchResponsePartition, ...] = ()


class OffsetFetchResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0
    topics: tuple[OffsetFetchResponseTopic, ...] = ()
    error_code: int = 0
