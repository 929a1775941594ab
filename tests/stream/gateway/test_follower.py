"""Batches that a gateway's follower passes to the event loop."""

from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError

from controller.stream.gateway.kafka import BATCH_BYTES, read_batches


def fetched(offset: int, size: int = -1) -> Any:
    """A message as librdkafka returns it; without a size, the end-of-partition error."""
    error = KafkaError(KafkaError._PARTITION_EOF) if size < 0 else None
    fields = {"error": error, "topic": "events", "partition": 0, "offset": offset, "value": bytes(max(0, size))}
    return SimpleNamespace(**{name: lambda value=value: value for name, value in fields.items()})


class Backlog:
    """A consumer with a fixed backlog."""

    def __init__(self, sizes: list[int]) -> None:
        self._messages = [*(fetched(offset, size) for offset, size in enumerate(sizes)), fetched(len(sizes))]

    def poll(self, _: float) -> Any:
        return self._messages.pop(0) if self._messages else None

    def consume(self, at_most: int, _: float) -> list[Any]:
        taken, self._messages = self._messages[:at_most], self._messages[at_most:]
        return taken


def test_follower_batches_are_limited_in_bytes_and_the_last_has_the_end() -> None:
    sizes = [100] * 300 + [BATCH_BYTES * 2, BATCH_BYTES // 2, BATCH_BYTES // 2, 1]
    taken = read_batches(Backlog(sizes))  # type: ignore[arg-type]
    assert [record.offset for batch in taken for record in batch.records] == list(range(len(sizes)))
    parts = [sum(len(record.value) for record in batch.records) for batch in taken]
    assert parts == [30_000 + BATCH_BYTES * 2, BATCH_BYTES, 1]
    assert [bool(batch.ended) for batch in taken] == [False, False, True], "only the last batch has the end"
