"""What TensorRT's calibrator found, in a file that says of what: never taken for another model, data or version."""

import hashlib
import json
import logging
from pathlib import Path

import numpy as np

from tfopt.components.convert_tensorrt import timing_cache
from tfopt.data.batches import Batch

END = b"\n"  # of the line that says what the rest is of


class Cache:
    """One calibration in a file.

    Attributes:
        taken: Whether the file held this very calibration when it was read.
    """

    def __init__(self, name: str | None, **key: str | int) -> None:
        """Name the file (none to keep nothing) and everything that the ranges depend on."""
        self._file = Path(name) if name else None
        self._key = json.dumps(key, sort_keys=True).encode()
        self.taken = False

    @property
    def digest(self) -> str:
        """A short name for what the ranges depend on."""
        return hashlib.sha256(self._key).hexdigest()[:16]

    def read(self) -> bytes | None:
        """The calibration, if the file has this one."""
        if not self._file:
            return None
        head, _, found = timing_cache.read(self._file).partition(END)
        self.taken = bool(found) and head == self._key
        if head and not self.taken:
            logging.getLogger("tfopt").info("%s is of another model, data or TensorRT: calibrated anew", self._file)
        return found if self.taken else None

    def write(self, found: bytes) -> None:
        """Keep a calibration, in the place of what was there."""
        if self._file:
            timing_cache.update(self._file, lambda _: self._key + END + found)


def content(sampled: Batch) -> str:
    """A digest of what is calibrated on: names, types, shapes and values."""
    total = hashlib.sha256()
    for name, array in sorted(sampled.items()):
        total.update(f"{name}\0{array.dtype}\0{array.shape}\n".encode() + np.ascontiguousarray(array).tobytes())
    return total.hexdigest()
