"""Looking at processes that may end at any time, whoever started them."""

import time

import psutil


def wait_until(condition, seconds: float = 60):
    """Return the condition's first true value."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"not so in {seconds:g} seconds"
        time.sleep(0.05)
    return value


def has_ended(process: psutil.Process) -> bool:
    """Whether it is gone, or only waits for whoever inherited it to look."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def marked(variable: str, value: str) -> list[psutil.Process]:
    """The running processes that have a variable, from whoever started them."""
    found = psutil.process_iter(["environ"])  # None where it may not be read, or there is none left to read
    return [process for process in found if (process.info["environ"] or {}).get(variable) == value]
