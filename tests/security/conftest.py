"""One service that tests share, unless they need their own."""

import uuid
from collections.abc import Iterator

import pytest

from tests.security.service import Secured, secured


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"secured-{uuid.uuid4().hex[:12]}"
