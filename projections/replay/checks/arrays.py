"""Columns of events as arrays, and what checks ask of them: which earlier row of its group a row looks back at.

What it is for: speed without SQL's windows. Rows are sorted once by group and offset; then "the last creation before
this event" is one pass over an array, and no row is ever a Python object. Texts and lists of brokers are dictionary
codes: numbers that are equal where the texts or lists are. There are far fewer lists of brokers than events, so what
is to be judged of lists is a plain function of them, called once for each combination that occurs (`judged`).

What it does not do: it knows no check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Ids = tuple[int, ...]
"""Ids of brokers, and of placeholders below 0."""

NONE = -(1 << 62)
"""What stands in a column of numbers where an event says nothing; no id, epoch or time is so small."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SPAN_MAX = 1 << 31
_CODES_MAX = 1 << 62
NOWHERE = -1
"""What stands for "no such row", and for "no such list"."""


def numbers(array: pa.Array, otherwise: int = NONE) -> Ints:
    """A column of numbers, or of truth values, with `otherwise` for null."""
    filled: Ints = array.cast(pa.int64()).fill_null(otherwise).to_numpy(zero_copy_only=False)
    return filled


def coded(array: pa.Array) -> tuple[Ints, list[str]]:
    """A column of texts as codes into a list, NOWHERE for null."""
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    return numbers(encoded.indices, NOWHERE), encoded.dictionary.to_pylist()


def hashes(texts: pa.StringArray) -> npt.NDArray[np.uint64]:
    """A number below 2**31 for each text, the same in every process."""
    ends = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    starts, lengths = ends[:-1] - ends[0], np.diff(ends)
    read = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[ends[0] : ends[-1]].astype(np.uint64)
    place = np.arange(len(read)) - np.repeat(starts, lengths)
    weights = powers(int(lengths.max(initial=0)) + 1)
    sums = np.append(np.zeros(1, np.uint64), np.cumsum((read + np.uint64(1)) * weights[place]))
    return (sums[starts + lengths] - sums[starts]) * _FACTOR >> np.uint64(33)


def with_lists_coded(array: pa.Array) -> pa.Array:
    """A column of lists of ids with each different list once: a dictionary of their bytes."""
    sizes = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    ends = np.concatenate(([0], np.cumsum(sizes * 4))).astype(np.int32)
    ids = array.flatten().to_numpy(zero_copy_only=False).astype(np.int32)
    as_bytes = pa.Array.from_buffers(pa.binary(), len(array), [None, pa.py_buffer(ends), pa.py_buffer(ids)])
    encoded = as_bytes.dictionary_encode()
    nulls = array.is_null().to_numpy(zero_copy_only=False)
    codes = pa.array(encoded.indices.to_numpy(), pa.int32(), mask=nulls)
    return pa.DictionaryArray.from_arrays(codes, encoded.dictionary)


class Lists:
    """Lists of brokers, each with a code."""

    def __init__(self) -> None:
        self._codes: dict[Ids, int] = {}
        self._lists: list[Ids] = []

    def __getitem__(self, code: int) -> Ids | None:
        return None if code == NOWHERE else self._lists[code]

    def __len__(self) -> int:
        return len(self._lists)

    def ids(self, code: int) -> Ids:
        """The list with a code; empty for none."""
        return () if code == NOWHERE else self._lists[code]

    def code(self, ids: Ids) -> int:
        """The code of a list."""
        known = self._codes.get(ids)
        if known is None:
            known = self._codes[ids] = len(self._lists)
            self._lists.append(ids)
        return known

    def column(self, array: pa.Array) -> Ints:
        """The codes of a column that `with_lists_coded` made."""
        lists = (tuple(np.frombuffer(one, np.int32).tolist()) for one in array.dictionary.to_pylist())
        codes = np.array([*map(self.code, lists), NOWHERE], np.int64)
        return codes[numbers(array.indices, NOWHERE)]

    def lowest(self, codes: Ints) -> Ints:
        """The lowest id of each list, 0 where there is none: below 0 where it has a placeholder."""
        return np.array([*(min(ids, default=0) for ids in self._lists), 0], np.int64)[codes]

    def sizes(self, codes: Ints) -> Ints:
        """How long each list is."""
        return np.array([*map(len, self._lists), 0], np.int64)[codes]


