"""Test the comparison of served outputs and signatures, and the latency measurement."""

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.validate_serving.latency import measure, sweep
from tfopt.components.validate_serving.server_check import compare_outputs
from tfopt.serving.servers import compare_signatures

EXPECTED = np.array([[0.0, 1.0], [2.0, 4.0]], np.float32)
SPEC = {"y": TensorSpec("float32", (None, 2))}
NAN = np.float32(np.nan)


@pytest.mark.parametrize(
    ("expected", "served", "fault"),
    [
        (EXPECTED, EXPECTED + np.float32(1e-5), None),
        (EXPECTED, EXPECTED + np.float32(0.04), "differs by 0.01 of its range"),
        (EXPECTED, EXPECTED.astype(np.float64), "float64, not float32"),
        (EXPECTED, EXPECTED[:1], "of shape [1, 2], not [2, 2]"),
        (EXPECTED, EXPECTED[0], "of shape [2], not float32[?,2]"),
        (EXPECTED, EXPECTED * NAN, "NaN or infinity in 4 of 4 values"),
        (EXPECTED * NAN, EXPECTED, "differs by nan"),
        (EXPECTED[:0], EXPECTED[:0], None),
        (np.full((1, 2), 5, np.float32), np.full((1, 2), 5.004, np.float32), "differs by 0.0008 of its range"),
    ],
)
def test_outputs_that_differ_are_reported(expected, served, fault):
    faults, _ = compare_outputs({"y": expected}, {"y": served}, SPEC, 1e-4)
    assert len(faults) == bool(fault)
    assert not fault or (fault in faults[0] and faults[0].startswith("output 'y'"))


def test_strings_are_compared_exactly_and_missing_outputs_are_reported():
    specs = {"y": TensorSpec("string", (None,)), "z": TensorSpec("float32", (None,))}
    own = {"y": np.array([b"a", b"b"], object), "z": np.zeros(2, np.float32)}
    assert compare_outputs(own, own, specs, 0)[0] == []
    other = {"y": np.array([b"a", b"c"], object)}
    assert compare_outputs(own, other, specs, 0)[0] == [
        "output 'y': differs from the model's own output",
        "output 'z' is not in the response",
    ]


@pytest.mark.parametrize(
    ("theirs", "fault"),
    [
        ({"x": TensorSpec("float32", (None, 3))}, None),
        ({"x": TensorSpec("float32", (None, None))}, None),
        ({"x": TensorSpec("float32", (None,), ranked=False)}, None),
        ({"x": TensorSpec("float32", (None, 4))}, "input 'x' is served as float32[?,4], not float32[?,3]"),
        ({"x": TensorSpec("float32", (None, 3, 1))}, "input 'x' is served as float32[?,3,1], not float32[?,3]"),
        ({"x": TensorSpec("float16", (None, 3))}, "input 'x' is served as float16[?,3], not float32[?,3]"),
        ({"a": TensorSpec("float32", (None, 3))}, "inputs a are served, not x"),
    ],
)
def test_signatures_that_differ_are_reported(theirs, fault):
    model = SimpleNamespace(inputs={"x": TensorSpec("float32", (None, 3))}, outputs=SPEC)
    assert compare_signatures(model, theirs, SPEC) == ([fault] if fault else [])


def test_clients_call_in_parallel_and_first_calls_are_not_measured():
    active, most, lock, first = 0, 0, threading.Lock(), {}

    def call(batch):
        nonlocal active, most
        with lock:
            active, most = active + 1, max(most, active + 1)
            slow = first.setdefault(threading.get_ident(), True)
            first[threading.get_ident()] = False
        time.sleep(0.6 if slow else 0.02)
        with lock:
            active -= 1
        return {}

    latency = measure([call] * 4, [{"x": np.zeros((2, 3))}], 0.3)
    assert (most, latency.concurrency, latency.batch_size) == (4, 4, 2)
    assert 20 <= latency.p50_ms <= latency.p99_ms
    assert latency.requests_per_second > 0.25 * 4 / (latency.p50_ms / 1e3)  # without the slow first calls


def test_the_exception_of_a_client_is_raised():
    lock, count = threading.Lock(), 0

    def call(batch):
        nonlocal count
        with lock:
            count += 1
            if count == 2:
                raise ValueError("no more memory")
        return {}

    with pytest.raises(ValueError, match="no more memory"):
        measure([call] * 3, [{"x": np.zeros((1, 3))}], 0.1)


@pytest.mark.nightly  # daily: tests/measurement/test_saturation.py
def test_a_sweep_finds_the_number_of_clients_that_saturates():
    two_at_once = threading.Semaphore(2)

    def call(batch):
        with two_at_once:
            time.sleep(0.02)
        return {}

    result = sweep([call] * 5, [{"x": np.zeros((1, 3))}], 1.5)
    assert [row.concurrency for row in result.clients] == [1, 2, 4]
    one, two, _ = (row.requests_per_second for row in result.clients)
    assert one < 60 and two > 1.3 * one
    assert result.saturation.low <= 2  # 1 if other processes slowed down too many rounds of 2 clients
    assert result.saturation.largest == 4
