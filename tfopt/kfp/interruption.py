"""Notice SIGINT and SIGTERM also where Python ignores the exception of their handler."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType


@contextlib.contextmanager
def recorded_signals() -> Iterator[Callable[[], None]]:
    """Record SIGINT and SIGTERM besides calling their handlers, and yield a function that calls the handlers again.

    Python ignores an exception in a finalizer or weakref callback, and libraries end many calls in one. A loop that
    waits calls the function before each pause; it does nothing if no signal was received.
    """
    received: list[Callable[[], object]] = []

    def handle_again() -> None:
        for handle in received:
            handle()

    if threading.current_thread() is not threading.main_thread():  # only that one receives signals
        yield handle_again
        return
    present = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # the others are ignored, or have the kernel's default
    handlers = {int(number): handler for number, handler in present.items() if callable(handler)}

    def record(number: int, frame: FrameType | None) -> None:
        received.append(partial(handlers[number], number, None))
        handlers[number](number, frame)

    try:
        for number in handlers:
            signal.signal(number, record)
        yield handle_again
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
