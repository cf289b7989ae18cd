"""What differs between a model's own answers and those that are served is told, and clients ask side by side."""

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.validate_serving.answer_check import differences, signature_faults
from tfopt.components.validate_serving.latency import measure, sweep

RIGHT = np.array([[0.0, 1.0], [2.0, 4.0]], np.float32)
SPEC = {"y": TensorSpec("float32", (None, 2))}
NAN = np.float32(np.nan)


@pytest.mark.parametrize(
    ("expected", "given", "said"),
    [
        (RIGHT, RIGHT + np.float32(1e-5), None),
        (RIGHT, RIGHT + np.float32(0.04), "differs by 0.01 of its range"),
        (RIGHT, RIGHT.astype(np.float64), "float64, not float32"),
        (RIGHT, RIGHT[:1], "of shape [1, 2], not [2, 2]"),
        (RIGHT, RIGHT[0], "of shape [2], not float32[?,2]"),
        (RIGHT, RIGHT * NAN, "NaN or infinity in 4 of 4 values"),
        (RIGHT * NAN, RIGHT, "differs by nan"),
        (RIGHT[:0], RIGHT[:0], None),
        (np.full((1, 2), 5, np.float32), np.full((1, 2), 5.004, np.float32), "differs by 0.0008 of its range"),
    ],
)
def test_an_answer_is_the_models_own_or_what_differs_is_told(expected, given, said):
    found, _ = differences({"y": expected}, {"y": given}, SPEC, 1e-4)
    assert len(found) == bool(said)
    assert not said or (said in found[0] and found[0].startswith("output 'y'"))


def test_words_are_the_same_or_not_and_a_missing_output_is_named():
    specs = {"y": TensorSpec("string", (None,)), "z": TensorSpec("float32", (None,))}
    own = {"y": np.array([b"a", b"b"], object), "z": np.zeros(2, np.float32)}
    assert differences(own, own, specs, 0)[0] == []
    other = {"y": np.array([b"a", b"c"], object)}
    assert differences(own, other, specs, 0)[0] == [
        "output 'y': another answer than the model's own",
        "output 'z' is not in the answer",
    ]


@pytest.mark.parametrize(
    ("theirs", "said"),
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
def test_a_signature_is_the_models_or_what_differs_is_told(theirs, said):
    model = SimpleNamespace(inputs={"x": TensorSpec("float32", (None, 3))}, outputs=SPEC)
    assert signature_faults(model, theirs, SPEC) == ([said] if said else [])


def test_clients_ask_at_once_and_the_first_calls_are_not_counted():
    asking, most, lock, first = 0, 0, threading.Lock(), {}

    def call(batch):
        nonlocal asking, most
        with lock:
            asking, most = asking + 1, max(most, asking + 1)
            slow = first.setdefault(threading.get_ident(), True)
            first[threading.get_ident()] = False
        time.sleep(0.6 if slow else 0.02)
        with lock:
            asking -= 1
        return {}

    found = measure([call] * 4, [{"x": np.zeros((2, 3))}], 0.3)
    assert (most, found["concurrency"], found["batch_size"]) == (4, 4, 2)
    assert 20 <= found["p50_ms"] <= found["p99_ms"]
    assert found["requests_per_second"] > 0.25 * 4 / (found["p50_ms"] / 1e3)  # the slow first calls are not in it


def test_a_client_that_fails_ends_all_with_what_it_says():
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


def test_a_sweep_finds_with_how_many_clients_there_are_no_more_answers():
    two_at_once = threading.Semaphore(2)

    def call(batch):
        with two_at_once:
            time.sleep(0.02)
        return {}

    found = sweep([call] * 5, [{"x": np.zeros((1, 3))}], 1.5)
    assert [row["concurrency"] for row in found["clients"]] == [1, 2, 4]
    one, two, _ = (row["requests_per_second"] for row in found["clients"])
    assert one < 60 and two > 1.3 * one
    assert found["saturation"]["low"] <= 2  # 1 where other work made 2 clients as slow in too many of the rounds
    assert found["saturation"]["largest"] == 4
