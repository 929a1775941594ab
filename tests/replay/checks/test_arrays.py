"""Columns as arrays: what a row finds that looks back in its group, against the plain way of looking."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as some

from projections.replay.checks.arrays import (
    NONE,
    NOWHERE,
    Groups,
    Lists,
    at,
    coded,
    combined,
    hashes,
    judged,
    with_lists_coded,
)
from projections.replay.checks.offsets import broken, runs

often = settings(deadline=None)
ROWS = some.lists(some.tuples(some.integers(0, 3), some.booleans()), max_size=30)


@often
@given(ROWS)
def test_a_row_looks_back_in_its_group_alone(rows: list[tuple[int, bool]]) -> None:
    rows.sort(key=lambda row: row[0])
    groups = Groups(np.array([group for group, _ in rows], np.int64))
    wanted = np.array([flag for _, flag in rows], bool)
    earlier = [[n for n in range(row) if rows[n] == (rows[row][0], True)] for row in range(len(rows))]
    assert groups.last(wanted).tolist() == [max(found, default=NOWHERE) for found in earlier]
    assert groups.first(wanted).tolist() == [min(found, default=NOWHERE) for found in earlier]
    assert groups.had(wanted).tolist() == [bool(found) for found in earlier]
    before = [n - 1 if n and rows[n - 1][0] == rows[n][0] else NOWHERE for n in range(len(rows))]
    assert groups.before().tolist() == before
    assert groups.is_last.tolist() == [n + 1 == len(rows) or rows[n + 1][0] != rows[n][0] for n in range(len(rows))]


@often
@given(some.lists(some.tuples(some.integers(-3, 3), some.integers(0, 1 << 60), some.integers(0, 2))))
def test_combined_codes_are_equal_where_all_columns_are(rows: list[tuple[int, int, int]]) -> None:
    codes = combined([np.array([row[place] for row in rows], np.int64) for place in range(3)]).tolist()
    assert len(set(zip(rows, codes, strict=True))) == len(set(rows)) == len(set(codes))


def test_judged_calls_once_for_each_combination() -> None:
    calls = []

    def verdict(first: int, second: int) -> bool:
        calls.append((first, second))
        return first > second

    first, second = np.array([1, 2, 1, 5, 2]), np.array([2, 1, 2, 0, 1])
    rows = np.array([True, True, True, False, True])
    assert judged(rows, verdict, first, second).tolist() == [False, True, False, False, True]
    assert sorted(calls) == [(1, 2), (2, 1)]
    assert judged(~rows & rows, verdict, first, second).tolist() == [False] * 5


@often
@given(some.lists(some.none() | some.lists(some.integers(-3, 9), max_size=4)), some.integers(0, 3))
def test_lists_come_back_by_their_codes(values: list[list[int] | None], start: int) -> None:
    column = pa.array(values, pa.list_(pa.int32())).slice(start)
    lists = Lists()
    codes = lists.column(with_lists_coded(column))
    known = [lists[code] for code in codes.tolist()]
    assert [None if ids is None else list(ids) for ids in known] == values[start:]
    assert lists.sizes(codes).tolist() == [len(ids or ()) for ids in known]
    assert lists.lowest(codes).tolist() == [min(ids or (), default=0) for ids in known]


def test_what_is_not_there_is_none() -> None:
    assert at(np.array([7, 8]), np.array([1, NOWHERE])).tolist() == [8, NONE]
    codes, texts = coded(pa.array(["b", None, "a", "b"]))
    assert [None if code == NOWHERE else texts[code] for code in codes.tolist()] == ["b", None, "a", "b"]


@often
@given(some.lists(some.integers(0, 12)), some.integers(0, 3), some.integers(1, 5))
def test_offsets_that_do_not_follow_are_reported_at_their_places(offsets: list[int], start: int, batch: int) -> None:
    offsets = [start + offset for offset in offsets]
    found = [run for n in range(0, len(offsets), batch) for run in runs(np.array(offsets[n : n + batch], np.int64))]
    ordered = sorted(offsets)
    expected = [start, *(offset + 1 for offset in ordered)]
    gaps = [(offset, after) for offset, after in zip(ordered, expected, strict=False) if offset != after]
    assert sorted(broken(found, start)) == gaps


FAR = some.sampled_from([NONE, -1, 0, 1, 7, (1 << 31) - 2, 1 << 40, (1 << 62) - 1])


@often
@given(some.lists(some.tuples(FAR, FAR, FAR), max_size=30))
def test_combined_codes_of_numbers_far_apart(rows: list[tuple[int, int, int]]) -> None:
    codes = combined([np.array([row[column] for row in rows], np.int64) for column in range(3)]).tolist()
    assert [codes.index(code) for code in codes] == [rows.index(row) for row in rows], "equal where they are equal"
    assert set(codes) == set(range(len(set(rows)))), "from 0 on, without a hole"


def test_hashes_are_of_the_text_alone() -> None:
    texts = ["", "a", "pay_orders", "pay_orders2", "ä", "x" * 249, "orders_pay"]
    first = hashes(pa.array(texts))
    assert len(set(first.tolist())) == len(texts)
    assert hashes(pa.array(["other", *reversed(texts)]).slice(1)).tolist() == first.tolist()[::-1]
    assert max(first.tolist()) < 1 << 31
    assert hashes(pa.array([], pa.string())).tolist() == []


def test_hashes_fall_into_shares_evenly() -> None:
    shares = (hashes(pa.array([f"team_{n % 7}_topic_{n}" for n in range(10_000)])) % np.uint64(9)).tolist()
    counts = [shares.count(share) for share in range(9)]
    assert all(900 < count < 1_350 for count in counts), counts
