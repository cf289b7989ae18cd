"""Cache files of TensorRT that conversions share: kernel timings, and results of the entropy calibrator."""

import contextlib
import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tfopt.data.batches import Batch
from tfopt.errors import ComponentError
from tfopt.storage.folder_lock import lock_file
from tfopt.storage.staging import replace_file
from tfopt.value_types import JsonObject

HEADER_END = b"\n"


@contextlib.contextmanager
def timing_cache(config: Any, name: str | None) -> Iterator[JsonObject | None]:
    """Load the timing cache into a ``tensorrt.IBuilderConfig``, and merge new timings into the file after the block.

    Yields:
        Metadata for the model card, complete after the block; None without a file.
    """
    if name is None:
        yield None
        return
    file = Path(name)
    stored = read(file)
    cache, empty = config.create_timing_cache(stored), config.create_timing_cache(b"")
    # TensorRT reads a damaged file as an empty cache, with only a warning. It rejects that of another GPU or version.
    used = cache is not None and _size(cache) > _size(empty) and config.set_timing_cache(cache, False)
    if not used:
        config.set_timing_cache(empty, False)
    facts = {"file": file.name, "bytes_before": len(stored), "taken": used}
    yield facts

    def merge(others: bytes) -> bytes:
        mine, theirs = config.get_timing_cache(), config.create_timing_cache(others) if others else None
        if theirs is not None:
            mine.combine(theirs, False)
        return bytes(mine.serialize())

    facts["bytes_after"] = len(update(file, merge))


def _size(cache: Any) -> int:
    return len(bytes(cache.serialize()))


class CalibrationCache:
    """One calibration in a file, reused only for the same model, examples, batch size and version of TensorRT.

    ``hit`` is True if the file held this calibration when it was read.
    """

    def __init__(self, name: str | None, **key: str | int) -> None:
        """Store the file name (None to cache nothing) and everything that the ranges depend on."""
        self._file = Path(name) if name else None
        self._key = json.dumps(key, sort_keys=True).encode()
        self.hit = False

    @property
    def digest(self) -> str:
        """The identifier of everything that the ranges depend on."""
        return hashlib.sha256(self._key).hexdigest()[:16]

    def read(self) -> bytes | None:
        """Return the calibration if the file has this one."""
        if not self._file:
            return None
        header, _, calibration = read(self._file).partition(HEADER_END)
        self.hit = bool(calibration) and header == self._key
        if header and not self.hit:
            logging.getLogger(__name__).info(
                "%s is of another model, other data or another TensorRT: calibrating again", self._file
            )
        return calibration if self.hit else None

    def write(self, calibration: bytes) -> None:
        """Replace the content of the file."""
        if self._file:
            update(self._file, lambda _: self._key + HEADER_END + calibration)


def digest_inputs(sampled: Batch) -> str:
    """Return a digest of calibration inputs: names, dtypes, shapes and values."""
    total = hashlib.sha256()
    for name, array in sorted(sampled.items()):
        total.update(f"{name}\0{array.dtype}\0{array.shape}\n".encode() + np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def read(file: Path) -> bytes:
    """Return the content of a file; nothing if it does not exist.

    Raises:
        ComponentError: If it cannot be read.
    """
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise _file_error(error) from error


def update(file: Path, merge: Callable[[bytes], bytes]) -> bytes:
    """Replace the content of a file by ``merge(content)``, atomically, under a lock between processes.

    Raises:
        ComponentError: If it cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with lock_file(file.with_name(f".{file.name}.lock")):
            content = merge(read(file))
            replace_file(file, content)
    except OSError as error:
        raise _file_error(error) from error
    return content


def _file_error(error: OSError) -> ComponentError:
    return ComponentError(str(error), "a file that can be read and written", "name another one, or fix its permissions")
