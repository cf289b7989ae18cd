"""Test the feed of TensorRT's calibrator, with host memory instead of a GPU's."""

import ctypes

import numpy as np
import pytest

from tfopt.components.convert_tensorrt.caches import CalibrationCache
from tfopt.components.convert_tensorrt.calibration_feed import CalibrationFeed
from tfopt.errors import ComponentError

BATCHES = [
    {"x": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3) + start), "rate": np.float32(start)}
    for start in (0, 10)
]


class HostMemory:
    """GPU memory with room for a number of uploads."""

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


def create_feed(folder, room: int = 99) -> CalibrationFeed:
    return CalibrationFeed(BATCHES, HostMemory(room), CalibrationCache(str(folder / "cache"), model="m"))


def test_each_batch_is_uploaded_once_in_the_requested_order(tmp_path):
    feed = create_feed(tmp_path)
    assert feed.batch_size == 2
    for start in (0, 10):
        rate, x = feed.next_batch(["rate", "x"])
        assert floats(rate, 1) == [start]
        assert floats(x, 6) == [start + number for number in range(6)]
    assert feed.next_batch(["x"]) is None
    feed.check()
    assert feed.facts["batches"] == 2 and feed.facts["from_cache"] is False


def test_an_error_stops_the_feed_and_is_raised_after_the_build(tmp_path):
    feed = create_feed(tmp_path, room=3)
    assert feed.read_cache() is None
    assert feed.next_batch(["x", "rate"])
    assert feed.next_batch(["x", "rate"]) is None  # the end for TensorRT, which then calibrates on half of them
    feed.write_cache(b"of half of them")
    assert not (tmp_path / "cache").exists()
    with pytest.raises(ComponentError, match="out of memory"):
        feed.check()
    assert feed.facts["batches"] == 1


def test_an_unreadable_cache_raises_after_the_build(tmp_path):
    (tmp_path / "cache").mkdir()
    for call in (lambda feed: feed.read_cache(), lambda feed: feed.write_cache(b"ranges")):
        feed = create_feed(tmp_path)
        assert call(feed) is None
        with pytest.raises(ComponentError, match="directory"):
            feed.check()


def test_a_cached_calibration_is_reused(tmp_path):
    create_feed(tmp_path).write_cache(memoryview(b"ranges"))
    feed = create_feed(tmp_path)
    assert feed.read_cache() == b"ranges"
    assert feed.facts["from_cache"] is True
