"""Policies of a running controller, tested with a real client and through the recorded events."""

import json
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic  # type: ignore[attr-defined]  # it exports these unsaid

from controller.cli.main import main
from tests.policy.requests import rows
from tests.support.topicwright import Topicwright, topicwright

POLICY = """
    from pathlib import Path
    from controller.policy import PolicyViolation

    class Odd:
        def validate(self, request):
            if request.topic.startswith("boom"):
                raise ValueError("a secret of the policy's")
            if request.topic.startswith("exit"):
                raise SystemExit(3)
            if request.topic.startswith("no"):
                raise PolicyViolation(f"{request.principal} asks for {request.num_partitions} of {request.topic}")
        def close(self):
            Path("closed").touch()
"""
ALTER_POLICY = """
    from controller.policy import AlterConfigMetadata, AlterConfigPolicy, PolicyViolation

    class Short(AlterConfigPolicy):
        def validate(self, request: AlterConfigMetadata) -> None:
            if request.configs.get("retention.ms") == "13":
                raise ValueError("thirteen")
            if int(request.configs.get("retention.ms", 1)) > 100 or "log.retention.ms" in request.configs:
                raise PolicyViolation(f"{request.resource_type} '{request.name}' {dict(request.configs)}", rule="short")
"""
RULES = """
    [[rule]]
    name = "narrow"
    partitions = { max = 4 }
    [[rule]]
    name = "soon"
    mode = "observe"
    required_configs = ["retention.ms"]
"""

# The topic and its partitions (-1: the cluster's 2), Kafka's error code, and a part of the message.
ANSWERS = """
a           | 4  | 0  |
a.wide      | 5  | 44 | rule 'narrow': partitions is 5, allowed is at most 4
a.default   | -1 | 0  |
no.a        | -1 | 44 | User:ANONYMOUS asks for 2 of no.a
no.wide     | 5  | 44 | User:ANONYMOUS asks for 5 of no.wide
boom.a      | 1  | -1 | policy failed
exit.a      | 1  | -1 | policy failed
no/name     | 1  | 17 | Topic name is invalid
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topicwright]:
    folder = tmp_path_factory.mktemp("policies")
    (folder / "odd_policy.py").write_text(dedent(POLICY))
    (folder / "alter_policy.py").write_text(dedent(ALTER_POLICY))
    (folder / "rules.toml").write_text(dedent(RULES))
    settings = {
        "create.topic.policy.class.name": "odd_policy.Odd",
        "alter.config.policy.class.name": "alter_policy.Short",
        "topic.rules.file": "rules.toml",
        "num.partitions": "2",
    }
    with topicwright(folder, settings) as served:
        yield served
    assert (folder / "closed").exists()


def _create(server: Topicwright, *topics: NewTopic, **options: Any) -> dict[str, Future[None]]:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    return {name: _of(admin, future) for name, future in admin.create_topics(list(topics), **options).items()}


def _of(admin: AdminClient, future: Future[None]) -> Future[None]:
    future.__dict__["client"] = admin  # the client must live until the response
    return future


def _answer(future: Future[None]) -> tuple[int, str]:
    try:
        future.result(30)
    except KafkaException as error:
        return error.args[0].code(), error.args[0].str()
    return 0, ""


def _events(server: Topicwright, topic: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"http://{server.http}/v1/events?topic={topic}", timeout=240) as answer:
        events: list[dict[str, Any]] = json.load(answer)["events"]
    return events


@pytest.mark.parametrize("dry", [True, False], ids=["dry run", "create"])
def test_each_topic_of_a_request_has_its_own_policy_result(server: Topicwright, dry: bool) -> None:
    table = rows(ANSWERS)
    topics = [NewTopic(f"{name}.{'real' if not dry else 'dry'}", int(count), 1) for name, count, _, _ in table]
    answers = _create(server, *topics, validate_only=dry)
    for topic, (_, _, code, message) in zip(topics, table, strict=True):
        found, text = _answer(answers[topic.topic])
        assert found == int(code), (topic.topic, text)
        assert message in text
        assert "secret" not in text


# The configs to set for a topic, Kafka's error code, and a part of the message.
ALTERATIONS = """
retention.ms=100                      | 0  |
retention.ms=101                      | 44 | TOPIC 'altered' {'retention.ms': '101'}
retention.ms=101;flush.ms=5           | 44 | TOPIC 'altered' {'retention.ms': '101', 'flush.ms': '5'}
retention.ms=13                       | -1 | policy failed
flush.ms=5                            | 0  |
retention.ms=x                        | 40 | Invalid value x
"""


def test_config_changes_are_judged_by_rules(server: Topicwright) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic("altered", 1, 1)])["altered"].result(30)
    for configs, code, message in rows(ALTERATIONS):
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, _, value in (one.partition("=") for one in configs.split(";"))
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, "altered", incremental_configs=entries)
        for dry in (True, False):
            (future,) = admin.incremental_alter_configs([resource], validate_only=dry).values()
            found, text = _answer(future)
            assert found == int(code), (configs, text)
            assert message in text
    refused = [one for one in _events(server, "altered") if one["type"] == "ChangeRejected"]
    assert [one["fields"]["rule"] for one in refused] == [
        "policy:short",
        "policy:short",
        "policy:alter_policy.Short",
        "validation:configs",
    ]
    assert refused[0]["fields"]["request"]["change"]["verdict"]["policy"] == "alter_policy.Short"
    changed = [one for one in _events(server, "altered") if one["type"] == "TopicConfigsChanged"]
    assert changed[0]["fields"]["request"]["change"]["verdict"]["outcome"] == "allowed"


def test_redecide_runs_the_recorded_policies_of_a_service_again(
    server: Topicwright, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = _create(server, NewTopic("no.again", 1, 1), NewTopic("boom.again", 1, 1), NewTopic("again", 1, 1))
    assert [_answer(future)[0] for future in answers.values()] == [44, -1, 0]
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(server.data.parent)
    assert main(["replay", "redecide", str(server.data), "--local", "--policies"]) == 0
    first, *told = capsys.readouterr().out.splitlines()
    assert "0 decided otherwise" in first
    names = ("odd_policy.Odd", "alter_policy.Short")
    assert told == [
        f"policy {name}: judges again; its source is the recorded one (settings of offset 0)" for name in names
    ]
