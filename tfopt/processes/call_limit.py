"""Limit the time of calls of models: a graph may never end, and Python cannot interrupt a call of a library.

Limits are generous, and scale with what is known: the size of the model, the number of records, and the time that a
record took before.
"""

import contextvars
import functools
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any, TypeVar

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
    start, processor_start = time.monotonic(), time.process_time()
    call = _start(functools.partial(contextvars.copy_context().run, function))
    wait([call], limit_s)
    while not call.done() and time.monotonic() - start < BUSY * limit_s:
        if BUSY * (time.process_time() - processor_start) > limit_s:
            break
        wait([call], LOOK_S)
    if not call.done():
        seconds = time.monotonic() - start
        stop()
        wait([call], LOOK_S)  # a thread that returns while the process ends would abort it
        raise EndlessError(
            f"{doing}: no end after {seconds:.0f} s",
            "a model whose calls end; the limit grows with the size of the model and what its records took before",
            "bound its loops: maximum_iterations of tf.while_loop, take of a tf.data.Dataset, the trip count of an "
            "ONNX Loop; if it is only slow, use a faster machine",
        )
    try:
        return call.result()
    finally:
        del call  # else it would refer to the exception, whose traceback refers to this frame


Call = tuple[Future[Any], Callable[[], Any]]

# The queues of threads that wait for their next call. A new thread for each call would cost more: TensorFlow looks up
# the kernels of each operation once for each thread.
_idle: list[SimpleQueue[Call]] = []
os.register_at_fork(after_in_child=_idle.clear)


def _start(function: Callable[[], T]) -> Future[T]:
    """Call a function in an idle thread, or in a new one if there is none."""
    try:
        calls = _idle.pop()
    except IndexError:
        calls = SimpleQueue()
        threading.Thread(target=_serve, args=(calls,), name="calls within a limit", daemon=True).start()
    future: Future[T] = Future()
    calls.put((future, function))
    return future


def _serve(calls: SimpleQueue[Call]) -> None:
    while True:
        _make_call(calls)


def _make_call(calls: SimpleQueue[Call]) -> None:
    """Make one call. Afterwards, nothing here refers to its function and its result."""
    future, function = calls.get()
    try:
        result = function()
    except BaseException as error:  # of the caller's thread
        _idle.append(calls)
        future.set_exception(error)
        del future, function  # as the traceback refers to this frame
    else:
        _idle.append(calls)  # before the caller goes on, whose next call is for this thread
        future.set_result(result)
