"""What a gateway's follower hands to the event loop at once."""

from __future__ import annotations

from confluent_kafka import KafkaError

from controller.stream.gateway.kafka import BATCH_BYTES, read_batches

EVENTS = "events"


class Fetched:
    """A message as librdkafka gives it; without a size, the end of the partition."""

    def __init__(self, offset: int, size: int = -1) -> None:
        self._offset, self._size = offset, size

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._PARTITION_EOF) if self._size < 0 else None

    def topic(self) -> str:
        return EVENTS

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes:
        return bytes(self._size)


class Backlog:
    """A consumer behind which all of this lies, and no more comes."""

    def __init__(self, sizes: list[int]) -> None:
        self._messages = [*(Fetched(offset, size) for offset, size in enumerate(sizes)), Fetched(len(sizes))]

    def poll(self, _: float) -> Fetched | None:
        return self._messages.pop(0) if self._messages else None

    def consume(self, at_most: int, _: float) -> list[Fetched]:
        taken, self._messages = self._messages[:at_most], self._messages[at_most:]
        return taken


def test_large_records_are_handed_over_one_by_one_and_the_end_with_the_last() -> None:
    sizes = [100] * 300 + [BATCH_BYTES * 2, BATCH_BYTES // 2, BATCH_BYTES // 2, 1]
    taken = read_batches(Backlog(sizes))  # type: ignore[arg-type]
    assert [record.offset for batch in taken for record in batch.records] == list(range(len(sizes)))
    parts = [sum(len(record.value) for record in batch.records) for batch in taken]
    assert parts == [30_000, BATCH_BYTES * 2, BATCH_BYTES, 1]
    assert [bool(batch.ended) for batch in taken] == [False, False, False, True], "the end is known with the last"
