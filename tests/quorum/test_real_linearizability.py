"""Clients create, delete and describe one topic while leaders of three Topicwright voters are killed. The answers must
be linearizable. Other clients create and grow topics while rules are applied; decisions must match the rules before
them. Creates need a live broker: here one that only sends heartbeats.

`python -m tests.quorum.test_real_linearizability KILLS` runs it for longer.
"""

import itertools
import json
import math
import random
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from msgspec.structs import replace

from controller.kafka.messages import ApiKey
from controller.kafka.messages.cluster import BrokerHeartbeatRequest, BrokerRegistrationRequest, Feature, Listener
from controller.machine.errors import ErrorCode
from events.catalog import RulesApplied
from events.codec import decode_event
from tests.brokers.kraft.guarded import call_over
from tests.reference.cases import topic
from tests.support.linearizability import ABSENT, PRESENT, Operation, unexplained
from tests.support.partition_limits import apply_limit, wrong_verdicts
from tests.support.ports import free_ports
from tests.support.processes import Node, Process
from tests.support.quorum_logs import assert_one_history, events_at
from tests.support.real_brokers import until
from tests.support.topicwright import COMMAND, command
from tests.support.wire import Wire

TOPIC: Final = "orders"
CONFIG: Final = "retention.ms"
"""Its value is the topic's id in `Operation`, because the client knows it even without an answer."""
CLUSTER: Final = "MkU3OEVBNTcwNTJENDM2Qg"
CLIENTS: Final = 3
REPLY_S: Final = 5.0
RULES: Final = 10
"""Versions of the rules."""


class Voter(Node):
    """A voter with its own ports and folder. The first one starts alone, and the others join it."""

    def __init__(self, node_id: int, folder: Path, kafka_port: int, http_port: int, first: str | None) -> None:
        self.kafka, self.http = f"127.0.0.1:{kafka_port}", f"127.0.0.1:{http_port}"
        self._argv: list[str | Path] = [COMMAND, "serve", "--brokers", "kraft", "--kafka", self.kafka]
        if first is not None:
            self._argv = [COMMAND, "join", "--bootstrap-controller", first, "--listen", self.kafka]
        self._argv += ["--http", self.http, "--data", folder / str(node_id), "--set", f"node.id={node_id}"]
        self._argv += ["--set", "controller.quorum.fetch.timeout.ms=1000"]
        if first is None:
            self._argv += ["--set", f"cluster.id={CLUSTER}", "--set", "kraft.version=1"]
        self._folder = folder
        self.process: Process | None = None

    def start(self, ending: ExitStack, *, wait: bool = True) -> None:
        """Start the voter; `ending` stops it at the latest. With `wait`, returns when it is ready."""
        self.process = ending.enter_context(Process(self._argv, cwd=self._folder))
        if wait:
            self.process.wait_for_line("^ready ", within_s=240)


