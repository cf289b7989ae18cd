"""A file with how fast each kernel was on this GPU, which runs share: read before a build, merged into after it."""

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tfopt.artifacts import staging as partial
from tfopt.errors import ComponentError


@contextlib.contextmanager
def lent(config: Any, name: str | None) -> Iterator[dict[str, Any] | None]:
    """Give a TensorRT builder's configuration the kept times, and keep what it adds when the build went well.

    Args:
        config: A ``tensorrt.IBuilderConfig``.
        name: The file; None to keep nothing.

    Yields:
        What the model card says of it, whole when the block ends.
    """
    if name is None:
        yield None
        return
    file = Path(name)
    kept = read(file)
    told = {"file": file.name, "bytes_before": len(kept), "taken": bool(kept)}
    cache = config.create_timing_cache(kept)
    if cache is None or not config.set_timing_cache(cache, False):  # of another GPU or TensorRT: begun anew
        told["taken"] = False
        config.set_timing_cache(config.create_timing_cache(b""), False)
    yield told

    def merged(others: bytes) -> bytes:
        mine, theirs = config.get_timing_cache(), config.create_timing_cache(others) if others else None
        if theirs is not None:
            mine.combine(theirs, False)
        return bytes(mine.serialize())

    told["bytes_after"] = len(update(file, merged))


def read(file: Path) -> bytes:
    """What the file holds; nothing where it is not there yet.

    Raises:
        ComponentError: When it cannot be read.
    """
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise _refusal(error) from error


def update(file: Path, merge: Callable[[bytes], bytes]) -> bytes:
    """Replace the file's content by what ``merge`` makes of it, whole or not at all, one process after the other.

    Raises:
        ComponentError: When it cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.with_name(f".{file.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            partial.clear(file.parent)
            part = partial.name(file.parent)
            try:
                content = merge(read(file))
                part.write_bytes(content)
                part.replace(file)
            finally:
                part.unlink(missing_ok=True)
    except OSError as error:
        raise _refusal(error) from error
    return content


def _refusal(error: OSError) -> ComponentError:
    return ComponentError(str(error), "a file that can be read and written", "name another one, or mend permissions")
