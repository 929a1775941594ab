"""Fuzzed HTTP requests; FUZZ_SEED repeats a failure. For hours: `python -m tests.fuzz.http_door`."""

import os
import random

import pytest

from tests.fuzz.http_door import fuzz

ANSWERS = 120
MEMORY_MAX = 256 << 20


def test_fuzzed_http_requests_never_fail_the_server(capsys: pytest.CaptureFixture[str]) -> None:
    number = int(os.environ.get("FUZZ_SEED", random.SystemRandom().randrange(1 << 32)))
    with capsys.disabled():
        found = fuzz(
            lambda so_far: so_far.statuses.total() > ANSWERS and {200, 400, 404} <= so_far.statuses.keys(), number
        )
        print(found)
    assert found.grown_bytes < MEMORY_MAX
