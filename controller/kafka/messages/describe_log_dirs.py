"""DescribeLogDirs (35): the log directories of a broker, and what is in them."""

from controller.kafka.messages.message import Message


class DescribableLogDirTopic(Message, frozen=True, kw_only=True):
    topic: str = ""
    partitions: tuple[int, ...] = ()


class DescribeLogDirsRequest(Message, frozen=True, kw_only=True):
    topics: tuple[DescribableLogDirTopic, ...] | None = None


class DescribeLogDirsPartition(Message, frozen=True, kw_only=True):
    partition_index: int = 0
    partition_size: int = 0
    offset_lag: int = 0
    is_future_key: bool = False


class DescribeLogDirsTopic(Message, frozen=True, kw_only=True):
    name: str = ""
    partitions: tuple[DescribeLogDirsPartition, ...] = ()


class DescribeLogDirsResult(Message, frozen=True, kw_only=True):
    error_code: int = 0
    log_dir: str = ""
    topics: tuple[DescribeLogDirsTopic, ...] = ()
    total_bytes: int = -1
    usable_bytes: int = -1
    is_cordoned: bool = False


class DescribeLogDirsResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0
    error_code: int = 0
    results: tuple[DescribeLogDirsResult, ...] = ()
