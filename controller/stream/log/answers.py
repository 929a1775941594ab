"""The answers of a decision, on their way to whoever waits for them.

They travel in the record of the decision, because not all of them are events: a dry run has none, and is
answered all the same. A topic that the events lead to is not repeated: a reader has it in its own state.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import asdict, replace

from controller.machine.decision import Answer, Decision, Detail, PartitionAnswer
from controller.machine.state import Topic, Topics
from events.catalog import Fact
from events.names import RequestId, TopicName, shard_key


class _Carried(Fact, frozen=True):
    request_id: RequestId
    topic_name: TopicName
    code: int
    message: str
    rule: str
    waited_ms: int
    topic: Topic | None
    as_it_stands: bool
    """The topic shown is the one that the reader has after the events."""
    details: tuple[Detail, ...] = ()
    partitions: tuple[PartitionAnswer, ...] = ()
    number: int = 0


_encode = msgspec.msgpack.Encoder(enc_hook=tuple).encode
_decode = msgspec.msgpack.Decoder(tuple[_Carried, ...]).decode


def encode_answers(decision: Decision, topics: Topics) -> bytes:
    """The answers of a decision; `topics` are those after its events. Empty where there is no answer."""
    if not decision.answers:
        return b""
    return _encode([_carried(answer, decision, topics) for answer in decision.answers])


def size_of_answers(decision: Decision) -> int:
    """About how many bytes its answers take: their details, each of which may list thousands of access control entries,
    and the topics that a decision without events shows."""
    shown = () if decision.events else tuple(answer.topic for answer in decision.answers)
    large = (*(answer.details for answer in decision.answers), *shown)
    return sum(len(_encode(one)) for one in large if one)


def decode_answers(value: bytes, topics: Topics) -> tuple[Answer, ...]:
    """The answers that a record carries; `topics` are those after its events. Raises msgspec.DecodeError."""
    return tuple(_answer(carried, topics) for carried in _decode(value)) if value else ()


def _carried(answer: Answer, decision: Decision, topics: Topics) -> _Carried:
    shown, as_it_stands = answer.topic, False
    if shown is not None and decision.events:
        stands = topics.get(shard_key(shown.name))
        as_it_stands = stands is not None and stands.topic_id == shown.topic_id
        if stands is None:  # deleted: its id is of use, and it may have had more partitions than a record holds
            shown = replace(shown, partitions=())
    fields = {**asdict(answer), "code": int(answer.code), "topic": None if as_it_stands else shown}
    return _Carried(**fields, as_it_stands=as_it_stands)


def _answer(carried: _Carried, topics: Topics) -> Answer:
    fields = asdict(carried)
    if fields.pop("as_it_stands"):
        fields["topic"] = topics.get(shard_key(carried.topic_name))
    return Answer(**fields)
