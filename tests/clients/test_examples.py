"""Runs each example for client authors as its first lines say: one topic is created, then one is rejected."""

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support import tools
from tests.support.topicwright import Topicwright

EXAMPLES = tools.ROOT / "examples"
Command = tuple[list[str | Path], Mapping[str, str]]
TOPIC_LINES = [f"partition {number} leader LEADER replicas REPLICAS" for number in range(3)]


def _java() -> Command:
    return [tools.program("java"), "-cp", tools.server_classpath(), EXAMPLES / "java/CreateTopic.java"], {}


def _node() -> Command:
    modules = str(tools.cached("kafkajs/node_modules"))
    return [tools.program("node"), EXAMPLES / "node/create-topic.js"], {"NODE_PATH": modules}


def _go() -> Command:
    return [tools.program("go"), "run", "-C", EXAMPLES / "go", "-mod=readonly", "."], {}


def _python() -> Command:
    return [sys.executable, EXAMPLES / "python/create_topic.py"], {}


@pytest.mark.parametrize("command", [_python, _java, _node, _go], ids=["python", "java", "node", "go"])
def test_example_clients_create_a_topic(command: Callable[[], Command], topicwright_server: Topicwright) -> None:
    argv, env = command()
    topic = f"example.{command.__name__.strip('_')}"
    seen = []
    for _ in range(2):
        done = tools.run_quietly([*argv, topicwright_server.kafka, topic], within_s=300, **env)
        assert done.returncode == 0, done.stderr
        shown = re.sub(r"leader [123] replicas \[[123], [123], [123]\]", "leader LEADER replicas REPLICAS", done.stdout)
        seen.append(shown.splitlines())
    assert seen[0] == [f"created {topic}", *TOPIC_LINES]
    assert re.match(rf"refused {topic}: .*(already ?exists|TOPIC_ALREADY_EXISTS)", seen[1][0], re.IGNORECASE), seen[1]
    assert seen[1][1:] == TOPIC_LINES
