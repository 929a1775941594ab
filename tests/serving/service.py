"""Runs `topicwright serve` as a process that tests kill, starve and stop, with clients that generate load."""

import json
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from controller.kafka.codec.codec import decode_response, encode_request
from controller.kafka.messages import ApiKey, Message
from controller.kafka.messages import topics as topics_messages
from controller.machine.state import DictTopics, State
from controller.store.store import TopicStore
from events.catalog import Recorded
from events.codec import decode_event
from events.logs.rocksdb_log import RocksDbLog
from tests.machine.audit.auditor import audit
from tests.machine.rig import fold, topics_of
from tests.support.processes import Process
from tests.support.tools import ROOT
from tests.support.topicwright import COMMAND
from tests.support.wire import ConnectionClosed, Wire

CREATE, DELETE, METADATA = ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.METADATA


class Serving:
    """A `topicwright serve` process on `data`."""

    def __init__(self, folder: Path, data: Path | None = None, *, settings: dict[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.data = data or folder / "data"
        argv: list[str | Path] = [COMMAND, "serve", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        argv += ["--data", self.data]
        for key, value in (settings or {}).items():
            argv += ["--set", f"{key}={value}"]
        self.process = Process(argv, cwd=folder, env={"PYTHONPATH": f"{folder}:{ROOT}"})
        ready = self.process.wait_for_line(r"^ready kafka=(\S+) http=(\S+)$", within_s=240)
        self.kafka, self.http = ready[1], ready[2]

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        """Returns status and JSON of a GET."""
        return self._fetch(urllib.request.Request(f"http://{self.http}{path}"))

    def post(self, path: str, body: object = None, method: str = "POST") -> tuple[int, dict[str, Any]]:
        """Returns status and JSON of a POST or PUT."""
        content = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        return self._fetch(urllib.request.Request(f"http://{self.http}{path}", content, headers, method=method))

    def _fetch(self, request: urllib.request.Request) -> tuple[int, dict[str, Any]]:
        try:
            with urllib.request.urlopen(request, timeout=240) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def topics(self) -> dict[str, bytes]:
        """Returns the id of each topic in Metadata, by name."""
        with Talk(self.kafka) as talk:
            answer = talk.call(METADATA, 12, topics_messages.MetadataRequest(topics=None))
        assert isinstance(answer, topics_messages.MetadataResponse)
        return {topic.name: topic.topic_id for topic in answer.topics if topic.name is not None}


@contextmanager
def serving(folder: Path, data: Path | None = None, *, settings: dict[str, str] | None = None) -> Iterator[Serving]:
    """Serve until the end of the block, and end the process."""
    server = Serving(folder, data, settings=settings)
    try:
        yield server
    except BaseException as error:
        code = server.process.popen.poll()
        error.add_note(
            f"the server {'runs' if code is None else f'ended with {code}'}:\n{server.process.output[-3000:]}"
        )
        raise
    finally:
        server.process.stop()


def wait_until(what: Callable[[], bool], within_s: float = 240) -> None:
    deadline = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < deadline, f"condition not reached within {within_s} s"
        time.sleep(0.05)


class Talk(Wire):
    """A connection that encodes with the product's own messages, which are fast."""

    def send_request(self, api: ApiKey, version: int, number: int, request: Message) -> None:
        """Send a request with this correlation id."""
        self._socket.sendall(encode_request(api, version, number, "load", request))

    def read_response(self, api: ApiKey, version: int) -> tuple[int, Message]:
        """Returns the correlation id and the next response."""
        return decode_response(api, version, self.receive_frame())

    def call(self, api: ApiKey, version: int, request: Message) -> Message:  # type: ignore[override]
        """Send a request, and return its response."""
        self.send_request(api, version, 1, request)
        return self.read_response(api, version)[1]


def create(*names: str, timeout_ms: int = 30_000) -> topics_messages.CreateTopicsRequest:
    """A request for topics of three partitions with two replicas."""
    topics = tuple(topics_messages.CreatableTopic(name=name, num_partitions=3, replication_factor=2) for name in names)
    return topics_messages.CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms)


def codes(answer: Message) -> list[int]:
    """Returns the error codes of a CreateTopics response."""
    assert isinstance(answer, topics_messages.CreateTopicsResponse)
    return [topic.error_code for topic in answer.topics]


class Load(threading.Thread):
    """A client that pipelines creates, and sometimes deletes its topics, until it is disconnected.

    `there` holds the topics that exist according to its answers, by name; `maybe` those with an unanswered delete.
    `answers` counts creates by error code.
    """

    WINDOW = 16

    def __init__(self, address: str, name: str, count: int = 1 << 30) -> None:
        super().__init__(name=name, daemon=True)
        self.there: dict[str, bytes] = {}
        self.maybe: set[str] = set()
        self.answers: Counter[int] = Counter()
        self.error: BaseException | None = None
        self._talk = Talk(address)
        self._count = count
        self._sent: dict[int, tuple[ApiKey, str]] = {}

    def run(self) -> None:
        try:
            for number in range(self._count + self.WINDOW):
                if number < self._count:
                    self._send(number)
                if number >= self.WINDOW:
                    self._listen()
        except (ConnectionClosed, ConnectionError):
            return  # disconnected, as some tests require
        except BaseException as error:
            self.error = error
        finally:
            self._talk.close()

    def _send(self, number: int) -> None:
        known = next(iter(self.there), None)
        if number % 3 == 2 and known is not None:
            self.maybe.add(known)
            del self.there[known]
            self._sent[number] = (DELETE, known)
            state = topics_messages.DeleteTopicState(name=known)
            self._talk.send_request(
                DELETE, 6, number, topics_messages.DeleteTopicsRequest(topics=(state,), timeout_ms=1000)
            )
        else:
            name = f"{self.name}-{number}"
            self._sent[number] = (CREATE, name)
            self._talk.send_request(CREATE, 7, number, create(name))

    def _listen(self) -> None:
        frame = self._talk.receive_frame()
        number = int.from_bytes(frame[:4], "big")
        api, name = self._sent.pop(number)
        answer = decode_response(api, 7 if api == CREATE else 6, frame)[1]
        if isinstance(answer, topics_messages.CreateTopicsResponse):
            [topic] = answer.topics
            self.answers[topic.error_code] += 1
            if topic.error_code == 0:
                self.there[name] = topic.topic_id
        elif isinstance(answer, topics_messages.DeleteTopicsResponse) and answer.responses[0].error_code == 0:
            self.maybe.discard(name)

    def done(self) -> None:
        """Wait until the client has sent all requests, or is disconnected."""
        self.join(60)
        assert not self.is_alive(), "the client was neither answered nor disconnected"
        if self.error is not None:
            raise self.error


def loads_on(server: Serving, name: str, clients: int, count: int = 1 << 30) -> list[Load]:
    """Start clients with different topic names."""
    loads = [Load(server.kafka, f"{name}-{number}", count) for number in range(clients)]
    for load in loads:
        load.start()
    return loads


def check_there(topics: dict[str, bytes], loads: list[Load]) -> int:
    """Every topic that a client was answered NONE for exists; returns their number."""
    promised = {name: topic_id for load in loads for name, topic_id in load.there.items()}
    lost = {name for name, topic_id in promised.items() if topics.get(name) != topic_id}
    assert not lost, f"answered NONE, but missing: {sorted(lost)[:10]} and {len(lost)} in all"
    return len(promised)


def check_log(data: Path) -> list[Recorded]:
    """The log of an ended process passes the audit, and its state equals the fold. Returns the events."""
    log = RocksDbLog(data, cluster_id=None, new_cluster_id=lambda: "none")
    try:
        records = [decode_event(offset, value) for offset, value in log.read()]
        store = TopicStore(log)
        folded = fold(records, State(DictTopics()))
        assert [*store.durable_from(None)] == topics_of(folded), "the stored topics equal the fold"
        assert store.durable_cluster == folded.cluster
        assert list(store.state().waiting) == list(folded.waiting)
        assert store.durable_counts.topics == len(topics_of(folded))
    finally:
        log.close()
    violations = audit(records)
    assert not violations, "violations:\n" + "\n".join(violations[:10])
    return records
