"""How a process ends. On SIGTERM it answers accepted requests and exits with 0. Answered creates survive kill -9 under
load. An exception while handling a request fails that request; any other answers waiting clients and ends the process.
On a full disk no answered create is lost, and the process continues when there is space."""

import random
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest

from controller.serving.serve import Service
from events.catalog import TopicCreated
from tests.serving.service import (
    CREATE,
    Load,
    Serving,
    Talk,
    check_log,
    check_there,
    codes,
    create,
    loads_on,
    serving,
    wait_until,
)
from tests.support.wire import ConnectionClosed


def test_sigterm_and_sigint_stop_the_service_under_load(tmp_path: Path) -> None:
    loads: list[Load] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        with serving(tmp_path) as server:
            check_there(server.topics(), loads)
            started = loads_on(server, number.name, 3)
            loads += started
            wait_until(lambda: all(load.there for load in started))  # noqa: B023
            server.process.popen.send_signal(number)
            assert server.process.wait(240) == 0
            for load in started:
                load.done()
            assert "Traceback" not in server.process.output
    with serving(tmp_path) as server:
        assert check_there(server.topics(), loads) > 0
    check_log(tmp_path / "data")


STUCK_POLICY = """
import time

class Stuck:
    def validate(self, request):
        if request.topic == "stuck":
            print("the policy judges", flush=True)
            time.sleep(3600)
"""


def test_a_policy_that_never_returns_does_not_block_stop(tmp_path: Path) -> None:
    (tmp_path / "stuck_policy.py").write_text(STUCK_POLICY)
    with serving(tmp_path, settings={"create.topic.policy.class.name": "stuck_policy.Stuck"}) as server:
        with Talk(server.kafka) as talk:
            assert codes(talk.call(CREATE, 7, create("fine"))) == [0]
        talk = Talk(server.kafka)
        talk.send_request(CREATE, 7, 1, create("stuck"))
        server.process.wait_for_line("^the policy judges", within_s=240)
        assert server.process.stop() == 0
        with pytest.raises(ConnectionClosed):
            talk.read_response(CREATE, 7)
        talk.close()
        assert "still judging topic 'stuck' after 1 s, abandoned" in server.process.output


