import threading

import pytest

from tfopt.components.evaluate.prefetch import ahead


def test_items_come_in_order_made_by_one_other_thread_and_no_further_ahead_than_allowed():
    makers, made = set(), []

    def items():
        for number in range(20):
            makers.add(threading.get_ident())
            made.append(number)
            yield number

    found = []
    for number in ahead(items(), 3):
        assert len(made) <= number + 1 + 3
        found.append(number)
    assert found == list(range(20))
    assert len(makers) == 1
    assert makers != {threading.get_ident()}


def test_an_error_is_raised_after_the_items_before_it():
    def items():
        yield 1
        yield 2
        raise ValueError("third")

    found = []
    with pytest.raises(ValueError, match="third"):
        for item in ahead(items(), 8):
            found.append(item)
    assert found == [1, 2]


def test_whoever_stops_early_leaves_no_thread():
    before = set(threading.enumerate())
    made = []
    items = ahead((made.append(number) or number for number in range(1000)), 4)
    assert next(items) == 0
    items.close()
    assert set(threading.enumerate()) <= before  # others may have ended meanwhile
    assert len(made) < 10
