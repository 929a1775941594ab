"""Creating topics through the front door: one by one, pipelined, in large requests, and as dry runs.

The same frames go to Topicwright (fsync on, three simulated brokers) and to one combined node of a real Kafka, over
the same bare client. Names differ from run to run, so that every create is new.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.client import BenchClient, frame_of
from benchmarks.figures import Figure, percentile, show
from benchmarks.servers import kafka, topicwright
from controller.kafka.codec.codec import decode_response
from controller.kafka.messages import ApiKey
from controller.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest

VERSION = 7
CREATE = ApiKey.CREATE_TOPICS


def request(names: list[str], validate_only: bool = False) -> CreateTopicsRequest:
    """Topics of one partition and one replica each."""
    topics = tuple(CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names)
    return CreateTopicsRequest(topics=topics, timeout_ms=60_000, validate_only=validate_only)


def one_by_one(address: str, count: int, validate_only: bool) -> tuple[float, float, float]:
    """Median ms, 99th percentile ms and creates a second, one after another."""
    client = BenchClient(address)
    prefix = f"one-{validate_only}-{time.time_ns()}"
    frames = [frame_of(CREATE, VERSION, request([f"{prefix}-{n}"], validate_only)) for n in range(count)]
    client.timed(frames[: count // 10])
    started = time.perf_counter()
    answers, seconds = client.timed(frames[count // 10 :])
    elapsed = time.perf_counter() - started
    check(answers)
    client.close()
    return percentile(seconds, 0.5) * 1000, percentile(seconds, 0.99) * 1000, len(seconds) / elapsed


def pipelined(address: str, count: int) -> float:
    """Creates a second on one connection that never waits."""
    client = BenchClient(address)
    prefix = f"pipe-{time.time_ns()}"
    frames = [frame_of(CREATE, VERSION, request([f"{prefix}-{n}"])) for n in range(count)]
    started = time.perf_counter()
    answers = client.pipeline(frames)
    elapsed = time.perf_counter() - started
    check(answers)
    client.close()
    return count / elapsed


def in_requests(address: str, requests: int, topics: int, validate_only: bool) -> float:
    """Topics a second in requests of many topics, one request after another; the first tenth warms up."""
    client = BenchClient(address)
    prefix = f"many-{validate_only}-{time.time_ns()}"
    frames = [
        frame_of(CREATE, VERSION, request([f"{prefix}-{r}-{n}" for n in range(topics)], validate_only))
        for r in range(requests)
    ]
    warm = max(1, requests // 10)
    client.timed(frames[:warm])
    answers, seconds = client.timed(frames[warm:])
    check(answers)
    client.close()
    return topics * len(seconds) / sum(seconds)


def check(answers: list[bytes]) -> None:
    """Every topic of every answer must have succeeded."""
    for answer in answers[:: max(1, len(answers) // 50)]:
        response = decode_response(CREATE, VERSION, answer)[1]
        for topic in response.topics:  # type: ignore[attr-defined]
            assert topic.error_code == 0, f"{topic.name}: {topic.error_code} {topic.error_message}"


def measure(address: str, few: bool) -> dict[str, float]:
    """Every figure of one server; `few` keeps a slow one from taking minutes."""
    figures: dict[str, float] = {}
    median, p99, rate = one_by_one(address, 110 if few else 3000, False)
    figures |= {"one ms": median, "one p99 ms": p99, "one rate": rate}
    figures["pipelined"] = pipelined(address, 150 if few else 20_000)
    figures["many"] = in_requests(address, 12 if few else 40, 300, False)
    figures["many dry"] = in_requests(address, 60, 300, True)
    figures["one dry ms"] = one_by_one(address, 3000, True)[0]
    return figures


ROWS: tuple[tuple[str, str, str, str], ...] = (
    ("one ms", "one create after another, median", "ms", "under 1"),
    ("one p99 ms", "one create after another, 99 %", "ms", ""),
    ("one rate", "one create after another", "creates/s", "1,000"),
    ("pipelined", "creates pipelined on one connection", "creates/s", "5,000"),
    ("many", "300 topics in one request, created", "topics/s", "25,000"),
    ("many dry", "300 topics in one request, validate-only", "topics/s", "60,000"),
    ("one dry ms", "validate-only one by one, median", "ms", "0.3"),
)


def run(with_kafka: bool = True, measure_one: Callable[[str, bool], dict[str, float]] = measure) -> list[Figure]:
    """Measure Topicwright and, unless it is turned off, a real Kafka in the same run."""
    with TemporaryDirectory(prefix="topicwright-bench-") as folder, topicwright(Path(folder) / "data") as ours:
        own = measure_one(ours.kafka, False)
    theirs: dict[str, float] = {}
    if with_kafka:
        with kafka() as address:
            theirs = measure_one(address, True)
    return [Figure(work, unit, own[key], theirs.get(key), reach) for key, work, unit, reach in ROWS]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--without-kafka", action="store_true", help="measure Topicwright alone")
    options = parser.parse_args()
    show(run(not options.without_kafka), options.json)


if __name__ == "__main__":
    main()
