"""What TensorRT's calibrator is fed with: memory of this process in the place of a GPU's, everything else as it is."""

import ctypes

import numpy as np
import pytest

from tfopt.components.convert_tensorrt.calibration_cache import Cache
from tfopt.components.convert_tensorrt.calibration_feed import Feed
from tfopt.errors import ComponentError

BATCHES = [
    {"x": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3) + start), "rate": np.float32(start)}
    for start in (0, 10)
]


class Memory:
    """Holds what is uploaded, and has no more room after so many arrays."""

    def __init__(self, room: int = 99) -> None:
        self.room = room

    def upload(self, name, array):
        self.room -= 1
        if self.room < 0:
            raise ComponentError("cudaMalloc: out of memory", "memory", "free some")
        return array.ctypes.data

    def wait(self):
        pass


def floats(address: int, count: int) -> list[float]:
    return list((ctypes.c_float * count).from_address(address))


def feed(folder, room: int = 99) -> Feed:
    return Feed(BATCHES, Memory(room), Cache(str(folder / "cache"), model="m"))


def test_each_batch_is_given_once_in_the_order_asked_for_and_counted(tmp_path):
    given = feed(tmp_path)
    assert given.size == 2
    for start in (0, 10):
        rate, x = given.batch(["rate", "x"])
        assert floats(rate, 1) == [start]
        assert floats(x, 6) == [start + number for number in range(6)]
    assert given.batch(["x"]) is None
    given.check()
    assert given.told["batches"] == 2 and given.told["from_cache"] is False


def test_what_fails_is_raised_after_the_build_and_nothing_is_given_or_kept_from_then_on(tmp_path):
    given = feed(tmp_path, room=3)
    assert given.cached() is None
    assert given.batch(["x", "rate"])
    assert given.batch(["x", "rate"]) is None  # which TensorRT takes for the end, and calibrates on half of them
    given.keep(b"of half of them")
    assert not (tmp_path / "cache").exists()
    with pytest.raises(ComponentError, match="out of memory"):
        given.check()
    assert given.told["batches"] == 1


def test_a_cache_that_cannot_be_read_or_written_is_told(tmp_path):
    (tmp_path / "cache").mkdir()
    for call in (lambda given: given.cached(), lambda given: given.keep(b"found")):
        given = feed(tmp_path)
        assert call(given) is None
        with pytest.raises(ComponentError, match="directory"):
            given.check()


def test_what_was_kept_is_taken_again(tmp_path):
    feed(tmp_path).keep(memoryview(b"found"))
    again = feed(tmp_path)
    assert again.cached() == b"found"
    assert again.told["from_cache"] is True
