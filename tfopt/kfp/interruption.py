"""Notice SIGINT and SIGTERM also where Python ignores the exception of their handler."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def recorded_signals() -> Iterator[Callable[[], None]]:
    """Record SIGINT and SIGTERM besides calling their handlers, and yield a function that calls the handlers again.

    Python ignores an exception in a finalizer or weakref callback, and libraries end many calls in one. A loop that
    waits calls the function before each pause; it does nothing if no signal was received.
    """
    received: list[tuple[int, Callable[[int, FrameType | None], object]]] = []

    def handle_again() -> None:
        for number, handler in received:
            handler(number, None)

    if threading.current_thread() is not threading.main_thread():  # only that one receives signals
        yield handle_again
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def record(number: int, frame: FrameType | None) -> None:
        handler = handlers[signal.Signals(number)]
        assert callable(handler)
        received.append((number, handler))
        handler(number, frame)

    try:
        for number, handler in handlers.items():
            if callable(handler):  # neither ignored nor the kernel's default
                signal.signal(number, record)
        yield handle_again
    finally:
        for number, handler in handlers.items():
            if callable(handler):
                signal.signal(number, handler)
