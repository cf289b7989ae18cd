"""Headers of Parquet pages, read before the pages: a reader allocates what they declare, whatever the footer says.

Format: https://github.com/apache/parquet-format (``PageHeader``, in Thrift's compact protocol).
"""

from dataclasses import dataclass, field
from typing import IO, Any

from tfopt.errors import ComponentError

MAX_PAGES = 256 << 20  # bytes of the largest pages of all columns, which are in memory at once
MAX_LIST_VALUES = 1 << 26  # of a row group: all may be in one row
PER_BYTE = 32  # larger pages and lists are read if the file has a byte for so many of theirs
MAX_EXPANSION = 1000  # uncompressed bytes, or values, per compressed byte, in a row group of more than MIN_EXPANDED
MIN_EXPANDED = 64 << 20
MAX_ROWS = 1024
MAX_TEXT = 256 << 20  # bytes of the texts of one batch: each may be as long as a page
MAX_VALUES = 1 << 22  # of the lists of one batch, if rows have equal lengths
HEADER = 1 << 10
LONGEST_HEADER = 1 << 24
DEPTH = 8
TOLERATED = 100  # bytes after the end of a column's pages: old writers did not count the header of its dictionary

TRUE, FALSE, BYTE, INT32, DOUBLE, BINARY, LIST, SET, STRUCT = 1, 2, 3, 5, 7, 8, 9, 10, 12
UNCOMPRESSED, COMPRESSED, VALUES = 2, 3, 1  # fields of a header, and of its page
ENCODINGS = {5: 2, 7: 2, 8: 4}  # field of the encoding, by that of the page: data, dictionary, data of version 2
DELTA_BYTE_ARRAY = 7  # an encoding in which a text consists of the beginning of the one before, and an end


@dataclass
class Column:
    """Sizes of the pages of a column in a row group.

    Attributes:
        packed: Compressed bytes.
        unpacked: Uncompressed bytes.
        largest: Uncompressed bytes of the largest page.
        values: Values, also of the dictionary.
        encodings: Encodings of the pages.
    """

    packed: int = 0
    unpacked: int = 0
    largest: int = 0
    values: int = 0
    encodings: set[int] = field(default_factory=set)


def rows_per_batch(file: str, stream: IO[bytes], metadata: Any, group: int) -> int:
    """Return how many rows of a row group can be in memory at once.

    Raises:
        ComponentError: If pages are larger than any writer makes them, or expand more than data do, or a header is
            damaged.
    """
    if not metadata.row_group(group).num_rows:
        return MAX_ROWS
    chunks = [metadata.row_group(group).column(index) for index in range(metadata.num_columns)]
    schemas = [metadata.schema.column(index) for index in range(metadata.num_columns)]
    columns = [_read_headers(file, stream, chunk) for chunk in chunks]
    lists, texts = [], []
    for column, schema in zip(columns, schemas, strict=True):
        lists += [column] if schema.max_repetition_level else []
        texts += [column] if schema.physical_type == "BYTE_ARRAY" else []
        column.unpacked = max(column.unpacked, column.values * schema.length)  # texts of equal lengths have one
        if is_list_of_texts(schema) and DELTA_BYTE_ARRAY in column.encodings:
            raise ComponentError(
                f"{file}: column {schema.path}: a list of texts with encoding DELTA_BYTE_ARRAY",
                "an encoding whose values can be measured before they are in memory",
                "write it with dictionaries, or with plain encoding",
            )
    packed = sum(column.packed for column in columns)
    expanded = max(sum(column.unpacked for column in columns), sum(column.values for column in columns))
    limits = (
        (sum(column.largest for column in columns), MAX_PAGES, PER_BYTE, "bytes of pages that are read at once"),
        (sum(column.values for column in lists), MAX_LIST_VALUES, PER_BYTE, "values of lists"),
        (expanded, MIN_EXPANDED, MAX_EXPANSION, "bytes or values"),
    )
    for size, limit, ratio, what in limits:
        if size > max(limit, ratio * packed):
            raise ComponentError(
                f"{file}: row group {group}: {packed} compressed bytes unpack to {size} {what}",
                f"at most {limit}, or {ratio} times the compressed bytes",
                "write it with smaller pages and row groups, such as those that the writer has by default",
            )
    by_text = MAX_TEXT // max([1, *(column.largest for column in texts)])
    by_values = MAX_VALUES * metadata.row_group(group).num_rows // max([1, *(column.values for column in lists)])
    return int(max(1, min(MAX_ROWS, by_text, by_values)))


