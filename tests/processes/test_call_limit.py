"""Test the limit of calls that cannot be interrupted: it is generous, scales, and passes on what a call does."""

import contextvars
import os
import re
import threading
import time
import weakref

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


def test_calls_share_a_thread_and_calls_within_calls_do_not():
    def nested() -> tuple[int, int]:
        return threading.get_ident(), call_within(60, threading.get_ident, "a call within it")

    first = call_within(60, threading.get_ident, "a call")
    outer, inner = call_within(60, nested, "a call")
    assert first == outer != inner


def test_a_call_leaves_no_reference_to_its_function_and_its_result():
    class Result:
        def itself(self) -> "Result":
            return self

        def fail(self) -> None:
            raise ValueError

    result = Result()
    alive = weakref.ref(result)
    assert call_within(60, result.itself, "a call") is result
    with pytest.raises(ValueError):
        call_within(60, result.fail, "a call")
    del result
    deadline = time.monotonic() + 60
    while alive() and time.monotonic() < deadline:  # the thread returns from the call
        time.sleep(0.001)
    assert not alive()


def test_a_fork_has_threads_of_its_own():
    call_within(60, bool, "a call")
    if not (pid := os.fork()):
        status = 1
        try:
            status = call_within(1, lambda: 3, "a call in a fork")
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3


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
