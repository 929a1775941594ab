"""For a request with several faults, Topicwright reports the same one as Kafka 4.4: both validate in the same order."""

import random
from typing import Any

from tests.reference.answers import code_name
from tests.reference.cases import Body, topic
from tests.support.reference_kafka import ReferenceKafka
from tests.support.topicwright import Topicwright
from tests.support.wire import Wire

SEED = 20_261_122
TOPICS, TOPICS_PER_REQUEST = 1_000, 20
ASSIGNMENTS: tuple[dict[int, list[int]] | None, ...] = (
    None, None, None, {0: [1]}, {0: [1, 2], 1: [2, 3]}, {0: [9]}, {0: [1, 1]}, {0: []}, {1: [1]}, {0: [1], 1: [1, 2]},
)  # fmt: skip
CONFIGS: tuple[dict[str, str | None], ...] = (
    {}, {}, {"retention_ms": "5"}, {"retention_ms": "x"}, {"nonsense": "1"}, {"retention_ms": None},
    {"min_compaction_lag_ms": "9", "max_compaction_lag_ms": "5"}, {"remote_storage_enable": "true"},
)  # fmt: skip
NAMES = ("{}", "{}", "{}", "bad name {}", "there", "th_ere", "{}*")
SAID_OTHERWISE = "only 3 broker(s) are"
"""From here on, Topicwright's messages differ from Kafka's; messages are compared up to this text."""


def topics() -> list[Body]:
    """Topics that are the same in every run; most have faults."""
    chance = random.Random(SEED)
    return [
        topic(
            chance.choice(NAMES).format(f"random-{number}"),
            chance.choice((-2, -1, -1, 0, 1, 3)),
            chance.choice((-2, -1, -1, 0, 1, 2, 4)),
            chance.choice(ASSIGNMENTS),
            **chance.choice(CONFIGS),
        )
        for number in range(TOPICS)
    ]


def answers(address: str) -> list[tuple[str, str, str]]:
    """Name, error and message of each topic, in request order; all requests are dry runs."""
    chance, wanted, found = random.Random(SEED), topics(), []
    with Wire(address, timeout_s=240) as wire:
        there = [topic("there"), topic("th.ere")]
        wire.call("CreateTopics", 7, topics=there, timeout_ms=60_000, validate_only=False)
        for start in range(0, TOPICS, TOPICS_PER_REQUEST):
            some = list({each["name"]: each for each in wanted[start : start + TOPICS_PER_REQUEST]}.values())
            body = wire.call("CreateTopics", chance.randrange(2, 8), topics=some, timeout_ms=60_000, validate_only=True)
            found += sorted(map(_outcome, body["topics"]))
    return found


def _outcome(each: Any) -> tuple[str, str, str]:
    message = each["error_message"] or ""
    return each["name"], code_name(each["error_code"]), message.partition(SAID_OTHERWISE)[0]


def test_requests_with_many_faults_get_kafkas_error(kafka44: ReferenceKafka, topicwright_server: Topicwright) -> None:
    kafka, topicwright = answers(kafka44.bootstrap), answers(topicwright_server.kafka)
    assert len({code for _, code, _ in kafka}) >= 7, "the topics cover many kinds of faults"
    strayed = [
        (theirs, ours)
        for theirs, ours in zip(kafka, topicwright, strict=True)
        if theirs[:2] != ours[:2] or not ours[2].startswith(theirs[2])
    ]
    assert not strayed, f"seed {SEED}: {len(strayed)} of {len(kafka)} differ: {strayed[:5]}"
