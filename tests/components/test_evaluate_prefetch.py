"""Test that `prefetch` computes items ahead in another thread, in order, and stops with its caller."""

import threading

import pytest

from tfopt.components.evaluate.examples.records import prefetch


def test_items_come_in_order_from_one_other_thread_and_at_most_the_given_number_ahead():
    threads, computed = set(), []

    def items():
        for number in range(20):
            threads.add(threading.get_ident())
            computed.append(number)
            yield number

    received = []
    for number in prefetch(items(), 3):
        assert len(computed) <= number + 1 + 3
        received.append(number)
    assert received == list(range(20))
    assert len(threads) == 1
    assert threads != {threading.get_ident()}


def test_an_error_is_raised_after_the_items_before_it():
    def items():
        yield 1
        yield 2
        raise ValueError("third")

    received = []
    with pytest.raises(ValueError, match="third"):
        for item in prefetch(items(), 8):
            received.append(item)
    assert received == [1, 2]


def test_a_caller_that_stops_early_leaves_no_thread():
    before = set(threading.enumerate())
    computed = []
    items = prefetch((computed.append(number) or number for number in range(1000)), 4)
    assert next(items) == 0
    items.close()
    assert set(threading.enumerate()) <= before  # other threads may have ended in the meantime
    assert len(computed) < 10