def is_list_of_texts(schema: Any) -> bool:
    """Return True for lists of texts or bytes, which a row may have many of."""
    return bool(schema.max_repetition_level and schema.physical_type == "BYTE_ARRAY")


def _read_headers(file: str, stream: IO[bytes], chunk: Any) -> Column:
    """Read the headers of all pages of a column in a row group."""
    dictionary = chunk.dictionary_page_offset if chunk.has_dictionary_page else 0
    start = dictionary if dictionary and dictionary < chunk.data_page_offset else chunk.data_page_offset
    end, column = start + chunk.total_compressed_size, Column()
    while start < end:
        header, size = _read_header(file, stream, start)
        packed, unpacked = _size(header, COMPRESSED), _size(header, UNCOMPRESSED)
        if packed < 0 or unpacked < 0 or start + size + packed > end + TOLERATED:
            raise _damaged(file, start)
        column.packed += packed
        column.unpacked += unpacked
        column.largest = max(column.largest, unpacked)
        for kind, encoding in ENCODINGS.items():
            if page := header.get(-kind):
                column.values += max(0, _size(page, VALUES))
                column.encodings.add(_size(page, encoding))
        start += size + packed
    return column


def _size(fields: dict[int, Any], number: int) -> int:
    """Return an integer of a structure, -1 if it has none."""
    return int(fields.get(number, -1))


def _read_header(file: str, stream: IO[bytes], start: int) -> tuple[dict[int, Any], int]:
    """Return the integers and structures of a page's header by field, and its size."""
    size = HEADER
    while True:
        stream.seek(start)
        content = stream.read(size)
        try:
            reader = _Thrift(content)
            return reader.read_struct(DEPTH), reader.position
        except IndexError:
            if len(content) < size or size >= LONGEST_HEADER:
                raise _damaged(file, start) from None
            size = min(size * 16, LONGEST_HEADER)
        except ValueError:
            raise _damaged(file, start) from None


def _damaged(file: str, position: int) -> ComponentError:
    return ComponentError(
        f"{file}: no page header at byte {position}", "a complete Parquet file", "copy or write it again"
    )


class _Thrift:
    """Reads the compact protocol of Apache Thrift: integers and structures; other values are skipped."""

    def __init__(self, content: bytes) -> None:
        self._content, self.position = content, 0

    def read_struct(self, depth: int) -> dict[int, Any]:
        """Read the integers of 32 bits by field, and the structures by field with a minus sign."""
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            delta, kind = head >> 4, head & 15
            number = number + delta if delta else self._integer()
            value = self._value(kind, depth)
            if kind in (INT32, STRUCT):  # readers skip a field that has another type than theirs
                fields[number if kind == INT32 else -number] = value
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if not depth:
            raise ValueError("too deep")
        if kind in (TRUE, FALSE):
            return None
        if kind == STRUCT:
            return self.read_struct(depth - 1)
        if BYTE < kind < DOUBLE:
            return self._integer()
        if kind in (LIST, SET):
            self._skip_list(depth)
        elif kind in (BYTE, DOUBLE, BINARY):
            self._skip({BYTE: 1, DOUBLE: 8}.get(kind) or self._unsigned())
        else:  # a header has no maps
            raise ValueError("unknown type")
        return None

    def _skip_list(self, depth: int) -> None:
        head = self._byte()
        count, kind = head >> 4, head & 15
        count = self._unsigned() if count == 15 else count
        for _ in range(count):
            self._skip(1) if kind in (TRUE, FALSE) else self._value(kind, depth - 1)

    def _skip(self, size: int) -> None:
        self.position += size
        if self.position > len(self._content):
            raise IndexError(self.position)

    def _byte(self) -> int:
        self.position += 1
        return self._content[self.position - 1]

    def _unsigned(self) -> int:
        value, shift = 0, 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("too long")

    def _integer(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)
