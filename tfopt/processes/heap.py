"""Return freed heap memory to the operating system."""

import contextlib
import ctypes


def trim() -> None:
    """Make glibc return freed memory to the operating system (``malloc_trim``).

    glibc retains free pages between blocks in use: after several steps in one process these are gigabytes, which the
    models measured next would lack. Other C libraries do not retain them and do not have this function.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):  # TypeError: CDLL(None) on Windows
        ctypes.CDLL(None).malloc_trim(0)
