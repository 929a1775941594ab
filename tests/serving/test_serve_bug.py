"""A bug in a running process. On one request it fails that request; elsewhere the process says so, leaves nobody
waiting, and ends, to be started again."""

from __future__ import annotations

from pathlib import Path

from tests.serving.service import CREATE, Talk, check_log, codes, create, serving, wait_until

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


def test_a_bug_on_a_request_fails_it_and_one_elsewhere_ends_the_process(tmp_path: Path) -> None:
    (tmp_path / "planting_policy.py").write_text(POLICY)
    with serving(tmp_path, settings={"create.topic.policy.class.name": "planting_policy.Planting"}) as server:
        with Talk(server.kafka) as waiting, Talk(server.kafka) as talk:
            assert codes(talk.call(CREATE, 7, create("good"))) == [0]
            assert codes(talk.call(CREATE, 7, create("poison"))) == [-1]
            assert codes(talk.call(CREATE, 7, create("next"))) == [0], "it is served on the same connection"
            wait_until(lambda: '"event":"command failed"' in server.process.output)
            assert "a planted bug" in server.process.output
            assert server.post("/v1/simulated/brokers/1/delay", {"delay_ms": 3_600_000}, "PUT")[0] == 200
            waiting.send_request(CREATE, 7, 1, create("waits"))
            wait_until(lambda: server.get("/v1/topics/waits")[0] == 200)
            talk.send_request(CREATE, 7, 2, create("last"))
            assert codes(waiting.read_response(CREATE, 7)[1]) == [-1], "nobody is left waiting"
        assert server.process.wait(120) == FAILED
        assert "controller failed" in server.process.output
        assert "a bug in the brokers" in server.process.output
    with serving(tmp_path) as server:
        assert {"good", "next", "waits", "last"} == server.topics().keys()
        assert server.process.stop() == 0
    check_log(tmp_path / "data")
