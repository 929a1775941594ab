"""The Kafka listener under hostile frames: it keeps answering valid clients, within limits of time and memory.

`python -m tests.fuzz` runs for hours; `FUZZ_SEED` repeats a failure.
"""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from structlog.testing import capture_logs

from controller.kafka.codec import codec
from controller.kafka.messages import APIS
from tests.apis.rig import rig
from tests.fuzz.frames import Mutator, captures, worst
from tests.fuzz.fuzzing import fuzz, give
from tests.fuzz.target import LIMITS, Target, target

FRAMES = 2000
SEED = int(os.environ.get("FUZZ_SEED", random.SystemRandom().randrange(1 << 32)))
WORKED_S_MAX = 0.5
"""Processor time, which other processes hardly change: some 50 ms on a quiet machine. `--worst` also measures how long
the loop was blocked, which depends on the machine's load."""
KEPT_BYTES_MAX = 300 << 20
BLOCKS_KEPT_MAX = 150_000
"""Includes topics that a request creates, and memory that the interpreter reuses."""


def resident_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def without_errors() -> Iterator[Target]:
    """Yields a target, and checks that it logged no error."""
    with capture_logs() as logs, target() as served:
        yield served
    failures = [line for line in logs if line["log_level"] in ("error", "critical")]
    assert not failures, f"FUZZ_SEED={SEED}: {failures[:3]}"


def test_mutated_frames_cause_no_errors_or_memory_growth() -> None:
    print(f"FUZZ_SEED={SEED}")
    with without_errors() as served:
        before = resident_bytes()
        found = fuzz(served, SEED, lambda so_far: so_far.frames > FRAMES)
        kept = resident_bytes() - before
    print(found)
    assert kept < KEPT_BYTES_MAX, f"FUZZ_SEED={SEED}: {kept} bytes more than before"


def test_the_worst_request_of_each_api_has_bounded_cost() -> None:
    with without_errors() as served:
        for key, row in served.table.items():
            for name, frame in worst(key, row.max_version, row, LIMITS.request_bytes_max):
                found = give(served, frame, BLOCKS_KEPT_MAX)
                assert found.worked_s < WORKED_S_MAX, f"{APIS[key].name} {name}: {found}"
                assert found.blocks_kept < BLOCKS_KEPT_MAX, f"{APIS[key].name} {name}: {found}"


async def test_fuzz_frames_are_deterministic_per_seed() -> None:
    async with rig() as served:
        table = dict(served.listener)
        one, other = (Mutator(7, table) for _ in range(2))
        assert [one.frames() for _ in range(50)] == [other.frames() for _ in range(50)]
        assert Mutator(8, table).frames() != Mutator(7, table).frames()


def test_captured_client_frames_are_valid_requests() -> None:
    for frame in captures():
        header = codec.parse_header(frame)
        codec.read_request(header.api_key, header.api_version, frame, header.body_offset)
    assert len({frame[:2] for frame in captures()}) > 10


async def test_the_worst_metadata_request_reaches_the_element_limit() -> None:
    async with rig() as served:
        row = served.listener[3]
        (_, whole), _, (_, distinct) = islice(worst(3, 12, row, LIMITS.request_bytes_max), 3)
        for frame in (whole, distinct):
            header = codec.parse_header(frame[4:])
            _, elements = codec.read_request(3, 12, frame[4:], header.body_offset, row.elements_max)
            assert elements > row.elements_max - 10
