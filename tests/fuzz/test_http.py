"""HTTP is fuzzed for a while at each run of the tests; FUZZ_SECONDS and FUZZ_SEED say for how long, and from where."""

from __future__ import annotations

import os
import random

import pytest

from tests.fuzz.http_door import fuzz

MEMORY_MAX = 256 << 20
WAIT_MAX_S = 10.0
"""Of another client, on a crowded machine."""


def test_no_request_near_the_document_makes_http_fail(capsys: pytest.CaptureFixture[str]) -> None:
    number = int(os.environ.get("FUZZ_SEED", random.SystemRandom().randrange(1 << 32)))
    with capsys.disabled():
        found = fuzz(float(os.environ.get("FUZZ_SECONDS", "6")), number)
        print(found)
    assert found.statuses.keys() >= {200, 400, 404}, "it came to all kinds of answers"
    assert sum(found.statuses.values()) > 50
    assert found.waited_s < WAIT_MAX_S
    assert found.grown_bytes < MEMORY_MAX
