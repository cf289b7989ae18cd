"""Limit the time of calls of models: a graph may never end, and Python cannot interrupt a call of a library.

Limits are generous, and scale with what is known: the size of the model, the number of records, and the time that a
record took before.
"""

import contextvars
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from tfopt.errors import AttemptError

MINIMUM_S = 60.0  # of every limit
SECONDS_PER_MB = 10.0  # a call may have to compile or optimize the graph first
RECORD_S, RECORD_S_PER_MB = 0.02, 0.01  # before the time of a record is known
FACTOR = 100  # by which the time of a record may exceed the longest one before: loops may depend on the record
BUSY = 4  # other processes may make a call take as many times its limit, if it got that much less of the processors
LOOK_S = 1.0
CONVERSION = 10  # the limit of a conversion, which may calibrate and compare, as a multiple of that of a call

T = TypeVar("T")


class EndlessError(AttemptError):
    """A call of a model did not end in time."""


def limit_seconds(size: int, records: int = 1, longest_s: float = 0.0) -> float:
    """Return the limit of a call.

    Args:
        size: Bytes of the model.
        records: Records in the call.
        longest_s: The longest time that a record took in earlier calls; 0 before the first one.

    >>> round(limit_seconds(0)), round(limit_seconds(100_000_000)), round(limit_seconds(0, 1000, longest_s=0.01))
    (60, 1061, 1060)
    """
    megabytes = size / 1e6
    per_record = max(RECORD_S + RECORD_S_PER_MB * megabytes, FACTOR * longest_s)
    return MINIMUM_S + SECONDS_PER_MB * megabytes + per_record * records


def call_within(limit_s: float, function: Callable[[], T], doing: str, stop: Callable[[], object] = bool) -> T:
    """Call a function in a thread and return its result, or raise its exception.

    A call that exceeds the limit goes on until the process ends, unless ``stop`` ends it.

    Raises:
        EndlessError: If the call does not end in time.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            results.append(function())
        except BaseException as error:  # of the caller's thread
            errors.append(error)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(call,), name=doing, daemon=True)
    start, processor_start = time.monotonic(), time.process_time()
    thread.start()
    thread.join(limit_s)
    while thread.is_alive() and time.monotonic() - start < BUSY * limit_s:
        if BUSY * (time.process_time() - processor_start) > limit_s:
            break
        thread.join(LOOK_S)
    if thread.is_alive():
        seconds = time.monotonic() - start
        stop()
        thread.join(LOOK_S)  # a thread that returns while the process ends would abort it
        raise EndlessError(
            f"{doing}: no end after {seconds:.0f} s",
            "a model whose calls end; the limit grows with the size of the model and what its records took before",
            "bound its loops: maximum_iterations of tf.while_loop, take of a tf.data.Dataset, the trip count of an "
            "ONNX Loop; if it is only slow, use a faster machine",
        )
    if errors:
        raise errors.pop()  # no reference to a traceback that refers to this frame
    return results[0]
