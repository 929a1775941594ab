"""A client generated from the OpenAPI document works, so the document describes the API correctly."""

import asyncio
import importlib
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openapi_python_client import generate
from openapi_python_client.config import Config, ConfigFile, MetaType

from controller.http import app
from controller.http.app import completed
from tests.http.service import Service, service

PACKAGE = "generated_topicwright_client"


def _generate_client(document: dict[str, Any], folder: Path) -> list[str]:
    """Generate a client into a folder; returns the generator's warnings."""
    source = folder / "openapi.json"
    source.write_text(json.dumps(document))
    config = Config.from_sources(
        ConfigFile(post_hooks=[]), MetaType.NONE, source, "utf-8", overwrite=False, output_path=folder / PACKAGE
    )
    return [f"{error.header} {error.detail}" for error in generate(config=config)]


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on sys.path for the duration of the test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def _part(name: str) -> Any:
    return importlib.import_module(f"{PACKAGE}.{name}")


def _work_with(base_url: str) -> dict[str, Any]:
    """Create, read and change topics, and get a rejection, as a team's program does."""
    models = _part("models")
    create, topic = _part("api.default.create_topic"), _part("api.default.topic")
    body = models.CreateTopicCreateBody(name="orders", num_partitions=3)
    with _part("client").Client(base_url=base_url) as client:
        made = create.sync_detailed(client=client, body=body)
        again = create.sync_detailed(client=client, body=body)
        shown = topic.sync(client=client, name="orders")
        listed = _part("api.default.topics").sync(client=client, name="ord*")
        requests = _part("api.default.requests").sync(client=client, limit=1)
        gone = topic.sync_detailed(client=client, name="absent")
    return {
        "made": (int(made.status_code), made.parsed.name, made.headers["location"]),
        "again": (int(again.status_code), again.parsed.error, again.parsed.rule),
        "shown": (shown.name, len(shown.partitions)),
        "listed": [each.name for each in listed.topics],
        "newest": requests.requests[0].outcomes.to_dict(),
        "gone": (int(gone.status_code), gone.parsed.code),
    }


async def test_a_client_generated_from_openapi_works(one: Service, on_path: Path) -> None:
    complaints = await asyncio.to_thread(_generate_client, await one.get("/openapi.json"), on_path)
    assert [one for one in complaints if "/v1/events/follow" not in one] == [], "the endless stream is an exception"
    done = await asyncio.to_thread(_work_with, f"http://127.0.0.1:{one.port}")
    assert done == {
        "made": (201, "orders", "/v1/topics/orders"),
        "again": (409, "TOPIC_ALREADY_EXISTS", "validation:exists"),
        "shown": ("orders", 3),
        "listed": ["orders"],
        "newest": {"rejected": 1},
        "gone": (404, 3),
    }


async def test_openapi_document_is_built_outside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    made_in: list[threading.Thread] = []

    def made(*of: Any) -> object:
        made_in.append(threading.current_thread())
        return completed(*of)

    monkeypatch.setattr(app, "completed", made)
    app._routes.cache_clear()
    async with service() as one:
        for _ in range(2):
            await one.get("/openapi.json")
    assert len(made_in) == 1, "once"
    assert made_in[0] is not threading.current_thread()


async def test_openapi_document_has_responses_and_security_schemes(one: Service) -> None:
    document = await one.get("/openapi.json")
    assert set(document["components"]["securitySchemes"]) == {"bearer", "basic"}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            ends = operation["responses"]
            if path.startswith("/health"):
                assert operation["security"] == []
                continue
            assert set(ends) >= {"400", "401", "403", "503"}, f"{method} {path}"
            for status, end in ends.items():
                if int(status) >= 400:
                    assert list(end["content"]) == ["application/problem+json"], f"{method} {path} {status}"
            assert "text/html" not in ends.get("200", {}).get("content", {}), f"{method} {path}: HTML is documented"
    create = document["paths"]["/v1/topics"]["post"]
    assert set(create["responses"]) >= {"200", "201", "202", "404", "409", "429", "504"}
    assert "Location" in create["responses"]["201"]["headers"]
    example = create["requestBody"]["content"]["application/json"]["example"]
    assert (await one.request("POST", "/v1/topics?validate_only=true", json=example))["num_partitions"] == 3
