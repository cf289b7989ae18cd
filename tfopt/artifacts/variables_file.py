"""The variables of a SavedModel without an optimizer's state, found without TensorFlow.

``variables.index`` is a sorted string table, as LevelDB writes it: blocks of keys with common prefixes, an index of the
blocks, and a footer. Its values are BundleEntryProto messages with the place of a variable in ``variables.data-*``.
Keras 2 and ``tf.saved_model.save`` store the optimizer of a compiled model there; no signature for serving reads it.
"""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tfopt.storage.protobuf_messages import read_fields, read_varint

DATA = re.compile(r"variables\.data-(\d{5})-of-\d{5}")
FOOTER, MAGIC = 48, 0xDB4775248B80FB57
UNCOMPRESSED = 0  # the kind of a block; TensorFlow writes no other one
SLOT = "/.OPTIMIZER_SLOT/"  # in the keys of optimizers of Keras 2 before 2.11
OPTIMIZER = "optimizer/"  # the attribute of a compiled model
# Optimizers of TensorFlow 1 name a slot after the variable.
SLOTS_V1 = {"Adadelta", "Adadelta_1", "Adagrad", "Adam", "Adam_1", "Ftrl", "Ftrl_1", "Momentum", "RMSProp", "RMSProp_1"}


@dataclass(frozen=True)
class StoredVariable:
    """The bytes of a variable in the file ``variables.data-SHARD-…``; ``key`` is its name in the checkpoint."""

    key: str
    shard: int
    offset: int
    size: int


def copy_without_optimizer(file: Path, target: Path) -> bool:
    """Write a file of variables without those of an optimizer; return False if it has none.

    Raises:
        OSError: If a file cannot be read.
        ValueError: If the index is damaged.
        IndexError: If the index is truncated.
    """
    matched = DATA.fullmatch(file.name)
    if not matched:
        return False
    variables = read_index(file.with_name("variables.index"))
    keys = {variable.key for variable in variables}
    stored = [variable for variable in variables if variable.size and variable.shard == int(matched[1])]
    left_out = [variable for variable in stored if _is_state(variable.key, keys)]
    if not left_out:
        return False
    if max(variable.offset + variable.size for variable in left_out) > file.stat().st_size:
        raise ValueError(f"{file}: shorter than its index says")
    with file.open("rb") as source, target.open("wb") as copy:
        for variable in sorted(left_out, key=lambda variable: variable.offset):
            _copy(source, copy, variable.offset - source.tell())
            source.seek(variable.offset + variable.size)
        shutil.copyfileobj(source, copy)
    return True


def read_index(file: Path) -> list[StoredVariable]:
    """Return the variables of a ``variables.index``."""
    content = file.read_bytes()
    footer = content[-FOOTER:]
    if len(footer) < FOOTER or int.from_bytes(footer[-8:], "little") != MAGIC:
        raise ValueError(f"{file}: not an index of variables")
    position = 0
    for _ in range(2):  # skip the handle of the block of metadata
        _, position = read_varint(footer, position)
    blocks = _entries(content, footer[position:])
    entries = [entry for _, handle in blocks for entry in _entries(content, handle)]
    return [_variable(key.decode(), value) for key, value in entries if key]  # the empty key is the header


def _is_state(key: str, keys: set[str]) -> bool:
    variable, _, slot = key.rpartition("/")
    return SLOT in key or key.startswith(OPTIMIZER) or (slot in SLOTS_V1 and variable in keys)


def _entries(content: bytes, handle: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block; a key is stored as what differs from the key before it."""
    offset, position = read_varint(handle, 0)
    size, _ = read_varint(handle, position)
    if content[offset + size] != UNCOMPRESSED:
        raise ValueError("a compressed block")
    block = content[offset : offset + size]
    end = size - 4 * (int.from_bytes(block[-4:], "little") + 1)  # the places of whole keys follow
    position, key = 0, b""
    while position < end:
        shared, position = read_varint(block, position)
        rest, position = read_varint(block, position)
        length, position = read_varint(block, position)
        key = key[:shared] + block[position : position + rest]
        position += rest
        yield key, block[position : position + length]
        position += length


def _variable(key: str, message: bytes) -> StoredVariable:
    """Parse a BundleEntryProto: the fields 3 to 5 are shard, offset and size."""
    fields = dict(read_fields(message))
    shard, offset, size = (int(fields.get(number, 0)) for number in (3, 4, 5))
    return StoredVariable(key, shard, offset, size)


def _copy(source: IO[bytes], target: IO[bytes], count: int) -> None:
    while count > 0 and (chunk := source.read(min(count, 1 << 20))):
        target.write(chunk)
        count -= len(chunk)
