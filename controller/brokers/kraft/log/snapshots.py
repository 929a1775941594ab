"""Snapshots of the metadata log (KIP-630): all that it says up to an offset, in the form of a Kafka checkpoint.

A snapshot is made from the one before and the batches since, never from the machine's state: so it needs no moment in
which the state stands still, and can be made in a thread beside deciding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from controller.brokers.kraft.log import batches
from controller.brokers.kraft.log.image import MetadataImage
from controller.brokers.kraft.log.metadata_codec import encode_record

RECORDS_PER_BATCH = 500  # brokers take a batch whole: a few hundred kilobytes


def snapshot_bytes(image: MetadataImage, epoch: int) -> bytes:
    """A checkpoint as Kafka writes it."""
    return b"".join(snapshot_batches(image, epoch))


def snapshot_batches(image: MetadataImage, epoch: int) -> Iterator[bytes]:
    """The batches of a checkpoint: its offsets begin at 0, its head has who votes."""
    at = 0
    head = [batches.snapshot_header(image.timestamp_ms), *(pair for _, pair in sorted(image.quorum.items()))]
    for pairs, is_control in _batches(head, ((None, encode_record(record)) for record in image.records())):
        yield batches.encode_batch(at, epoch, image.timestamp_ms, pairs, is_control=is_control)
        at += len(pairs)


def _batches(head: list[batches.Pair], records: Iterable[batches.Pair]) -> Iterator[tuple[list[batches.Pair], bool]]:
    yield head, True
    rest = iter(records)
    while pairs := list(islice(rest, RECORDS_PER_BATCH)):
        yield pairs, False
    yield [batches.snapshot_footer()], True
