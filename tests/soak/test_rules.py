"""The rules by which a soak fails: a leak is found, what fills a cache is not one."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from tests.soak.figures import Disk, Sample
from tests.soak.rules import RSS_MIB_MAX, grows, too_large, too_many

Curve = Callable[[float], float]


def _life(rss_mib: Curve, *, minutes: float = 15, pid: int = 1, begin_s: float = 0) -> list[Sample]:
    return [
        Sample(begin_s + at, pid, rss_mib(at / 60) + at % 7, 60, 10)  # with some noise
        for at in range(0, int(minutes * 60), 2)
    ]


@pytest.mark.parametrize(
    ("rss_mib", "leaks"),
    [
        (lambda minute: 120.0, False),
        (lambda minute: 120 + 0.5 * minute, False),
        (lambda minute: 120 + 80 * (1 - math.exp(-minute / 3)), False),
        (lambda minute: 120 + (100 if 9 < minute < 9.5 else 0), False),
        (lambda minute: 120 + 3 * minute, True),
        (lambda minute: 120 + 60 * (1 - math.exp(-minute)) + 2 * minute, True),
        (lambda minute: 120 + minute**2 / 4, True),
    ],
    ids=[
        "flat",
        "below what counts",
        "a cache that fills",
        "a peak",
        "a leak",
        "a leak after a ramp",
        "worse and worse",
    ],
)
def test_memory_that_grows_on_is_a_leak_and_a_cache_that_fills_is_not(rss_mib: Curve, leaks: bool) -> None:
    assert bool(grows("voter", _life(rss_mib))) is leaks


def test_each_process_is_judged_from_its_own_start() -> None:
    def sawtooth(minute: float) -> float:
        return 120 + 3 * minute

    short = [each for n in range(5) for each in _life(sawtooth, minutes=9, pid=n, begin_s=540 * n)]
    assert grows("worker", short) == [], "none of them lived long enough"
    (found,) = grows("worker", [*short, *_life(sawtooth, minutes=15, pid=9, begin_s=2700)])
    assert found.startswith("worker: memory grows by 3."), found


def test_no_process_may_ever_be_larger_than_the_limit() -> None:
    (found,) = grows("gateway", _life(lambda minute: RSS_MIB_MAX + 1, minutes=1))
    assert "are allowed" in found


@pytest.mark.parametrize(
    ("descriptors", "threads", "named"), [(60, 10, ""), (356, 18, ""), (357, 10, "descriptors"), (60, 19, "threads")]
)
def test_descriptors_and_threads_may_be_some_more_at_the_end(descriptors: int, threads: int, named: str) -> None:
    first, last = [Sample(0, 1, 100, 60, 10)] * 3, [Sample(900, 2, 100, descriptors, threads)] * 3
    found = too_many("voter", first, last)
    assert [named in each for each in found] == ([True] if named else []), found


def test_a_folder_is_held_against_its_limit_at_every_look() -> None:
    disks = [Disk(0, 5, {"log": 4, ".": 1}), Disk(10, 30, {"log": 29, ".": 1}), Disk(20, 6, {"log": 5, ".": 1})]
    assert too_large("voter", disks, {"": 30, "log": 29, "absent": 0}) == []
    assert too_large("voter", disks, {"": 29, "log": 28}) == [
        "voter: its folder took 30.0 MiB; 29.0 are allowed",
        "voter: log took 29.0 MiB; 28.0 are allowed",
    ]
