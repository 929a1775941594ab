"""Log lines of decisions and broker states."""

from tests.engine.stage import Stage, on_stage
from tests.simulation.virtual_time import on_virtual_time


@on_stage()
async def test_each_decision_is_one_log_line(stage: Stage) -> None:
    stage.heard.lines.clear()
    stage.brokers.set_delay(1, 250)
    await stage.create("good", "no/name")
    await stage.enlarge("good", 4)
    await stage.enlarge("missing", 4)
    await stage.delete("good")
    await stage.create("dry", validate_only=True)
    lines = [
        {key: line.get(key) for key in ("api", "topic", "code", "rule", "waited_ms")}
        for line in stage.heard.of("decided")
    ]
    assert lines == [
        {"api": "CreateTopics", "topic": "no/name", "code": 17, "rule": "validation:name", "waited_ms": 0},
        {"api": "CreateTopics", "topic": "good", "code": 0, "rule": "", "waited_ms": 250},
        {"api": "CreatePartitions", "topic": "good", "code": 0, "rule": None, "waited_ms": None},
        {
            "api": "CreatePartitions",
            "topic": "missing",
            "code": 3,
            "rule": "validation:unknown-topic",
            "waited_ms": None,
        },
        {"api": "DeleteTopics", "topic": "good", "code": 0, "rule": None, "waited_ms": None},
    ]
    assert all(str(line["request"]).startswith("s1-") for line in stage.heard.of("decided"))


@on_virtual_time
async def test_each_broker_state_change_is_one_log_line() -> None:
    stage = Stage(brokers=1)
    await stage.start()
    stage.brokers.stop_broker(1)
    await stage.settle()
    seen = [(line["event"], line["broker"]) for line in stage.heard.lines]
    assert seen == [("BrokerRegistered", 1), ("BrokerUnfenced", 1), ("BrokerFenced", 1)]
