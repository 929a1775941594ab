"""Reads and writes Parquet files of an archive, which may be forged: sizes are checked before decompression.

A page of a few bytes may decompress to gigabytes. pyarrow decompresses whole pages by the sizes in their headers. The
sizes in the metadata of the footer come from the writer, who may be an attacker, so a limit on them would not protect a
reader. Therefore this module reads the page headers: a few fields of Thrift's compact protocol. A row group has at most
GROUP rows of about GROUP_BYTES, and columns of bytes are written without a dictionary.
"""

from base64 import b64decode, b64encode
from collections.abc import Collection, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from events.logs.archive.manifest import ArchiveDamaged

GROUP: Final = 8192
"""Maximum rows of a row group."""
GROUP_BYTES: Final = 16 << 20
UNPACKED_BYTES_MAX: Final = 128 << 20
_VALUES_MAX: Final = 1 << 25
"""Limits of the decompressed columns of a row group. An event is smaller than its request, 100 MiB by default."""
FOOTER_BYTES_MAX: Final = 32 << 20
"""A footer has an index of about 20 bytes an event."""
_INDEX: Final = b"topicwright.index"
_ERRORS: Final = (pa.ArrowException, OSError, KeyError)


class ParquetWriter:
    """Writes a Parquet file in memory, with an index in its footer."""

    def __init__(self, schema: pa.Schema, plain: Collection[str]) -> None:
        """The columns `plain` get no dictionary."""
        self._sink = pa.BufferOutputStream()
        empty = pa.BufferOutputStream()
        pq.write_table(schema.empty_table(), empty)
        paths = [one.path for one in pq.read_metadata(pa.BufferReader(empty.getvalue())).schema]
        self._writer = pq.ParquetWriter(
            self._sink, schema, compression="zstd", use_dictionary=[one for one in paths if one not in plain]
        )

    def write_group(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=GROUP)

    def done(self, index: bytes = b"") -> bytes:
        """The file, with `index` in its footer."""
        if index:
            self._writer.add_key_value_metadata({_INDEX: b64encode(index)})  # other readers expect text there
        self._writer.close()
        content: bytes = self._sink.getvalue().to_pybytes()
        return content


def footer_of(content: bytes) -> bytes:
    """The footer of a file, with its length. Raises ArchiveDamaged."""
    size = int.from_bytes(content[-8:-4], "little") + 8
    if content[-4:] != _END or size > min(FOOTER_BYTES_MAX, len(content)):
        raise BadPages(f"it has no footer of at most {FOOTER_BYTES_MAX} bytes")
    return content[-size:]


def index_in(name: str, content: bytes) -> bytes:
    """The index in the footer of a file. Raises ArchiveDamaged."""
    try:
        metadata = pq.read_metadata(pa.BufferReader(footer_of(content))).metadata or {}
        return b64decode(metadata[_INDEX], validate=True)
    except (*_ERRORS, ValueError) as error:
        raise ArchiveDamaged(f"{name} has no index that can be read: {error}") from None


class ParquetFile:
    """A Parquet file in memory; any thread may read it. All methods raise ArchiveDamaged."""

    def __init__(self, name: str, content: bytes) -> None:
        self.name = name
        self.content = content
        self._metadata: pq.FileMetaData | None = None
        try:
            footer_of(content)
            metadata = self._metadata = self._open().metadata
        except (BadPages, *_ERRORS) as error:
            raise self._unreadable(error) from None
        self.group_rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        for rows in self.group_rows:
            if not 0 < rows <= GROUP:
                raise ArchiveDamaged(f"{name} has a group of {rows} rows; allowed: 1 to {GROUP}")

    @property
    def schema(self) -> pa.Schema:
        return self._open().schema_arrow

    def read(self, group: int, columns: Sequence[str], *, plain: bool = False) -> pa.Table:
        """Some columns of a row group; with `plain`, only if no value takes more memory than in its page."""
        try:
            rows = self._metadata.row_group(group)  # type: ignore[union-attr]
            unpacked, values, are_plain = sizes(self.content, rows, columns)
            if unpacked > UNPACKED_BYTES_MAX or values > _VALUES_MAX:
                raise ArchiveDamaged(
                    f"{self.name} has a group that unpacks to {unpacked} bytes, {values} values; allowed: "
                    f"{UNPACKED_BYTES_MAX} bytes, {_VALUES_MAX} values"
                )
            if plain and not are_plain:
                raise ArchiveDamaged(f"{self.name} has values in an encoding that is not an archive's")
            table = self._open().read_row_group(group, columns=list(columns), use_threads=False)  # quickly read
            missing = set(columns) - set(table.column_names)
        except (BadPages, *_ERRORS) as error:
            raise self._unreadable(error) from None
        if missing:
            raise ArchiveDamaged(f"{self.name} cannot be read: it lacks the columns {', '.join(sorted(missing))}")
        return table

    def _open(self) -> pq.ParquetFile:
        """A reader for one thread. The file's metadata is decoded once."""
        return pq.ParquetFile(pa.BufferReader(self.content), metadata=self._metadata)

    def _unreadable(self, error: Exception) -> ArchiveDamaged:
        return ArchiveDamaged(f"{self.name} cannot be read: {error}")


# --- the sizes of pages

_END: Final = b"PAR1"
_DICTIONARY: Final = 2
"""The type of a page with a dictionary."""
_PLAIN: Final = 0
_DEPTH_MAX: Final = 8
_TRUE, _FALSE, _I8, _I64, _DOUBLE, _LIST, _SET, _STRUCT = 1, 2, 3, 6, 7, 9, 10, 12


class BadPages(ValueError):
    """Invalid pages, or pages that no archiver writes."""


def sizes(content: bytes, group: Any, columns: Collection[str]) -> tuple[int, int, bool]:
    """The decompressed bytes of some columns of a row group, the number of their values, and True if no value needs
    more bytes than it has in its page: no dictionary, no shared prefixes. Raises BadPages."""
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
    return unpacked, values, are_plain


class _Headers:
    """Reads page headers: the part of Thrift's compact protocol that Parquet's page headers use."""

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
