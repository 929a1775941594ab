"""Whether a batch that carries events says what these events lead to: what a standby looks at before it takes them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from typing import Final

from controller.brokers.kraft.log import metadata_records as kinds
from controller.brokers.kraft.log.metadata_codec import encode_record
from controller.brokers.kraft.log.metadata_records import MetadataRecord

_WORDS_MAX: Final = 200


def differs(projected: Iterable[MetadataRecord], batch: Iterable[MetadataRecord]) -> str | None:
    """The first record in which a batch is not what its events lead to here, both shown; None where there is none.

    What carries the events, a NoOpRecord, is no part of the comparison.
    """
    ours = (each for each in projected if not isinstance(each, kinds.NoOpRecord))
    theirs = (each for each in batch if not isinstance(each, kinds.NoOpRecord))
    for number, (our, their) in enumerate(zip_longest(ours, theirs)):
        if our != their and (our is None or their is None or encode_record(our) != encode_record(their)):
            return f"record {number} of the batch is {_shown(their)}, and its events lead to {_shown(our)}"
    return None


def _shown(record: MetadataRecord | None) -> str:
    text = "nothing" if record is None else repr(record)
    return text if len(text) <= _WORDS_MAX else text[: _WORDS_MAX - 1] + "…"