def test_a_client_that_does_not_read_does_not_block_stop(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        stuck = Talk(server.kafka)
        for number in range(60):
            stuck.send_request(CREATE, 7, number, create(*(f"t{number}-{n}" for n in range(50)), timeout_ms=1))
        with Talk(server.kafka) as talk:
            assert codes(talk.call(CREATE, 7, create("other"))) == [0], "other clients are served"
        assert server.process.stop(within_s=240) == 0
        stuck.close()
    check_log(tmp_path / "data")


@pytest.mark.parametrize(("leads", "done"), [(True, ["hand_over", "stop"]), (False, ["stop"])])
async def test_a_voter_that_leads_during_its_start_transfers_leadership_at_stop(leads: bool, done: list[str]) -> None:
    member = Mock(leads=leads, hand_over=AsyncMock(), stop=AsyncMock())
    service = object.__new__(Service)
    service._started = service._is_open = False
    service._member, service._clients, service._cluster = member, AsyncMock(), None
    await service.stop()
    assert [name for name, *_ in member.mock_calls] == done


POLICY = '''
"""A policy that plants bugs when it is configured."""
from controller.brokers.simulated import SimulatedBrokers
from controller.engine import decider


class Planting:
    def configure(self, settings):
        decide, on_events = decider.decide, SimulatedBrokers.on_events

        def broken(state, command):
            assert getattr(command, "topic", "") != "poison", "a planted bug"
            return decide(state, command)

        def deaf(brokers, records, end):
            assert brokers._controller.store.durable_named("last") is None, "a bug in the brokers"
            on_events(brokers, records, end)

        decider.decide, SimulatedBrokers.on_events = broken, deaf

    def validate(self, request):
        pass
'''
FAILED = 3


def test_an_exception_fails_only_its_request_and_others_end_the_process(tmp_path: Path) -> None:
    (tmp_path / "planting_policy.py").write_text(POLICY)
    with serving(tmp_path, settings={"create.topic.policy.class.name": "planting_policy.Planting"}) as server:
        with Talk(server.kafka) as waiting, Talk(server.kafka) as talk:
            assert codes(talk.call(CREATE, 7, create("good"))) == [0]
            assert codes(talk.call(CREATE, 7, create("poison"))) == [-1]
            assert codes(talk.call(CREATE, 7, create("next"))) == [0], "the connection stays open"
            wait_until(lambda: '"event":"command failed"' in server.process.output)
            assert "a planted bug" in server.process.output
            assert server.post("/v1/simulated/brokers/1/delay", {"delay_ms": 3_600_000}, "PUT")[0] == 200
            waiting.send_request(CREATE, 7, 1, create("waits"))
            wait_until(lambda: server.get("/v1/topics/waits")[0] == 200)
            talk.send_request(CREATE, 7, 2, create("last"))
            assert codes(waiting.read_response(CREATE, 7)[1]) == [-1], "the waiting client is answered"
        assert server.process.wait(120) == FAILED
        assert "controller failed" in server.process.output
        assert "a bug in the brokers" in server.process.output
    with serving(tmp_path) as server:
        assert {"good", "next", "waits", "last"} == server.topics().keys()
        assert server.process.stop() == 0
    check_log(tmp_path / "data")


ROUNDS = 4
CLIENTS = 3
CREATES = 150
"""Of each client in a round. The kill comes before half of them are answered, unless the machine is slow."""


def test_answered_creates_survive_kills_under_load(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    loads: list[Load] = []
    answered = 0
    try:
        for round_number in range(ROUNDS):
            with serving(tmp_path) as server:
                check_there(server.topics(), loads)
                ours = loads_on(server, f"r{round_number}", CLIENTS, CREATES)
                kill_after = rng.randint(2, CLIENTS * CREATES // 2)
                while sum(load.answers[0] for load in ours) < kill_after:
                    time.sleep(0.005)
                server.process.kill()
                for load in ours:
                    load.done()
                loads += ours
                answered += sum(load.answers[0] for load in ours)
        with serving(tmp_path) as server:
            left = check_there(server.topics(), loads)
            assert server.process.stop() == 0
        records = check_log(tmp_path / "data")
    except BaseException as error:
        error.add_note(f"the kills were chosen by seed {seed}; {answered} creates had been answered NONE")
        raise
    created = sum(isinstance(record.event, TopicCreated) for record in records)
    assert created >= answered > ROUNDS, "the clients created topics"
    assert left > 0


STORAGE_ERROR = 56
FILE_BYTES_MAX = 200_000


def test_a_file_size_limit_loses_no_answered_create(tmp_path: Path) -> None:
    """RLIMIT_FSIZE needs no privileges. Writes fail in the same places as on a full disk."""
    with serving(tmp_path) as server:
        _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)

        def fill() -> None:
            resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, hard))

        def make_room() -> None:
            resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (hard, hard))

        created = starve(server, fill, make_room)
    check_log(server.data)
    with serving(tmp_path) as server:
        lost = created - server.topics().keys()
        assert not lost, f"answered NONE, but missing: {sorted(lost)[:10]}, {len(lost)} in all"
        assert server.process.stop() == 0


def starve(server: Serving, fill: Callable[[], None], make_room: Callable[[], None]) -> set[str]:
    """Create until the disk is full, check errors, free space, create again; returns topics answered NONE."""
    created: set[str] = set()
    with Talk(server.kafka) as talk:
        created |= create_all(talk, "before")
        assert server.get("/health/ready")[0] == 200
        fill()
        refused = create_until_refused(talk, created)
        assert set(refused) <= {STORAGE_ERROR}, refused
        status, health = server.get("/health/ready")
        assert status == 503
        assert "log" in str(health), health
        assert codes(talk.call(CREATE, 7, create("at-once"))) == [STORAGE_ERROR]
        assert created <= server.topics().keys(), "durable topics stay visible"
        make_room()
        wait_until(lambda: server.get("/health/ready")[0] == 200)
        assert created <= server.topics().keys(), "no answered topic is lost"
        created |= create_all(talk, "after")
    assert server.process.stop(within_s=240) == 0
    assert "storage failed" in server.process.output
    assert "storage recovered" in server.process.output
    return created


def create_all(talk: Talk, prefix: str) -> set[str]:
    names = [f"{prefix}-{number}" for number in range(20)]
    assert codes(talk.call(CREATE, 7, create(*names))) == [0] * 20
    return set(names)


def create_until_refused(talk: Talk, created: set[str]) -> list[int]:
    """Create topics, adding each name to `created`, until a request fails; returns its error codes."""
    for number in range(400):
        names = [f"until-{number}-{n}" for n in range(100)]
        got = codes(talk.call(CREATE, 7, create(*names)))
        created |= {name for name, code in zip(names, got, strict=True) if code == 0}
        if any(got):
            return [code for code in got if code]
    raise AssertionError("the disk never filled")
