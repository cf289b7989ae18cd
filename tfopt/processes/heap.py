"""Memory that a step no longer needs."""

import contextlib
import ctypes


def hand_back() -> None:
    """Have the C library return what was freed to the system.

    It keeps pages between blocks that are still in use: after the steps of a menu in one process these are gigabytes,
    which the models that are measured next would lack. Libraries other than glibc keep none, and have no such call.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):  # TypeError: no such library by that name on Windows
        ctypes.CDLL(None).malloc_trim(0)
