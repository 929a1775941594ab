"""Requests of clients to workers and gateways."""

import json
import time
from collections.abc import Callable
from typing import Any

from tests.reference.cases import topic
from tests.support.topicwright import Topicwright, fetch
from tests.support.wire import Wire

WITHIN_S = 240


def create(address: str, *names: str, timeout_ms: int = 30_000) -> dict[str, int]:
    """Returns the error codes of a create by topic."""
    return {name: code for name, (code, _) in create_with_messages(address, *names, timeout_ms=timeout_ms).items()}


def create_with_messages(address: str, *names: str, timeout_ms: int = 30_000) -> dict[str, tuple[int, str]]:
    """Returns the error codes and messages of a create by topic."""
    topics = [topic(name, 1, 2) for name in names]
    with Wire(address) as wire:
        answer = wire.call("CreateTopics", 7, topics=topics, timeout_ms=timeout_ms, validate_only=False)
    return {each["name"]: (each["error_code"], each["error_message"]) for each in answer["topics"]}


def get(server: Topicwright, path: str, expect: int = 200) -> Any:
    """Returns the JSON of a GET."""
    status, body = fetch(server.http, path)
    assert status == expect, f"{path}: {status} {body}"
    return json.loads(body)


def until(what: str, reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not reached():
        assert time.monotonic() < deadline, f"{what}: not within {WITHIN_S} s"
        time.sleep(0.05)
