"""The sizes of a Parquet file's columns, known before anything is decompressed.

A page of a few bytes may decompress to gigabytes. pyarrow decompresses whole pages by the sizes in their headers. The
sizes in the footer, which its metadata shows, are only the writer's claim, so a limit on them would not protect a
reader. Therefore this module reads the page headers: a few fields of Thrift's compact protocol.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, NamedTuple

FOOTER_BYTES_MAX: Final = 4 << 20
_END: Final = b"PAR1"
_DICTIONARY: Final = 2
"""The type of a page with a dictionary."""
_PLAIN: Final = 0
_DEPTH_MAX: Final = 8
_TRUE, _FALSE, _I8, _I64, _DOUBLE, _LIST, _SET, _STRUCT = 1, 2, 3, 6, 7, 9, 10, 12


class BadPages(ValueError):
    """Invalid pages, or pages that no archiver writes."""


class Sizes(NamedTuple):
    """The decompressed sizes of some columns of a row group."""

    unpacked: int
    values: int
    are_plain: bool
    """True if no value needs more bytes than it has in its page: no dictionary, no shared prefixes."""


def check_footer(content: bytes) -> None:
    """Raise BadPages if a file has no footer of valid size."""
    if content[-4:] != _END or int.from_bytes(content[-8:-4], "little") > FOOTER_BYTES_MAX:
        raise BadPages(f"it has no footer of at most {FOOTER_BYTES_MAX} bytes")


def sizes(content: bytes, group: Any, columns: Collection[str]) -> Sizes:
    """The sizes of some columns of a row group. Raises BadPages."""
    unpacked = values = 0
    are_plain = True
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema.partition(".")[0] not in columns:
            continue
        start = column.data_page_offset
        if column.has_dictionary_page:
            start = min(start, column.dictionary_page_offset)
        end = start + column.total_compressed_size
        if not 0 <= start <= end <= len(content):
            raise BadPages("a column is not in the file")
        headers = _Headers(content, start, end)
        while headers.at < headers.end:
            fields = headers.struct()
            try:
                kind, size, compressed = fields[1], fields[2], fields[3]
                data, encoding = (fields[8], 4) if 8 in fields else (fields[7 if kind == _DICTIONARY else 5], 2)
                if min(kind, size, compressed, data[1], data[encoding]) < 0:
                    raise BadPages("a page header has a negative size")
            except (KeyError, TypeError):
                raise BadPages("a page header cannot be read") from None
            headers.at += compressed
            unpacked += size
            values += data[1]
            are_plain &= kind != _DICTIONARY and data[encoding] == _PLAIN
    return Sizes(unpacked, values, are_plain)


class _Headers:
    """Reads page headers: Thrift's compact protocol, as far as they use it."""

    def __init__(self, content: bytes, at: int, end: int) -> None:
        self._content, self.at, self.end = content, at, end

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """The fields of a struct by their numbers. Raises BadPages."""
        if depth > _DEPTH_MAX:
            raise BadPages("a page header is nested too deep")
        fields: dict[int, Any] = {}
        number = 0
        while (first := self._byte()) != 0:
            number = number + (first >> 4) if first >> 4 else self._zigzag()
            fields[number] = self._value(first & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind == _I8:
            return self._byte()
        if kind <= _I64:
            return self._zigzag()
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind in (_LIST, _SET):
            raise BadPages("a page header has a list")
        length = 8 if kind == _DOUBLE else self._varint()  # a text follows its length
        self.at += length
        return None

    def _zigzag(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def _varint(self) -> int:
        number = 0
        for shift in range(0, 64, 7):
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise BadPages("a page header has an endless number")

    def _byte(self) -> int:
        if self.at >= self.end:
            raise BadPages("a page header does not end")
        self.at += 1
        return self._content[self.at - 1]