class Quorum:
    """Three voters, and the history of the clients' requests."""

    def __init__(self, voters: list[Voter]) -> None:
        self.voters = voters
        self.history: list[Operation] = []
        self.codes: Counter[int] = Counter()
        """Error codes of the answers to `limited`."""
        self.is_over = threading.Event()
        self._numbers = itertools.count(1_000_000)

    def described_leader(self) -> Voter | None:
        """The voter that reports to be the leader of all three, or None."""
        for each in self.voters:
            with suppress(OSError), urllib.request.urlopen(f"http://{each.http}/v1/quorum", timeout=REPLY_S) as answer:
                shown = json.load(answer)
                if shown["role"] == "leader" and len(shown["voters"]) == len(self.voters):
                    return each
        return None

    def wait_for_leader(self) -> Voter:
        leader = until(self.described_leader, 240, "one of three voters leads")
        assert leader is not None
        return leader

    def run(self, turn: Callable[[Voter, Wire], bool], pause_s: float) -> None:
        """Call `turn` with the leader repeatedly; after a failure, find the leader again."""
        while not self.is_over.wait(pause_s):
            leader = self.described_leader()
            if leader is not None:
                with suppress(OSError), Wire(leader.kafka, timeout_s=REPLY_S) as wire:
                    while turn(leader, wire) and not self.is_over.wait(pause_s):
                        pass

    # --- requests

    def client(self, leader: Voter, wire: Wire) -> bool:
        return random.choice((self._create, self._delete, self._describe))(leader, wire)

    def _create(self, leader: Voter, wire: Wire) -> bool:
        """Create the topic, with a config value that no other create has."""
        topic_id = str(next(self._numbers))
        wanted = topic(TOPIC, retention_ms=topic_id)
        request = Operation("create", time.monotonic(), math.inf, ABSENT, topic_id)
        unchanged = ErrorCode.TOPIC_ALREADY_EXISTS, PRESENT
        return self._change(request, unchanged, wire, "CreateTopics", 7, topics=[wanted], validate_only=False)

    def _delete(self, leader: Voter, wire: Wire) -> bool:
        request = Operation("delete", time.monotonic(), math.inf, PRESENT, ABSENT)
        unchanged = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ABSENT
        return self._change(request, unchanged, wire, "DeleteTopics", 5, topic_names=[TOPIC])

    def _change(
        self, request: Operation, unchanged: tuple[int, str], wire: Wire, api: str, version: int, **body: Any
    ) -> bool:
        """Record a change, or the error code that means no change. After other errors, such as NOT_CONTROLLER and
        REQUEST_TIMED_OUT, the leader may have decided the request."""
        code = ErrorCode.REQUEST_TIMED_OUT
        try:
            answer = wire.call(api, version, timeout_ms=2000, **body)
            code = answer["topics" if api == "CreateTopics" else "responses"][0]["error_code"]
        finally:
            if not code:
                request = replace(request, ended=time.monotonic())
            elif code == unchanged[0]:
                request = replace(request, ended=time.monotonic(), before=unchanged[1], after=None)
            self.history.append(request)
        return request.ended < math.inf

    def _describe(self, leader: Voter, wire: Wire) -> bool:
        """Read the topic over HTTP. The answer counts only if a later commit shows that the voter still leads."""
        began = time.monotonic()
        try:
            with urllib.request.urlopen(f"http://{leader.http}/v1/topics/{TOPIC}", timeout=REPLY_S) as answer:
                topic = json.load(answer)["configs"][CONFIG]
        except urllib.error.HTTPError as error:
            if error.code != 404:
                return False
            topic = ABSENT
        ended = time.monotonic()
        code = wire.call("DeleteTopics", 5, topic_names=["missing"], timeout_ms=2000)["responses"][0]["error_code"]
        if code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        self.history.append(Operation("describe", began, ended, topic))
        return True

    def limited(self, leader: Voter, wire: Wire) -> bool:
        """Create a topic and add partitions to it; rules may refuse either."""
        name, most = f"limited-{next(self._numbers)}", random.randint(1, 5)
        topic = {"name": name, "num_partitions": most, "replication_factor": 1, "assignments": [], "configs": []}
        created = wire.call("CreateTopics", 7, topics=[topic], validate_only=False, timeout_ms=2000)["topics"]
        more = [{"name": name, "count": most + 1, "assignments": None}]
        grown = wire.call("CreatePartitions", 3, topics=more, validate_only=False, timeout_ms=2000)["results"]
        codes = [each["error_code"] for each in (*created, *grown)]
        self.codes.update(codes)
        return ErrorCode.NOT_CONTROLLER not in codes

    # --- the broker

    def broker(self, leader: Voter, wire: Wire) -> bool:
        """Send a heartbeat of a broker that is always caught up; register it if it is unknown."""
        beat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=self._broker_epoch, current_metadata_offset=1 << 40)
        response = call_over(wire, ApiKey.BROKER_HEARTBEAT, 1, beat)
        if response.error_code not in (ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.STALE_BROKER_EPOCH):
            return not response.error_code
        request = BrokerRegistrationRequest(
            broker_id=1,
            cluster_id=CLUSTER,
            incarnation_id=b"1" * 16,
            listeners=(Listener(name="SSL", host="127.0.0.1", port=9),),
            features=(Feature(name="metadata.version", min_supported_version=1, max_supported_version=19),),
            log_dirs=(b"d" * 16,),
        )
        response = call_over(wire, ApiKey.BROKER_REGISTRATION, 4, request)
        self._broker_epoch = response.broker_epoch
        return not response.error_code

    _broker_epoch = 0


