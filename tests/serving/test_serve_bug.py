"""A bug in a running process: it says so, leaves nobody waiting, and ends, to be started again."""

from __future__ import annotations

from pathlib import Path

from tests.serving.service import CREATE, Talk, check_log, codes, create, serving, wait_until

POLICY = '''
"""A policy that plants a bug in the machine when it is configured."""
from controller.engine import decider


class Planting:
    def configure(self, settings):
        decide = decider.decide

        def broken(state, command):
            assert getattr(command, "topic", "") != "poison", "a planted bug"
            return decide(state, command)

        decider.decide = broken

    def validate(self, request):
        pass
'''
FAILED = 3


def test_a_bug_ends_the_process(tmp_path: Path) -> None:
    (tmp_path / "planting_policy.py").write_text(POLICY)
    with serving(tmp_path, settings={"create.topic.policy.class.name": "planting_policy.Planting"}) as server:
        with Talk(server.kafka) as waiting, Talk(server.kafka) as talk:
            assert codes(talk.call(CREATE, 7, create("good"))) == [0]
            assert server.post("/simulated/brokers/1/delay", {"delay_ms": 3_600_000}, "PUT")[0] == 200
            waiting.send_request(CREATE, 7, 1, create("waits"))
            wait_until(lambda: server.get("/topics/waits")[0] == 200)
            assert codes(talk.call(CREATE, 7, create("poison"))) == [-1]
            assert codes(waiting.read_response(CREATE, 7)[1]) == [-1], "nobody is left waiting"
        assert server.process.wait(120) == FAILED
        assert "controller failed" in server.process.output
        assert "a planted bug" in server.process.output
    with serving(tmp_path) as server:
        assert {"good", "waits"} == server.topics().keys()
        assert server.process.stop() == 0
    check_log(tmp_path / "data")
