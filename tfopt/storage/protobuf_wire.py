"""Read the wire format of protobuf without message types, such as one field of a large file.

Source: protobuf's documentation, "Encoding".
"""

from collections.abc import Iterator
from typing import TypeVar

Buffer = TypeVar("Buffer", bytes, memoryview)
VARINT, FIXED_64, DELIMITED, FIXED_32 = 0, 1, 2, 5  # the wire types
MAX_NUMBER = 2**29 - 1  # of a field; protobuf drops further bits and reads another field


def read_varint(data: bytes | memoryview, offset: int) -> tuple[int, int]:
    r"""Return a number that is stored in seven bits a byte, and the offset after it.

    >>> read_varint(b"\x96\x01", 0)
    (150, 2)
    """
    value = shift = 0
    while data[offset] & 0x80:
        value |= (data[offset] & 0x7F) << shift
        offset, shift = offset + 1, shift + 7
    return value | data[offset] << shift, offset + 1


def read_fields(data: Buffer) -> Iterator[tuple[int, int | Buffer]]:
    """Yield the numbers and values of a message's varint and length-delimited fields; others are skipped.

    Raises:
        ValueError: If the message is damaged.
        IndexError: If it is truncated.
    """
    offset = 0
    while offset < len(data):
        key, offset = read_varint(data, offset)
        number, wire_type = key >> 3, key & 7
        if not 0 < number <= MAX_NUMBER:
            raise ValueError(f"field number {number}")
        if wire_type == VARINT:
            value, offset = read_varint(data, offset)
            yield number, value
        elif wire_type == DELIMITED:
            size, offset = read_varint(data, offset)
            if offset + size > len(data):
                raise ValueError("a field that ends after its message")
            yield number, data[offset : offset + size]
            offset += size
        elif wire_type in (FIXED_64, FIXED_32):
            offset += 8 if wire_type == FIXED_64 else 4
        else:
            raise ValueError(f"wire type {wire_type}")
