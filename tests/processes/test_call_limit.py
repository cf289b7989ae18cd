"""Test the limit of calls that cannot be interrupted: it is generous, scales, and passes on what a call does."""

import contextvars
import re
import threading
import time

import pytest

from tfopt.errors import AttemptError
from tfopt.processes import call_limit
from tfopt.processes.call_limit import call_within, limit_seconds

VARIABLE = contextvars.ContextVar("variable", default=0)


def test_a_call_returns_or_raises_what_the_function_does_and_has_the_callers_context():
    VARIABLE.set(3)
    assert call_within(60, VARIABLE.get, "a call") == 3
    with pytest.raises(SystemExit, match="4"):
        call_within(60, lambda: exit(4), "a call")


def test_a_call_that_does_not_end_is_an_error_in_three_parts(monkeypatch):
    monkeypatch.setattr(call_limit, "BUSY", 1)
    never = threading.Event()
    with pytest.raises(AttemptError) as error:
        call_within(0.1, never.wait, "a call of m")
    assert (
        re.fullmatch("a call of m: no end after \\d+ s", error.value.received) and "bound its loops" in error.value.fix
    )
    never.set()


def test_a_call_that_others_slow_down_gets_more_time(monkeypatch):
    monkeypatch.setattr(call_limit, "LOOK_S", 0.01)
    assert call_within(0.1, lambda: time.sleep(0.25) or "end", "a call") == "end"  # it used no processor
    with pytest.raises(AttemptError):
        call_within(0.1, lambda: time.sleep(2), "a call")


def test_a_call_that_computes_all_the_time_ends_at_its_limit(monkeypatch):
    monkeypatch.setattr(call_limit, "LOOK_S", 0.01)
    ended = threading.Event()

    def compute() -> None:
        while not ended.is_set():
            pass

    start, processor_start = time.monotonic(), time.process_time()
    with pytest.raises(AttemptError):
        call_within(1, compute, "a call", ended.set)
    assert ended.is_set()
    assert time.monotonic() - start < 3.5 or time.process_time() - processor_start < 0.4  # others had the processors


def test_limits_grow_with_the_model_the_records_and_the_time_seen():
    least = limit_seconds(0)
    assert least >= 60
    assert limit_seconds(10_000_000) > least + 60
    assert limit_seconds(0, 10_000) > least + 60
    assert limit_seconds(0, 1000, longest_s=1) >= 100 * 1000
