"""Test memory in `train`: the search for the largest batch size, and the error if memory runs out."""

import dataclasses
import resource

import pytest

from tests.components.test_train_settings import SETTINGS
from tests.components.train_modules import write
from tfopt.artifacts import Examples
from tfopt.components.train import auto_settings
from tfopt.components.train.auto_settings import choose_batch_size
from tfopt.components.train.component import train
from tfopt.errors import ComponentError
from tfopt.processes.subprocess_call import run_in_child

# Memory that is allocated and never written: the machine's memory is not used.
LARGE = """
import keras
import tensorflow as tf
from keras import layers

class Large(layers.Layer):
    def call(self, x):
        large = tf.raw_ops.Empty(shape=tf.stack([tf.shape(x)[0], SIDE, SIDE]), dtype=tf.float32, init=False)
        return x + tf.stop_gradient(large[:, :1, 0])
    def compute_output_shape(self, shape):
        return shape

def build_model():
    image = layers.Input((8, 8, 1), name="image")
    flow = Large()(layers.Flatten()(layers.Rescaling(1 / 16)(image)))
    model = keras.Model(image, layers.Dense(10, activation="softmax", name="digit")(flow))
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model
"""
ALL_OF_IT = LARGE.replace("SIDE", "2 ** 24")  # a petabyte for one example
FOUR_GIGABYTES = LARGE.replace("SIDE", "2 ** 15")


def test_running_out_of_memory_is_an_error_with_advice(tmp_path, digits_examples):
    module = write(tmp_path / "m.py", ALL_OF_IT)
    with pytest.raises(ComponentError) as refusal:
        train(digits_examples, module, tmp_path / "out", epochs=1, batch_size=32)
    assert "out of memory at batch_size=32" in refusal.value.received
    assert "batch_size=0" in refusal.value.fix
    assert not (tmp_path / "out").exists()


@pytest.mark.nightly
def test_running_out_of_memory_with_one_example_has_other_advice(tmp_path, digits_examples):
    module = write(tmp_path / "m.py", ALL_OF_IT)
    with pytest.raises(ComponentError, match="at batch_size=1:") as refusal:
        train(digits_examples, module, tmp_path / "out", epochs=1, batch_size=1)
    assert "make the model or its inputs smaller" in refusal.value.fix


@pytest.mark.nightly  # daily: the error at a fixed batch size
def test_batches_are_doubled_until_memory_runs_out(tmp_path, digits_examples):
    settings = dataclasses.replace(SETTINGS, batch_size=0)
    module = write(tmp_path / "m.py", FOUR_GIGABYTES)
    chosen = choose_batch_size(settings, Examples(digits_examples), module, limit_mb=20 << 10)
    assert chosen.batch_size in (2, 4)
    assert choose_batch_size(chosen, Examples(digits_examples), module) is chosen


@pytest.mark.nightly
def test_an_example_that_does_not_fit_is_refused(tmp_path, digits_examples):
    with pytest.raises(ComponentError, match="a step with one example does not fit in memory"):
        train(digits_examples, write(tmp_path / "m.py", ALL_OF_IT), tmp_path / "out", batch_size=0)


SLOW = """
import math, time
import keras
import tensorflow as tf
from keras import layers

def sleep(x):
    time.sleep(0.2 * math.ceil(len(x) / 8))
    return x

class Sleep(layers.Layer):
    def call(self, x):
        return tf.ensure_shape(tf.numpy_function(sleep, [x], tf.float32), x.shape)

def build_model():
    image = layers.Input((8, 8, 1), name="image")
    model = keras.Model(image, layers.Dense(10, activation="softmax", name="digit")(layers.Flatten()(Sleep()(image))))
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model
"""


@pytest.mark.nightly  # its steps sleep; daily: `fastest_size`
def test_the_fastest_batch_is_the_smallest_with_the_shortest_time_per_example(tmp_path, digits_examples, caplog):
    settings = dataclasses.replace(SETTINGS, batch_size=0, batch_search="fastest", deterministic=False)
    with caplog.at_level("INFO", "tfopt"):
        chosen = choose_batch_size(settings, Examples(digits_examples), write(tmp_path / "m.py", SLOW))
    assert chosen.batch_size == 8
    assert "batch_size=32:" in caplog.text and "batch_size=64:" not in caplog.text
    assert "2 larger ones were not faster per example" in caplog.text


def test_the_search_is_refused_next_to_a_batch_size(tmp_path, digits_examples):
    with pytest.raises(ComponentError, match="batch_search=fastest with batch_size=64"):
        train(digits_examples, write(tmp_path / "m.py", SLOW), tmp_path / "out", batch_search="fastest")


def test_addresses_are_not_limited_on_a_machine_with_a_gpu():
    # CUDA reserves more addresses than there is memory: a limit would keep it from starting
    assert [run_in_child(_address_limit, gpus, doing="limiting") for gpus in (0, 1)] == [True, False]


def _address_limit(gpus: int) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auto_settings, "gpu_count", lambda: gpus)
        auto_settings._limit_memory(1 << 34)
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def test_a_batch_size_search_cannot_be_combined_with_checkpoints(tmp_path, digits_examples):
    module = write(tmp_path / "m.py", FOUR_GIGABYTES)
    with pytest.raises(ComponentError, match="a killed training could not be resumed"):
        train(digits_examples, module, tmp_path / "out", batch_size=0, checkpoints=str(tmp_path / "checkpoints"))
