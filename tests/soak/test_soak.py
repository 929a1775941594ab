"""Tests of the soak's checks: a leak is distinguished from a filling cache, and a stalled group from one that hit a
known client fault (in log lines of librdkafka 2.16.0). Also a short soak: a Topicwright voter with two Kafka
controllers and a broker. `make soak` runs everything for half an hour."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.soak.figures import Disk, Sample
from tests.soak.rules import grows, too_large, too_many
from tests.soak.soak import Plan, soak
from tests.soak.standstills import STILL_LOOKS, Progress, fault_of_client

Curve = Callable[[float], float]


def _life(rss_mib: Curve, *, minutes: float = 15, pid: int = 1, begin_s: float = 0) -> list[Sample]:
    return [
        Sample(begin_s + at, pid, rss_mib(at / 60) + at % 7, 60, 10)  # with some noise
        for at in range(0, int(minutes * 60), 2)
    ]


CURVES: dict[str, tuple[Curve, bool]] = {
    "flat": (lambda minute: 120.0, False),
    "below what counts": (lambda minute: 120 + 0.5 * minute, False),
    "a cache that fills": (lambda minute: 120 + 80 * (1 - math.exp(-minute / 3)), False),
    "a peak": (lambda minute: 120 + (100 if 9 < minute < 9.5 else 0), False),
    "a leak": (lambda minute: 120 + 3 * minute, True),
    "a leak after a ramp": (lambda minute: 120 + 60 * (1 - math.exp(-minute)) + 2 * minute, True),
    "worse and worse": (lambda minute: 120 + minute**2 / 4, True),
}


@pytest.mark.parametrize(("rss_mib", "leaks"), CURVES.values(), ids=CURVES)
def test_continuous_memory_growth_is_a_leak_and_a_filling_cache_is_not(rss_mib: Curve, leaks: bool) -> None:
    assert bool(grows("voter", _life(rss_mib))) is leaks


def test_memory_growth_is_measured_per_process_lifetime() -> None:
    def sawtooth(minute: float) -> float:
        return 120 + 3 * minute

    short = [each for n in range(5) for each in _life(sawtooth, minutes=9, pid=n, begin_s=540 * n)]
    assert grows("worker", short) == [], "no process lived long enough"
    (found,) = grows("worker", [*short, *_life(sawtooth, minutes=15, pid=9, begin_s=2700)])
    assert found.startswith("worker: memory grows by 3."), found


@pytest.mark.parametrize(
    ("descriptors", "threads", "named"), [(60, 10, ""), (356, 18, ""), (357, 10, "descriptors"), (60, 19, "threads")]
)
def test_descriptor_and_thread_growth_beyond_tolerance_is_reported(descriptors: int, threads: int, named: str) -> None:
    first, last = [Sample(0, 1, 100, 60, 10)] * 3, [Sample(900, 2, 100, descriptors, threads)] * 3
    found = too_many("voter", first, last)
    assert [named in each for each in found] == ([True] if named else []), found


def test_folder_sizes_are_checked_at_every_sample() -> None:
    disks = [Disk(0, 5, {"log": 4, ".": 1}), Disk(10, 30, {"log": 29, ".": 1}), Disk(20, 6, {"log": 5, ".": 1})]
    assert too_large("voter", disks, {"": 30, "log": 29, "absent": 0}) == []
    assert too_large("voter", disks, {"": 29, "log": 28}) == [
        "voter: its folder took 30.0 MiB; 29.0 are allowed",
        "voter: log took 29.0 MiB; 28.0 are allowed",
    ]


ASKED = "METADATA [rdkafka#consumer-1] [thrd:main]: GroupCoordinator/1: Request metadata for 1 topic(s): broker down"
NONE = "METADATA [rdkafka#consumer-1] [thrd:main]: 127.0.0.1:1/1: 0 brokers, 1 topics"
ONE = "METADATA [rdkafka#consumer-1] [thrd:main]: 127.0.0.1:1/1: 1 brokers, 1 topics"
LATER = 'CGRPQUERY [rdkafka#consumer-1] [thrd:main]: Group "g": no broker available for coordinator query: intervaled'
REFUSED, ANSWERED = (
    f"OFFFETCH [rdkafka#consumer-4] [thrd:main]: GroupCoordinator/1: OffsetFetch for {what}"
    for what in (
        "0/0 partition(s) (0 unstable partition(s)) returned Broker: Not coordinator",
        "3/3 partition(s) (0 unstable partition(s)) returned Success",
    )
)


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ([], ""),
        ([ASKED, ONE, LATER], ""),
        ([ONE, ASKED, NONE, LATER], "only broker"),
        ([NONE, ASKED, ONE], ""),
        ([ONE, ANSWERED, REFUSED, LATER], "offsets"),
        ([ONE, REFUSED, ANSWERED], ""),
    ],
    ids=["nothing", "a broker", "no broker", "a broker again", "offsets refused", "offsets after all"],
)
def test_the_last_client_log_lines_identify_a_known_librdkafka_fault(said: list[str], fault: str) -> None:
    found = fault_of_client(said)
    assert bool(found) is bool(fault), found
    assert fault in found


def _first_stalled_sample(looks: list[tuple[dict[int, int], dict[int, int]]]) -> int | None:
    """The number of the check that reports a stall."""
    progress = Progress()
    return next((at for at, (acked, read) in enumerate(looks) if progress.stands_still(acked, read)), None)


def test_a_consumer_group_stalls_if_a_written_partition_is_not_read() -> None:
    assert _first_stalled_sample([({0: at, 1: at}, {0: at, 1: min(at, 5)}) for at in range(100)]) == STILL_LOOKS + 5


def test_an_idle_or_slow_consumer_group_does_not_stall() -> None:
    down = [({0: 7}, {0: 5})] * 100
    slow = [({0: at}, {0: at // (STILL_LOOKS - 1)}) for at in range(100)]
    assert (_first_stalled_sample(down), _first_stalled_sample(slow)) == (None, None)


def test_a_short_soak_loses_nothing(tmp_path: Path) -> None:
    outcome = soak(tmp_path, Plan(minutes=0.5, seed=3, brokers=1, workers=0), print)
    print(outcome.table)
    assert outcome.wrong == [], "\n".join(outcome.wrong)
    assert outcome.faults > 0
    assert outcome.answers > 0