Client = Callable[[Quorum], Callable[[Voter, Wire], bool]]


@contextmanager
def quorum_under_load(folder: Path, client: Client) -> Iterator[tuple[Quorum, ExitStack]]:
    """Three voters, of which one leads, a broker, and clients until the end of the block."""
    with ExitStack() as ending:
        voters: list[Voter] = []
        ports = list(free_ports(6))
        for node_id in (1, 2, 3):
            first = voters[0].kafka if voters else None
            voters.append(Voter(node_id, folder, ports.pop(), ports.pop(), first))
            voters[-1].start(ending)
        quorum = Quorum(voters)
        quorum.wait_for_leader()
        turns = [(quorum.broker, 0.1), *[(client(quorum), 0.02)] * CLIENTS]
        threads = [threading.Thread(target=quorum.run, args=each) for each in turns]
        for each in threads:
            each.start()
        try:
            yield quorum, ending
        finally:
            quorum.is_over.set()
            for each in threads:
                each.join(60)


def history_of(folder: Path, kills: int) -> list[Operation]:
    """Kill leaders and return the clients' operations."""
    with quorum_under_load(folder, lambda quorum: quorum.client) as (quorum, ending):
        for _ in range(kills):
            _answers(quorum, 20)
            leader = quorum.wait_for_leader()
            leader.kill()
            _answers(quorum, 20)
            leader.start(ending)
        _answers(quorum, 20)
    return quorum.history


def _answers(quorum: Quorum, more: int) -> None:
    """Wait for `more` answers, with one for each kind of request at least."""
    begun = len(quorum.history)

    def enough() -> bool:
        answered = [each for each in quorum.history[begun:] if each.ended < math.inf]
        return len(answered) >= more and len({each.request for each in answered}) == 3

    until(enough, 240, f"{more} answers")


def test_responses_across_failovers_are_linearizable(tmp_path: Path) -> None:
    history = history_of(tmp_path, kills=2)
    assert unexplained(history) == []
    describes = sorted((each for each in history if each.request == "describe"), key=lambda each: each.began)
    first = next(each.before for each in describes if each.before != ABSENT)
    stale = replace(describes[-1], before=first)
    assert stale != describes[-1]
    assert unexplained([stale if each is describes[-1] else each for each in history]), "a stale describe at the end"


def test_decisions_match_the_recorded_rules_across_failovers(tmp_path: Path) -> None:
    with quorum_under_load(tmp_path, lambda quorum: quorum.limited) as (quorum, ending):
        for version in range(1, RULES + 1):
            leader, limit = quorum.wait_for_leader(), 1 + version % 4

            def applied(limit: int = limit) -> int | None:
                with suppress(OSError):
                    return apply_limit(quorum.wait_for_leader().http, limit)
                return None

            with ThreadPoolExecutor() as threads:
                threads.submit(apply_limit, leader.http, limit)  # the killed leader may have recorded it or not
                time.sleep(random.uniform(0, 0.02))
                leader.kill()
            assert until(applied, 240, "rules are applied, or found applied") == version
            quorum.codes.clear()
            until(lambda: quorum.codes[0] and quorum.codes[ErrorCode.POLICY_VIOLATION], 240, "both verdicts")
            leader.start(ending, wait=False)
    folders = [tmp_path / str(node_id) for node_id in (1, 2, 3)]
    assert_one_history(folders)
    versions = []  # a voter that has just started may not have the newest
    for folder in folders:
        records = [decode_event(offset, value) for offset, value in enumerate(events_at(folder))]
        versions.append(sum(isinstance(record.event, RulesApplied) for record in records))
        assert wrong_verdicts(records) == []
        again = command("replay", "redecide", folder, "--local")
        assert again.returncode == 0, again.stdout + again.stderr
    assert max(versions) == RULES


if __name__ == "__main__":
    with TemporaryDirectory(prefix="topicwright-linearizability-") as place:
        found = history_of(Path(place), int(sys.argv[1]))
    answered = Counter(each.request for each in found if each.ended < math.inf)
    print(f"{sys.argv[1]} leaders killed, {dict(answered)} answered, {len(found) - answered.total()} not")
    print(unexplained(found) or "linearizable")
