"""Prometheus metrics: reported values are exposed, and gauges are read from the state."""

import asyncio
import platform
import re
import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

from controller.http.metrics import Metrics
from controller.release import RELEASE
from controller.store.topic_indexes import Health
from tests.http.service import Service, service

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def _samples(text: str) -> Samples:
    return {
        (sample.name.removeprefix("topicwright_"), tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


# calls | sample and value
COUNTED = """
committed(3, 9, 0.002); committed(500, 1500, 0.02) | commit_seconds_count = 2
committed(3, 9, 0.002); committed(500, 1500, 0.02) | commit_seconds_sum = 0.022
committed(3, 9, 0.002); committed(500, 1500, 0.02) | commit_seconds_bucket le=0.0025 = 1
committed(3, 9, 0.002); committed(500, 1500, 0.02) | commit_commands_bucket le=5.0 = 1
committed(3, 9, 0.002); committed(500, 1500, 0.02) | commit_commands_bucket le=500.0 = 2
committed(3, 9, 0.002); committed(500, 1500, 0.02) | commit_events_sum = 1509
answered("HTTP", 0, 3); answered("HTTP", 0, 400)   | answers_total api=HTTP error=NONE = 2
answered("HTTP", 36, 0); answered("Metadata", 36, 0) | answers_total api=HTTP error=TOPIC_ALREADY_EXISTS = 1
answered("HTTP", 1234, 0)                          | answers_total api=HTTP error=ERROR_1234 = 1
answered("HTTP", 0, 3); answered("HTTP", 7, 400)   | answer_wait_seconds_bucket api=HTTP le=0.005 = 1
answered("HTTP", 0, 3); answered("HTTP", 7, 400)   | answer_wait_seconds_sum api=HTTP = 0.403
request("Metadata", 7, "ok", 0.001); request("Metadata", 5, "ok", 1) \
                                                   | request_seconds_sum api=Metadata outcome=ok version=5 = 1
policy_judged("my.Policy", "refused", 0.3)         | policy_seconds_bucket le=0.5 outcome=refused policy=my.Policy = 1
policy_judged("my.Policy", "refused", 0.3)         | policy_seconds_bucket le=0.25 outcome=refused policy=my.Policy = 0
command_failed("DeleteTopic")                      | commands_failed_total command=DeleteTopic = 1
rules_failed(2); rules_failed(1)                   | rules_failed_total = 3
clock_jumped()                                     | clock_jumps_total = 1
loop_blocked("a", 0.3); loop_blocked("a", 0.2); loop_blocked("b", 0.5) | loop_blocked_seconds_max cause=a = 0.3
"""


@pytest.mark.parametrize("line", COUNTED.strip().splitlines())
def test_reports_become_samples(line: str) -> None:
    metrics = Metrics()
    calls, expected = line.split(" | ")
    for call in calls.split(";"):
        eval(f"metrics.{call.strip()}", {"metrics": metrics})
    (name, *labels), value = expected.rpartition(" = ")[0].split(), expected.rpartition(" = ")[2]
    pairs = tuple((label.partition("=")[0], label.partition("=")[2]) for label in labels)
    assert _samples(metrics.render().decode())[name, pairs] == pytest.approx(float(value))


async def test_gauges_and_counters_of_a_service(judged: Service) -> None:
    await judged.create("pay.t", num_partitions=3)
    await judged.create("t", 403)
    await judged.get("/v1/topics/nope", 404)
    await judged.request("PUT", "/v1/simulated/brokers/3/delay", json={"delay_ms": 60_000})
    await judged.create("pay.u", 202, num_partitions=2, timeout_ms=0)
    await judged.request("POST", "/v1/simulated/brokers/2/stop")
    await judged.live(1, 3)
    before = judged.log.durable_offset
    answer = await judged.client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples = _samples(answer.text)
    assert before <= samples["log_offset", ()] <= judged.log.durable_offset
    assert (samples["topics", ()], samples["partitions", ()], samples["topics_pending", ()]) == (2, 5, 1)
    assert (samples["brokers_registered", ()], samples["brokers_live", ()], samples["ready", ()]) == (3, 2, 1)
    assert samples["requests_in_flight", ()] == 0
    assert samples["commit_seconds_count", ()] > 0
    errors = {dict(labels)["error"]: count for (name, labels), count in samples.items() if name == "answers_total"}
    assert errors == {"NONE": 1, "POLICY_VIOLATION": 1, "REQUEST_TIMED_OUT": 1}
    routes = {
        (labels["method"], labels["route"], labels["status"]): count
        for (name, pairs), count in samples.items()
        if name == "http_request_seconds_count" and (labels := dict(pairs))
    }
    assert routes["POST", "/v1/topics", "201"] == 1
    assert routes["POST", "/v1/topics", "403"] == 1
    assert routes["GET", "/v1/topics/{name}", "404"] == 1, "routes are patterns: topic names create no time series"


async def test_under_replicated_and_offline_partitions_and_placeholders_are_gauges() -> None:
    async with service(settings={"enable.under.replicated.topic.creation": "true"}) as one:
        await one.create("pay.t", num_partitions=2, replication_factor=4)
        await one.create("pay.u", num_partitions=1)
        await one.create("pay.v", assignments=[[2]])
        await one.request("POST", "/v1/simulated/brokers/2/stop")
        await one.live(1, 3)
        await one.until(lambda: one.api.store.durable_tallies.health == Health(3, 1, 2))
        samples = _samples((await one.client.get("/metrics")).text)
        names = ("partitions_under_replicated", "partitions_offline", "placeholders")
        assert [samples[name, ()] for name in names] == [3, 1, 2]


async def test_metrics_contain_build_info_and_process_resources() -> None:
    async with service() as one:
        text = (await one.client.get("/metrics")).text
    samples = _samples(text)
    build = [dict(labels) for name, labels in samples if name == "build_info"]
    assert build == [{"release": RELEASE, "python": platform.python_version()}]
    assert samples["process_resident_memory_bytes", ()] > 10 * 2**20
    assert 3 < samples["process_open_fds", ()] <= samples["process_max_fds", ()]
    assert samples["process_cpu_seconds_total", ()] > 0


async def test_clients_cannot_create_metric_labels(one: Service) -> None:
    await one.get("/v1/topics")
    before = len((await one.client.get("/metrics")).content)
    for number in range(50):
        await one.client.request(f"MADEUP{number}", "/v1/topics")
        await one.client.request("GET", f"/made/up/{number}")
        await one.client.request(f"MADEUP{number}", f"/made/up/{number}", headers={"Host": f"made.up{number}"})
    text = (await one.client.get("/metrics")).text
    assert not re.search("made.?up", text, re.IGNORECASE)
    labels = {sample[1] for sample in _samples(text) if sample[0] == "http_request_seconds_count"}
    assert {pair for each in labels for pair in each} >= {("method", "other"), ("route", "other")}
    assert len(labels) < 10
    assert len(text) < 10 * before


async def test_scrapes_share_one_rendering(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    render = Metrics.render

    def watched(self: Metrics) -> bytes:
        threads.append(threading.current_thread())
        return render(self)

    monkeypatch.setattr(Metrics, "render", watched)
    metrics = Metrics()
    metrics.watch(lambda: [("here", "Whether it is read on the loop.", threading.current_thread() is loop_thread)])
    loop_thread = threading.current_thread()
    texts = await asyncio.gather(*(metrics.rendered() for _ in range(20)))
    assert _samples(texts[0].decode())["here", ()] == 1
    assert [each is loop_thread for each in threads] == [False]
    metrics.committed(1, 1, 0.1)
    assert _samples((await metrics.rendered()).decode())["commit_seconds_count", ()] == 1, "later calls render again"
