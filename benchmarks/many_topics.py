"""Many topics: restart time, memory with a million partitions, and listing under concurrent requests."""

import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.client import BenchClient, frame_of
from benchmarks.creates import CREATE, VERSION, check
from benchmarks.figures import Figure, command_line, percentile
from benchmarks.servers import Running, kafka, topicwright
from benchmarks.usage import cpu_seconds, with_core_us
from controller.kafka.codec.codec import decode_response
from controller.kafka.messages import ApiKey
from controller.kafka.messages.topics import CreatableTopic, CreateTopicsRequest, MetadataRequest, MetadataRequestTopic

PARTITIONS = 6
TOPICS_PER_REQUEST = 300
LISTED = 20_000
RESTARTED = 100_000
MILLION_PARTITIONS = 1_000_000 // PARTITIONS
METADATA_VERSION = 12


def fill(address: str, first: int, end: int, factor: int, topics_per_request: int = TOPICS_PER_REQUEST) -> float:
    """Create topics `first` to `end - 1` with six partitions each; returns topics a second."""
    client = BenchClient(address)
    frames = []
    for start in range(first, end, topics_per_request):
        topics = tuple(
            CreatableTopic(name=f"house.{n}", num_partitions=PARTITIONS, replication_factor=factor)
            for n in range(start, min(end, start + topics_per_request))
        )
        frames.append(frame_of(CREATE, VERSION, CreateTopicsRequest(topics=topics, timeout_ms=60_000)))
    started = time.perf_counter()
    answers, _ = client.timed(frames)
    elapsed = time.perf_counter() - started
    check(answers)
    client.close()
    return (end - first) / elapsed


def list_all(address: str) -> tuple[float, int]:
    """Request Metadata of all topics; returns the client's waiting time in seconds and the number of topics."""
    client = BenchClient(address)
    frame = frame_of(ApiKey.METADATA, METADATA_VERSION, MetadataRequest(topics=None, allow_auto_topic_creation=False))
    started = time.perf_counter()
    answer = client.exchange(frame)
    elapsed = time.perf_counter() - started
    client.close()
    return elapsed, len(decode_response(ApiKey.METADATA, METADATA_VERSION, answer)[1].topics)  # type: ignore[attr-defined]


def waits_during_listing(address: str, listings: int) -> list[float]:
    """Waiting times of another client for one topic's metadata, during repeated listings of all topics."""
    one = MetadataRequest(topics=(MetadataRequestTopic(name="house.1"),), allow_auto_topic_creation=False)
    frame = frame_of(ApiKey.METADATA, METADATA_VERSION, one)
    lister = threading.Thread(target=lambda: [list_all(address) for _ in range(listings)])
    client = BenchClient(address)
    client.exchange(frame)
    waits = []
    lister.start()
    while lister.is_alive():
        started = time.perf_counter()
        client.exchange(frame)
        waits.append(time.perf_counter() - started)
        time.sleep(0.001)
    lister.join()
    client.close()
    return waits


def answering(data: Path) -> tuple[float, float, float]:
    """Start on existing data and request one topic; returns seconds until the response, memory in MiB, and processor
    time in microseconds."""
    one = MetadataRequest(topics=(MetadataRequestTopic(name="house.1"),), allow_auto_topic_creation=False)
    started = time.perf_counter()
    with topicwright(data) as running:
        client = BenchClient(running.kafka)
        response = client.call(ApiKey.METADATA, METADATA_VERSION, one)
        elapsed = time.perf_counter() - started
        assert response.topics[0].error_code == 0, "the topic must be there after a restart"
        client.close()
        return elapsed, running.resident_mib(), cpu_seconds(running.process.pid) * 1e6


def kill(running: Running) -> None:
    """End the process like a power cut, but without loss of unsynced writes."""
    running.process.kill()


def run(with_kafka: bool = True, million: int = MILLION_PARTITIONS) -> list[Figure]:
    """Measure everything; in the real Kafka only the listing."""
    figures: list[Figure] = []
    with TemporaryDirectory(prefix="topicwright-bench-") as folder:
        data = Path(folder) / "data"
        with topicwright(data) as running:
            rate, core_us = with_core_us(LISTED, lambda: fill(running.kafka, 0, LISTED, 3))
            filling = "filling: 300 topics of 6 partitions a request"
            figures.append(Figure(filling, "topics/s", rate, core_us=core_us))
            figures += _listing(running.kafka, with_kafka)
            fill(running.kafka, LISTED, RESTARTED, 3)
            kill(running)
        seconds, _, core_us = answering(data)
        restart = "restart after kill -9, 100,000 topics of 6 partitions"
        figures.append(Figure(restart, "s", seconds, reach="2", core_us=core_us))
        with topicwright(data) as running:
            fill(running.kafka, RESTARTED, million, 3)
            list_all(running.kafka)
            filled = running.resident_mib()
        seconds, mib, core_us = answering(data)
        figures.append(Figure("1 million partitions, resident after filling and listing", "MiB", filled, reach="1,024"))
        figures.append(Figure("1 million partitions, resident after a restart", "MiB", mib))
        figures.append(Figure("restart with 1 million partitions", "s", seconds, core_us=core_us))
    return figures


def _listing(address: str, with_kafka: bool) -> list[Figure]:
    cold, count = list_all(address)
    assert count == LISTED, f"{count} of {LISTED} topics listed"
    warm, _ = list_all(address)
    waits = waits_during_listing(address, 10)
    kafka_cold = kafka_warm = None
    if with_kafka:
        with kafka() as theirs:
            fill(theirs, 0, LISTED, 1)
            time.sleep(5)
            kafka_cold, _ = list_all(theirs)
            kafka_warm, _ = list_all(theirs)
    return [
        Figure("listing 20,000 topics of 6 partitions, first time", "s", cold, kafka_cold, "0.3"),
        Figure("listing 20,000 topics of 6 partitions, again", "s", warm, kafka_warm, "0.3"),
        Figure("another client's longest wait meanwhile", "ms", max(waits) * 1000, reach="50"),
        Figure("another client's wait meanwhile, 99 %", "ms", percentile(waits, 0.99) * 1000),
    ]


if __name__ == "__main__":
    command_line(run, __doc__)
