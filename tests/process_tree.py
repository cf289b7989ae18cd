"""Inspect processes that may end at any time."""

import time

import psutil


def wait_until(condition, seconds: float = 60):
    """Wait until a condition is true and return its value."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"not true within {seconds:g} seconds"
        time.sleep(0.05)
    return value


def has_ended(process: psutil.Process) -> bool:
    """Return True if a process has ended or is a zombie."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def marked(variable: str, value: str) -> list[psutil.Process]:
    """Return the running processes with an environment variable."""
    processes = psutil.process_iter(["environ"])  # None if it is not readable
    return [process for process in processes if (process.info["environ"] or {}).get(variable) == value]
