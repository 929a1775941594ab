"""The sizes of a Parquet file's columns, known before anything is decompressed.

A page of a few bytes may decompress to gigabytes. pyarrow decompresses whole pages by the sizes in their headers; the
sizes in the footer, which its metadata shows, are only a claim that it never compares with them. So a limit on those
would not protect a reader, and this module reads the page headers: a few fields of Thrift's compact protocol.
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
_TRUE, _FALSE, _I8, _I64, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 6, 7, 8, 9, 10, 12


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
        pages = _Pages(content, start, start + column.total_compressed_size)
        while pages.at < pages.end:
            header = pages.take()
            unpacked += header.unpacked
            values += header.values
            are_plain &= header.type != _DICTIONARY and header.encoding == _PLAIN
    return Sizes(unpacked, values, are_plain)


class _Header(NamedTuple):
    type: int
    unpacked: int
    values: int
    encoding: int


class _Pages:
    """Reads the page headers of a column."""

    def __init__(self, content: bytes, start: int, end: int) -> None:
        if not 0 <= start <= end <= len(content):
            raise BadPages("a column is not in the file")
        self._content = content
        self.at, self.end = start, end

    def take(self) -> _Header:
        """The next header; skips its page. Raises BadPages."""
        try:
            fields = self._struct(0)
            kind, unpacked, pairs_file = fields[1], fields[2], fields[3]
            data, encoding = (fields[8], 4) if 8 in fields else (fields[7 if kind == _DICTIONARY else 5], 2)
            header = _Header(kind, unpacked, data[1], data[encoding])
        except (KeyError, IndexError, TypeError):
            raise BadPages("the header of a page cannot be read") from None
        if pairs_file < 0 or min(header) < 0:
            raise BadPages("the header of a page has a negative size")
        self.at += pairs_file
        return header

    def _struct(self, depth: int) -> dict[int, Any]:
        if depth > _DEPTH_MAX:
            raise BadPages("the header of a page is nested too deep")
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
            return self._struct(depth + 1)
        if kind in (_LIST, _SET):
            raise BadPages("the header of a page has a list")
        passed = 8 if kind == _DOUBLE else self._varint()  # a text, after its length
        self.at += passed
        return None

    def _zigzag(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7
            if shift > 63:
                raise BadPages("the header of a page has a number without end")

    def _byte(self) -> int:
        if self.at >= self.end:
            raise BadPages("the header of a page does not end")
        self.at += 1
        return self._content[self.at - 1]
