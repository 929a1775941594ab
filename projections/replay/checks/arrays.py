"""Columns of events as NumPy arrays, and window functions on them: for each row, the last earlier row of its group.

These are faster than SQL's window functions. Rows are sorted once by group and offset. Then "the last creation before
this event" is one pass over an array, without a Python object for each row. Texts and lists of broker ids become
dictionary codes: equal numbers mean equal values. There are far fewer distinct lists than events, so a predicate on
lists is a plain function, called once for each combination that occurs (`judged`).

Non-goal: the checks themselves.
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
"""Broker ids; negative ids are placeholders (KIP-409)."""

NONE = -(1 << 62)
"""Null in a column of numbers: lower than any id, epoch or time."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SPAN_MAX = 1 << 31
_CODES_MAX = 1 << 62
NOWHERE = -1
"""The row number or list code for "none"."""


def numbers(array: pa.Array, otherwise: int = NONE) -> Ints:
    """A column of integers or booleans as an array, with `otherwise` for null."""
    filled: Ints = array.cast(pa.int64()).fill_null(otherwise).to_numpy(zero_copy_only=False)
    return filled


def coded(array: pa.Array) -> tuple[Ints, list[str]]:
    """A column of texts as codes, and the list of texts that the codes index; NOWHERE for null."""
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
    """A column of lists of ids, dictionary-encoded: each distinct list is stored once, as bytes."""
    sizes = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    ends = np.concatenate(([0], np.cumsum(sizes * 4))).astype(np.int32)
    ids = array.flatten().to_numpy(zero_copy_only=False).astype(np.int32)
    as_bytes = pa.Array.from_buffers(pa.binary(), len(array), [None, pa.py_buffer(ends), pa.py_buffer(ids)])
    encoded = as_bytes.dictionary_encode()
    nulls = array.is_null().to_numpy(zero_copy_only=False)
    codes = pa.array(encoded.indices.to_numpy(), pa.int32(), mask=nulls)
    return pa.DictionaryArray.from_arrays(codes, encoded.dictionary)


class Lists:
    """The distinct lists of broker ids, each with a code."""

    def __init__(self) -> None:
        self._codes: dict[Ids, int] = {}
        self._lists: list[Ids] = []

    def __getitem__(self, code: int) -> Ids | None:
        return None if code == NOWHERE else self._lists[code]

    def __len__(self) -> int:
        return len(self._lists)

    def ids(self, code: int) -> Ids:
        """The list with a code; empty for NOWHERE."""
        return () if code == NOWHERE else self._lists[code]

    def code(self, ids: Ids) -> int:
        """The code of a list; a new list gets the next code."""
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
        """The lowest id of each list: negative if the list has a placeholder, 0 for an empty list or NOWHERE."""
        return np.array([*(min(ids, default=0) for ids in self._lists), 0], np.int64)[codes]

    def sizes(self, codes: Ints) -> Ints:
        """The length of each list; 0 for NOWHERE."""
        return np.array([*map(len, self._lists), 0], np.int64)[codes]


class Groups:
    """Rows sorted by group, and by offset within a group. Rows of a group have equal `keys`."""

    def __init__(self, keys: Ints) -> None:
        self._rows = np.arange(len(keys))
        self.begins = np.ones(len(keys), bool)
        self.begins[1:] = keys[1:] != keys[:-1]
        self._first = np.maximum.accumulate(np.where(self.begins, self._rows, 0))

    @property
    def is_last(self) -> Bools:
        """True for the last row of each group."""
        return np.append(self.begins[1:], np.ones(min(1, len(self.begins)), bool))

    def before(self) -> Ints:
        """For each row: the previous row of its group; NOWHERE for the first."""
        return np.where(self.begins, NOWHERE, self._rows - 1)

    def last(self, wanted: Bools) -> Ints:
        """For each row: the last earlier row of its group that is wanted; NOWHERE if there is none."""
        latest = np.maximum.accumulate(np.where(wanted, self._rows, NOWHERE))
        earlier = np.concatenate(([NOWHERE], latest[:-1])) if len(latest) else latest
        return np.where(earlier >= self._first, earlier, NOWHERE)

    def had(self, wanted: Bools) -> Bools:
        """For each row: True if an earlier row of its group is wanted."""
        return self.last(wanted) != NOWHERE

    def first(self, wanted: Bools) -> Ints:
        """For each row: the first wanted row of its group, if that is earlier; else NOWHERE."""
        firsts = wanted & ~self.had(wanted)
        return self.last(firsts)


def at(column: Ints, rows: Ints, otherwise: int = NONE) -> Ints:
    """The values of a column at the given rows; `otherwise` for NOWHERE."""
    return np.append(column, otherwise)[rows]


def plus(column: Ints, more: Ints | int) -> Ints:
    """The sum of two columns; NONE where `column` is NONE."""
    return np.where(column == NONE, NONE, column + more)


def combined(columns: Iterable[Ints]) -> Ints:
    """One code for each combination of values: equal codes mean equal values in all columns."""
    return _dense(reduce(_paired, map(_from_zero, columns)))


def _from_zero(column: Ints) -> Ints:
    """Codes from 0, equal where the values are, below _SPAN_MAX or the number of rows."""
    low, high = int(column.min(initial=0)), int(column.max(initial=0))
    return column - low if high - low < _SPAN_MAX else _dense(column)


def _paired(first: Ints, second: Ints) -> Ints:
    count = int(second.max(initial=0)) + 1
    if (int(first.max(initial=0)) + 1) * count > _CODES_MAX:
        first = _dense(first)
    return first * count + second


def _dense(column: Ints) -> Ints:
    codes: Ints = pa.array(column).dictionary_encode().indices.to_numpy().astype(np.int64)
    return codes


def powers(count: int) -> npt.NDArray[np.uint64]:
    """The first `count` powers of _FACTOR modulo 2**64, as weights of a hash."""
    return np.cumprod(np.full(count, _FACTOR, np.uint64), dtype=np.uint64)


def judged(rows: Bools, verdict: Callable[..., bool], *columns: Ints) -> Bools:
    """The result of `verdict(*values of the columns)` for the given rows; False for other rows.

    `verdict` is called once for each combination of values, not for each row.
    """
    return judged_by_row(rows, lambda row: verdict(*(column[row].item() for column in columns)), *columns)


def judged_by_row(rows: Bools, verdict: Callable[[int], bool], *columns: Ints) -> Bools:
    """As `judged`, but `verdict` gets the number of one row with each combination of values."""
    found = np.zeros(len(rows), bool)
    places = np.flatnonzero(rows)
    if len(places) == 0:
        return found
    codes = combined([column[places] for column in columns])
    example = np.empty(int(codes.max()) + 1, np.int64)
    example[codes] = places
    found[places] = np.array([verdict(row) for row in example.tolist()], bool)[codes]
    return found
