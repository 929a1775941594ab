"""Topic creation over the Kafka protocol: one by one, pipelined, in large requests, as dry runs, and under 50 rules.

A minimal client sends the same frames to Topicwright (fsync on, three simulated brokers) and to one combined
node of a real Kafka; in one row the client is librdkafka. Names differ from run to run, so every create is new.
"""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # it does not say it exports these

from benchmarks.client import BenchClient, frame_of
from benchmarks.figures import Figure, command_line, percentile
from benchmarks.servers import kafka, topicwright
from benchmarks.usage import with_core_us
from controller.kafka.codec.codec import decode_response
from controller.kafka.messages import ApiKey
from controller.kafka.messages.topics import CreatableTopic, CreateTopicsRequest

VERSION = 7
CREATE = ApiKey.CREATE_TOPICS
RULE = """
[[rule]]
name = "r{number}"
topics = "{topics}"
partitions = {{ max = 48 }}
replication_factor = {{ min = 1, max = 3 }}
configs = {{ "retention.ms" = {{ max = 604800000 }} }}
"""
RULES = "".join(RULE.format(number=n, topics="*" if n % 2 else f"team-{n}.*") for n in range(50))
"""Half of them apply to every topic."""


def request(names: list[str], validate_only: bool = False) -> CreateTopicsRequest:
    """A request for topics of one partition and one replica each."""
    topics = tuple(CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names)
    return CreateTopicsRequest(topics=topics, timeout_ms=60_000, validate_only=validate_only)


def one_by_one(address: str, count: int, validate_only: bool) -> tuple[float, float, float]:
    """Median ms, 99th percentile ms and creates a second, one request after another."""
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
    """Creates a second on one connection that does not wait for responses."""
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
    """Topics a second in requests of many topics, one after another; the first tenth is warm-up."""
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


def by_librdkafka(address: str, requests: int, topics: int) -> float:
    """Topics a second in requests of many topics by librdkafka's admin client; the first request is warm-up."""
    client = AdminClient({"bootstrap.servers": address})
    prefix = f"librdkafka-{time.time_ns()}"
    seconds = 0.0
    for r in range(requests + 1):
        new = [NewTopic(f"{prefix}-{r}-{n}", num_partitions=1, replication_factor=1) for n in range(topics)]
        started = time.perf_counter()
        for future in client.create_topics(new, request_timeout=60).values():
            future.result()
        seconds += time.perf_counter() - started if r else 0.0
    return topics * requests / seconds


def check(answers: list[bytes]) -> None:
    """Fail unless every topic in every response succeeded."""
    for answer in answers[:: max(1, len(answers) // 50)]:
        response = decode_response(CREATE, VERSION, answer)[1]
        for topic in response.topics:  # type: ignore[attr-defined]
            assert topic.error_code == 0, f"{topic.name}: {topic.error_code} {topic.error_message}"


Measured = dict[str, tuple[float, float]]
"""A value, and the server's core microseconds for each topic."""


def measure(address: str, few: bool) -> Measured:
    """All figures of one server; `few` sends fewer requests, for a slow server."""
    count = 110 if few else 3000
    (median, p99, rate), core_us = with_core_us(count, lambda: one_by_one(address, count, False))
    found = {"one ms": (median, core_us), "one p99 ms": (p99, core_us), "one rate": (rate, core_us)}
    count = 150 if few else 20_000
    found["pipelined"] = with_core_us(count, lambda: pipelined(address, count))
    requests = 12 if few else 40
    found["many"] = with_core_us(requests * 300, lambda: in_requests(address, requests, 300, False))
    found["librdkafka"] = with_core_us(requests * 300, lambda: by_librdkafka(address, requests, 300))
    found["many dry"] = with_core_us(60 * 300, lambda: in_requests(address, 60, 300, True))
    (median, _, _), core_us = with_core_us(3000, lambda: one_by_one(address, 3000, True))
    return {**found, "one dry ms": (median, core_us)}


def measure_ruled(address: str) -> Measured:
    """The figures of a server with RULES."""
    (median, _, _), core_us = with_core_us(3000, lambda: one_by_one(address, 3000, False))
    return {
        "ruled ms": (median, core_us),
        "ruled many": with_core_us(40 * 300, lambda: in_requests(address, 40, 300, False)),
    }


ROWS: tuple[tuple[str, str, str, str], ...] = (
    ("one ms", "one create after another, median", "ms", "under 1"),
    ("one p99 ms", "one create after another, 99 %", "ms", ""),
    ("one rate", "one create after another", "creates/s", "1,000"),
    ("pipelined", "creates pipelined on one connection", "creates/s", "5,000"),
    ("many", "300 topics in one request, created", "topics/s", "25,000"),
    ("librdkafka", "300 topics in one request by librdkafka, created", "topics/s", "over Kafka's"),
    ("many dry", "300 topics in one request, validate-only", "topics/s", "60,000"),
    ("one dry ms", "validate-only one by one, median", "ms", "0.3"),
    ("ruled ms", "one create after another with 50 rules, median", "ms", "a tenth more than without"),
    ("ruled many", "300 topics in one request with 50 rules, created", "topics/s", "nine tenths of those without"),
)


def run(with_kafka: bool = True) -> list[Figure]:
    """Measure Topicwright and, with `with_kafka`, a real Kafka."""
    with TemporaryDirectory(prefix="topicwright-bench-") as name:
        folder = Path(name)
        with topicwright(folder / "data") as ours:
            own = measure(ours.kafka, False)
        rules = folder / "rules.toml"
        rules.write_text(RULES)
        with topicwright(folder / "ruled", f"topic.rules.file={rules}") as ours:
            own |= measure_ruled(ours.kafka)
    theirs: Measured = {}
    if with_kafka:
        with kafka() as address:
            theirs = measure(address, True)
    figures = []
    for key, work, unit, reach in ROWS:
        (mine, core_us), (other, other_us) = own[key], theirs.get(key, (None, None))
        note = "" if other is None else f"{mine / other if unit != 'ms' else other / mine:.1f} times as fast"
        figures.append(Figure(work, unit, mine, other, reach, note, core_us, other_us))
    return figures


if __name__ == "__main__":
    command_line(run, __doc__)