class Groups:
    """Rows that stand group by group, in the order of their offsets in each; `keys` is equal within a group."""

    def __init__(self, keys: Ints) -> None:
        self._rows = np.arange(len(keys))
        self.begins = np.ones(len(keys), bool)
        self.begins[1:] = keys[1:] != keys[:-1]
        self._first = np.maximum.accumulate(np.where(self.begins, self._rows, 0))

    @property
    def is_last(self) -> Bools:
        """Whether a row is the last of its group."""
        return np.append(self.begins[1:], np.ones(min(1, len(self.begins)), bool))

    def before(self) -> Ints:
        """The row before each row in its group, NOWHERE for the first."""
        return np.where(self.begins, NOWHERE, self._rows - 1)

    def last(self, wanted: Bools) -> Ints:
        """The last row before each row, in its group, of those that are wanted; NOWHERE where there is none."""
        latest = np.maximum.accumulate(np.where(wanted, self._rows, NOWHERE))
        earlier = np.concatenate(([NOWHERE], latest[:-1])) if len(latest) else latest
        return np.where(earlier >= self._first, earlier, NOWHERE)

    def had(self, wanted: Bools) -> Bools:
        """Whether one of the wanted rows stands before a row in its group."""
        return self.last(wanted) != NOWHERE

    def first(self, wanted: Bools) -> Ints:
        """The first row of each row's group of those that are wanted, if it stands before it; else NOWHERE."""
        firsts = wanted & ~self.had(wanted)
        return self.last(firsts)


def at(column: Ints, rows: Ints, otherwise: int = NONE) -> Ints:
    """The values of a column at some rows; `otherwise` for NOWHERE."""
    return np.append(column, otherwise)[rows]


def plus(column: Ints, more: Ints | int) -> Ints:
    """A sum that is NONE where the column is."""
    return np.where(column == NONE, NONE, column + more)


def combined(columns: Iterable[Ints]) -> Ints:
    """Codes from 0 on that are equal where all columns are."""
    return _dense(reduce(_paired, map(_from_zero, columns)))


def _from_zero(column: Ints) -> Ints:
    """Codes from 0 on that are equal where the column is, and not many more than rows."""
    low, high = int(column.min(initial=0)), int(column.max(initial=0))
    return column - low if high - low < _SPAN_MAX else _dense(column)


def _paired(first: Ints, second: Ints) -> Ints:
    """One number for two codes."""
    count = int(second.max(initial=0)) + 1
    if (int(first.max(initial=0)) + 1) * count > _CODES_MAX:
        first = _dense(first)
    return first * count + second


def _dense(column: Ints) -> Ints:
    codes: Ints = pa.array(column).dictionary_encode().indices.to_numpy().astype(np.int64)
    return codes


def powers(count: int) -> npt.NDArray[np.uint64]:
    """A number for each code below `count`; sums of them differ where the codes do."""
    return np.cumprod(np.full(count, _FACTOR, np.uint64), dtype=np.uint64)


def judged(rows: Bools, verdict: Callable[..., bool], *columns: Ints) -> Bools:
    """What `verdict` says of the values of the columns, for the given rows; False for others.

    It is called once for each combination of values, not once for each row.
    """
    return judged_by_row(rows, lambda row: verdict(*(column[row].item() for column in columns)), *columns)


def judged_by_row(rows: Bools, verdict: Callable[[int], bool], *columns: Ints) -> Bools:
    """The same where `verdict` is given one of the rows with each combination."""
    found = np.zeros(len(rows), bool)
    places = np.flatnonzero(rows)
    if len(places) == 0:
        return found
    codes = combined([column[places] for column in columns])
    example = np.empty(int(codes.max()) + 1, np.int64)
    example[codes] = places
    found[places] = np.array([verdict(row) for row in example.tolist()], bool)[codes]
    return found
