"""Gateway processes with workers over a real Kafka, as their clients see them, also when a gateway is killed."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

import pytest

from tests.http.pages.story import Read
from tests.stream.requests import create, get, until
from tests.support.ports import free_ports
from tests.support.processes import Process
from tests.support.reference_kafka import ReferenceKafka
from tests.support.stream import Stream, stream
from tests.support.topicwright import COMMAND, Topicwright, command, fetch
from tests.support.wire import ConnectionClosed, Wire

NOT_CONTROLLER = 41


@pytest.fixture(scope="module")
def running(kafka44: ReferenceKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stream]:
    """A worker and two gateways. A gateway drops another from Metadata after 8 s without a heartbeat."""
    settings = {"num.partitions": "2"}
    with stream(tmp_path_factory.mktemp("gateways") / "s", kafka44.bootstrap, "gateways", settings, gateways=0) as one:
        for _ in range(2):
            one.start_gateway({"gateway.session.timeout.ms": "8000", "gateway.heartbeat.interval.ms": "200"})
        yield one


def described(address: str, name: str) -> int:
    """Returns the topic's error code in Metadata."""
    with Wire(address) as wire:
        body = wire.call("Metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=False)
    code: int = body["topics"][0]["error_code"]
    return code


def nodes(address: str) -> set[str]:
    with Wire(address) as wire:
        body = wire.call("Metadata", 12, topics=[])
    controller = {each["node_id"]: f"{each['host']}:{each['port']}" for each in body["brokers"]}[body["controller_id"]]
    assert controller == address, "a gateway names itself as controller"
    return {f"{each['host']}:{each['port']}" for each in body["brokers"]}


def page(gateway: Topicwright, path: str, fields: Mapping[str, str] | None = None) -> Read:
    """Returns a page or, with `fields`, the page that a form leads to."""
    body = None if fields is None else urlencode(fields).encode()
    request = urllib.request.Request(
        f"http://{gateway.http}{path}", body, {"accept": "text/html", "origin": f"http://{gateway.http}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return Read(answer.read().decode())
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{path}: {error.code} {Read(error.read().decode()).text}") from None


def test_pages_cover_the_logs_of_all_partitions(running: Stream) -> None:
    gateway = running.gateways[0]
    until("the gateway is ready", lambda: fetch(gateway.http, "/health/ready")[0] == 200)
    for name in ("paged.a", "paged.b", "paged.c", "paged.d"):
        assert name in page(gateway, "/topics", {"name": name, "do": "create"}).text
    topic = get(gateway, "/v1/topics/paged.a")
    request, at = topic["created_by"]["request_id"], topic["created_at"]
    mine = "/topics?name=paged.*"  # topics of other tests may fill the first page
    paths = ["/", mine, "/topics/paged.a", "/requests", f"/requests/{request}", "/brokers"]
    paths += ["/brokers/1", "/events", "/events?topic=paged.a", "/explain/paged.a", "/policies", f"/diff?from={at}"]
    paths += [f"{path}{'&' if '?' in path else '?'}at={at}" for path in ("/", mine, "/topics/paged.a", "/events")]
    links: set[str] = set()
    for path in paths:
        found = page(gateway, path)
        assert "paged." in found.text or path.startswith(("/brokers", "/policies")), f"{path}: {found.text}"
        found_here = (urljoin(path, link) for link in found.links)
        links |= {link for link in found_here if "paged.a" in link or request in link or "/log/" in link}
    assert {f"/v1/log/head?partition={number}" for number in range(4)} <= links
    for link in sorted(links):
        if parse_qs(urlsplit(link).query).get("at", [at])[0] >= at:  # links to an earlier time may precede the topic
            page(gateway, link.partition("#")[0])


def test_gateway_http_responses_equal_those_of_the_embedded_controller(running: Stream) -> None:
    one, other = running.gateways[:2]
    status, body = fetch(one.http, "/v1/topics", {"name": "over.http", "num_partitions": 3})
    made = json.loads(body)
    assert status == 201, body
    until("the other gateway follows", lambda: described(other.kafka, "over.http") == 0)
    until("the topic is ready", lambda: get(other, "/v1/topics/over.http")["status"] == "ready")
    for gateway in (one, other):
        assert get(gateway, "/health/ready") == {"status": "ready", "reason": ""}
        topic = get(gateway, "/v1/topics/over.http")
        assert (topic["topic_id"], topic["num_partitions"], topic["status"]) == (made["topic_id"], 3, "ready")
        partition = topic["as_of"]["partition"]
        found = get(gateway, f"/v1/requests/{made['request_id']}")
        assert [(each["topic"], each["status"]) for each in found["topics"]] == [("over.http", "created")]
        events = get(gateway, "/v1/events?topic=over.http")["events"]
        assert events[0]["type"] == "CreateRequested"
        assert {event["partition"] for event in events} == {partition}
        page = get(gateway, f"/v1/events?partition={partition}&from={events[0]['offset']}&limit=1")
        assert page["events"] == events[:1]
        assert get(gateway, "/v1/explain/over.http")["summary"].startswith("Topic over.http: ready, 3 partitions")
        assert [each["broker_id"] for each in get(gateway, "/v1/brokers")["brokers"]] == [1, 2, 3]
        message = get(gateway, "/v1/events?from=3", 400)["message"]
        assert message.startswith("from: each partition has offsets of its own")
        assert get(gateway, "/v1/topics?at=3", 400)["message"].startswith("at: '3' is an offset, and each of the 4")


def test_events_of_all_partitions_are_paged_by_time(running: Stream) -> None:
    create(running.gateways[0].kafka, *(f"paged-{number}" for number in range(10)))
    found, path = [], "/v1/events?limit=37"
    while path:
        page = get(running.gateways[0], path)
        found += page["events"]
        path = f"/v1/events?limit=37&cursor={page['next_cursor']}" if "next_cursor" in page else ""
    assert (
        len({(event["partition"], event["offset"]) for event in found})
        == len(found)
        >= get(running.gateways[0], "/v1/events?limit=1")["end"]
    )
    times = [event["at_ms"] for event in found]
    assert times == sorted(times)


def test_the_query_commands_read_from_a_gateway(running: Stream) -> None:
    gateway = running.gateways[0]
    create(gateway.kafka, "for.commands")
    listed = command("topics", "--http", gateway.http)
    assert listed.returncode == 0, listed.stderr
    assert "for.commands" in listed.stdout
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 1))
    assert "for.commands" in command("topics", "--http", gateway.http, "--at", at).stdout
    shown = command("topics", "for.commands", "--http", gateway.http)
    assert shown.stdout.startswith("for.commands"), shown.stderr
    events = command("events", "--http", gateway.http, "--json")
    assert events.returncode == 0, events.stderr
    read = [json.loads(line) for line in events.stdout.splitlines()]
    assert len(read) >= get(gateway, "/v1/events?limit=1")["end"] - 50
    one = command("events", "--http", gateway.http, "--topic", "for.commands", "--json").stdout.splitlines()
    assert json.loads(one[0])["type"] == "CreateRequested"
    assert "for.commands" in command("explain", "for.commands", "--http", gateway.http).stdout


def test_a_killed_gateway_is_removed_from_metadata_and_returns(running: Stream) -> None:
    doomed = running.start_gateway(folder="doomed")
    one = running.gateways[0]
    until("all three are listed", lambda: len(nodes(one.kafka)) == 3)
    until("a topic is created there", lambda: created(doomed.kafka, "before-the-kill"))
    doomed.process.kill()
    until("the killed gateway is removed", lambda: doomed.kafka not in nodes(one.kafka))
    assert create(one.kafka, "after-the-kill") == {"after-the-kill": 0}
    again = running.start_gateway(folder="doomed")
    assert described(again.kafka, "after-the-kill") == 0, "it resumes at the end of its cache"
    until("it is listed again", lambda: again.kafka in nodes(one.kafka))
    again.process.stop()
    until("a stopped gateway is removed", lambda: again.kafka not in nodes(one.kafka))
    listed = command("topics", "--data", again.data, "--json")
    assert listed.returncode == 0, listed.stderr
    assert "before-the-kill" in {topic["name"] for topic in json.loads(listed.stdout)["topics"]}
    events = command("events", "--data", again.data, "--topic", "after-the-kill", "--json")
    assert json.loads(events.stdout.splitlines()[0])["type"] == "CreateRequested"
    assert "after-the-kill" in command("explain", "after-the-kill", "--data", again.data).stdout


def test_invalid_gateway_settings_end_the_start(running: Stream, tmp_path: Path) -> None:
    common = [f"--set={key}={value}" for key, value in running.common.items()]
    data, http = ("--data", tmp_path / "d"), running.gateways[0].http
    rows: list[tuple[tuple[str | Path, ...], str]] = [
        (
            ("--data", running.gateways[0].data, "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"),
            "choose another with --data",
        ),
        ((*data, *common, "--set=stream.partitions=5"), "gateways.commands has 4 partitions, and stream.partitions=5"),
        (
            (*data, "--set=num.partitions=3"),
            "--set num.partitions: decisions depend on it, so give it to `topicwright worker`",
        ),
        (
            (*data, "--kafka", "127.0.0.1:0", "--http", http, *common),
            f"cannot listen on {http} (--http): the address is in use",
        ),
    ]
    for words, says in rows:
        done = command("gateway", "--bootstrap", running.kafka, *words)
        assert done.returncode == 2, done
        assert says in done.stderr


@pytest.mark.parametrize("words", [("gateway", "--kafka", "127.0.0.1:0"), ("worker", "--set", "log.level=info")])
def test_a_gateway_or_worker_that_waits_for_kafka_stops_on_sigterm(tmp_path: Path, words: tuple[str, ...]) -> None:
    (port,) = free_ports(1)
    argv: list[str | Path] = [COMMAND, *words, "--bootstrap", f"127.0.0.1:{port}", "--data", tmp_path / "d"]
    with Process([*argv, "--http", "127.0.0.1:0"], cwd=tmp_path) as process:
        process.wait_for_line("waiting for Kafka", within_s=60)
        assert process.popen.poll() is None
        assert process.stop(within_s=120) == 0


def created(address: str, name: str) -> bool:
    try:
        return create(address, name, timeout_ms=5000)[name] in {0, 36}
    except ConnectionClosed:
        return False


def test_rules_are_applied_backtested_and_decided_again_by_a_gateway(running: Stream, tmp_path: Path) -> None:
    """Over the requests of all partitions, each by the rules that its partition recorded before it."""
    gateway = running.gateways[0]
    until("the gateway is ready", lambda: fetch(gateway.http, "/health/ready")[0] == 200)
    (file := tmp_path / "rules.toml").write_text('[[rule]]\nname = "tried"\ntopics = "tried.*"\npartitions = 2\n')
    names = [f"tried.{number}" for number in range(8)]
    for name in names:
        assert fetch(gateway.http, "/v1/topics", {"name": name, "num_partitions": 3})[0] == 201
    found = command("rules", "backtest", file, "--json", "--http", gateway.http)
    assert found.returncode == 1, found.stderr
    view = json.loads(found.stdout)
    listed = [each for group in view["groups"] for each in group["requests"]]
    assert view["summary"].startswith("would have rejected 8 requests of 1 principal")
    assert sorted(each["topic"] for each in listed) == names
    assert len({each["partition"] for each in listed}) > 1
    assert command("rules", "apply", file, "--http", gateway.http).returncode == 0
    codes = [fetch(gateway.http, "/v1/topics", {"name": f"{name}.b", "num_partitions": 3})[0] for name in names]
    assert codes == [403] * len(names)
    assert command("rules", "remove", "--http", gateway.http).returncode == 0
    again = command("rules", "redecide", "--http", running.gateways[1].http)
    assert (again.returncode, again.stdout[-14:]) == (0, ": 0 otherwise\n"), again
