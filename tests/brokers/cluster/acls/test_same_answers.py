"""The same answers through Topicwright as directly: random calls, each by both ways."""

import random
from collections import Counter
from contextlib import ExitStack
from typing import Any

from tests.brokers.cluster.acls.calls import CALLS, PRINCIPALS, Body, drawn
from tests.reference.access_servers import logged_in, rows_of
from tests.support.topicwright import Topicwright
from tests.support.wire import Wire

VOLATILE = {"throttle_time_ms", "producer_id", "producer_epoch", "total_bytes", "usable_bytes", "partition_size"}
VOLATILE |= {"log_end_offset", "high_watermark", "last_fetch_timestamp", "last_caught_up_timestamp"}
COMPARED_BY_ROW = {"Metadata", "DescribeCluster", "DescribeTopicPartitions", "CreateTopics", "CreatePartitions"}
COMPARED_BY_ROW |= {"DeleteTopics", "DescribeConfigs", "IncrementalAlterConfigs"}
"""Their answers name the brokers, or have error messages and default values that are not the cluster's."""


def _answer(wire: Wire, api: str, version: int, body: Body) -> object:
    answer = wire.call(api, version, **body)
    if api in COMPARED_BY_ROW:
        return rows_of(api, answer, {})
    return _without_volatile(answer)


def _without_volatile(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_volatile(each) for key, each in value.items() if key not in VOLATILE}
    if isinstance(value, str) and value.startswith("Request Request("):
        return "Kafka's own description of the request"
    if isinstance(value, list | tuple):
        return sorted((_without_volatile(each) for each in value), key=repr)
    return value


def test_a_thousand_random_calls_get_the_same_answers_as_directly(kafka: str, here: Topicwright) -> None:
    rng, seen = random.Random(40), Counter[str]()
    with ExitStack() as held:
        directly = {user: held.enter_context(logged_in(kafka, user)) for user in PRINCIPALS}
        through = {user: held.enter_context(logged_in(here.kafka, user)) for user in PRINCIPALS}
        for _ in range(1000):
            user = rng.choice(PRINCIPALS)
            (api, version), body_of = rng.choice(sorted(CALLS.items()))
            body = body_of(drawn(rng))
            expected = _answer(directly[user], api, version, body)
            found = _answer(through[user], api, version, body)
            assert found == expected, (user, api, version, body)
            seen[api] += 1
    assert len(seen) >= 30, seen
