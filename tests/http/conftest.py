"""Fixtures: an HTTP service and users for each test."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from controller.access import users as module
from controller.access.users import Users, add_token, set_password
from controller.machine.state import Cluster
from tests.http.pages.story import story
from tests.http.service import POLICY, Half, Judge, Service, owned, service
from tests.kafka.sasl_users import SALT, credential_of


@pytest.fixture
async def one() -> AsyncIterator[Service]:
    """A service with three live brokers, an empty log and no policies."""
    async with service() as started:
        yield started


@pytest.fixture
def judge() -> Judge:
    """The policies of the service `judged`."""
    return Judge(owned)


@pytest.fixture
async def judged(judge: Judge) -> AsyncIterator[Service]:
    """A service with policies."""
    async with service(settings=POLICY, judge=judge) as started:
        yield started


@pytest.fixture
async def half() -> AsyncIterator[Service]:
    """A service where everybody may describe some topics, but not the cluster."""
    async with service(authorizer=Half()) as started:
        yield started


@pytest.fixture
async def eventful() -> AsyncIterator[Service]:
    """A service with topics, rejections and a failed broker (`story`)."""
    async with story() as told:
        yield told


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Users]:
    """alice has a SCRAM credential. carol is in the users file and has a token, which is stored next to it. The hashes
    are cheap."""
    monkeypatch.setattr(module, "_hasher", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    path = tmp_path / "users"
    set_password(path, "carol", "carol-PLANTED")
    (tmp_path / "token").write_text(add_token(path, "carol"))
    scram = {("alice", "SCRAM-SHA-512"): credential_of("SCRAM-SHA-512", "alice-PLANTED", SALT)}
    known = Users(lambda: Cluster(scram=scram), path)
    yield known
    known.close()
