"""Inputs to compare models on: real ones that the model was not made with, random ones that fit, cut as asked."""

import numpy as np
import pytest

from tests.conftest import write_examples
from tfopt.artifacts import Examples
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.conversion.calibration import sample_inputs
from tfopt.conversion.convert import Conversion
from tfopt.data.sample_inputs import split_batches, draw_inputs, random_batch
from tfopt.errors import ComponentError

IMAGE = {"image": TensorSpec("float32", (None, 8, 8, 1))}


def test_examples_come_from_another_split_than_the_one_seen(digits_examples):
    examples = Examples(digits_examples)
    for seen, taken in (("train", "eval"), ("eval", "train")):
        batch, source = draw_inputs(examples, IMAGE, records=20, seen=seen)
        assert batch["image"].shape == (20, 8, 8, 1) and source == f"examples, split {taken!r}"
    assert len(draw_inputs(examples, IMAGE, records=1000)[0]["image"]) == 397


def test_the_split_kept_for_judging_is_taken_only_where_there_is_no_third(tmp_path):
    for split, taken in (("train", "train"), ("test", "test"), ("eval", "eval")):  # one more at each step
        write_examples(tmp_path / f"Split-{split}" / "a", {"image": np.ones((3, 64))})
        assert draw_inputs(Examples(tmp_path), IMAGE, records=9)[1] == f"examples, split {taken!r}"
    assert draw_inputs(Examples(tmp_path), IMAGE, records=9, seen="eval")[1] == "examples, split 'train'"


def test_where_there_is_one_split_alone_it_is_taken(tmp_path):
    write_examples(tmp_path / "Split-train" / "a", {"image": np.ones((3, 64))})
    batch, source = draw_inputs(Examples(tmp_path), IMAGE, records=9)
    assert len(batch["image"]) == 3 and source == "examples, split 'train'"


def test_an_empty_split_is_refused(tmp_path):
    write_examples(tmp_path / "Split-eval" / "a", {"image": np.ones((0, 64))})
    with pytest.raises(ComponentError, match="split 'eval': no examples"):
        draw_inputs(Examples(tmp_path), IMAGE, records=9)


def test_a_fixed_batch_is_filled_whatever_was_asked_for(tmp_path):
    write_examples(tmp_path / "Split-eval" / "a", {"image": np.ones((40, 64))})
    fixed = {"image": TensorSpec("float32", (32, 8, 8, 1))}
    given, _ = draw_inputs(Examples(tmp_path), fixed, records=4)
    assert [batch["image"].shape for batch in split_batches(given, fixed, 1)] == [(32, 8, 8, 1)]
    with pytest.raises(ComponentError, match="40 examples, and a model with batch size 64"):
        draw_inputs(Examples(tmp_path), {"image": TensorSpec("float32", (64, 8, 8, 1))}, records=4)


def test_what_is_calibrated_on_is_a_whole_batch_at_least(tmp_path):
    write_examples(tmp_path / "Split-train" / "a", {"image": np.ones((40, 64))})
    asked = Conversion(calibration_count=10, split="train")
    sampled, _ = sample_inputs(Examples(tmp_path), {"image": TensorSpec("float32", (32, 8, 8, 1))}, asked)
    assert len(sampled["image"]) == 32
    with pytest.raises(ComponentError, match="40 examples\nexpected: at least 64 to calibrate on"):
        sample_inputs(Examples(tmp_path), {"image": TensorSpec("float32", (64, 8, 8, 1))}, asked)


def test_what_is_calibrated_on_is_numbers(tmp_path):
    images = np.ones((9, 64), np.float32)
    images[[2, 5], 7] = np.nan, np.inf
    write_examples(tmp_path / "Split-train" / "a", {"image": images})
    with pytest.raises(ComponentError, match="'image' is NaN or infinite in 2 of 9 examples"):
        sample_inputs(Examples(tmp_path), IMAGE, Conversion(calibration_count=100, split="train"))


def test_random_inputs_fit_the_signature_and_are_the_same_for_every_model():
    specs = {
        "image": TensorSpec("float32", (None, 8, None, 3)),
        "pixels": TensorSpec("uint8", (1, 100)),
        "token": TensorSpec("int64", (None, 20)),
        "mask": TensorSpec("bool", (None, 20)),
        "scale": TensorSpec("float64", ()),
    }
    found = random_batch(specs, records=6, seed=1)
    shapes = {name: (array.dtype.name, array.shape) for name, array in found.items()}
    assert shapes == {
        "image": ("float32", (6, 8, 64, 3)),
        "pixels": ("uint8", (6, 100)),
        "token": ("int64", (6, 20)),
        "mask": ("bool", (6, 20)),
        "scale": ("float64", ()),
    }
    assert set(np.unique(found["token"])) == {0, 1}
    assert found["pixels"].max() > 200
    assert not np.array_equal(found["token"], found["mask"])
    alone = random_batch({"token": specs["token"]}, records=6, seed=1)
    assert np.array_equal(alone["token"], found["token"])
    assert not np.array_equal(found["image"], random_batch(specs, records=6, seed=2)["image"])


def test_text_can_not_be_made_up():
    with pytest.raises(ComponentError, match="pass examples=PATH, with a feature 'text'"):
        draw_inputs(None, {"text": TensorSpec("string", (None, 1))}, records=4)


@pytest.mark.parametrize(
    ("batch", "sizes", "lengths"),
    [
        (None, (4,), [4, 4, 2]),
        (None, (1, 3), [1, 3, 3, 3]),
        (None, (32,), [10]),
        (3, (1, 3, 32), [3, 3, 3]),
        (12, (1,), []),
    ],
)
def test_batches_are_of_the_sizes_asked_for_or_of_the_model_s_own(batch, sizes, lengths):
    arrays = {"scale": np.float32(2), "x": np.arange(10)}
    specs = {"scale": TensorSpec("float32", ()), "x": TensorSpec("int64", (batch,))}
    found = list(split_batches(arrays, specs, *sizes))
    assert [len(piece["x"]) for piece in found] == lengths
    assert np.concatenate([[], *(piece["x"] for piece in found)]).tolist() == list(range(sum(lengths)))
    assert all(piece["scale"] == 2 for piece in found)


def test_first_sizes_that_differ_are_no_batch_and_each_input_has_its_own(tmp_path):
    specs = {"x": TensorSpec("float32", (4,)), "y": TensorSpec("float32", (3, 2))}
    write_examples(tmp_path / "Split-eval" / "a", {"x": np.ones((9, 1)), "y": np.ones((9, 2))})
    for examples in (None, Examples(tmp_path)):
        (found,) = split_batches(draw_inputs(examples, specs, records=8)[0], specs, 1, 3)
        assert {name: array.shape for name, array in found.items()} == {"x": (4,), "y": (3, 2)}


def test_random_inputs_are_enough_for_a_fixed_batch():
    assert random_batch({"x": TensorSpec("float32", (40, 2))}, records=8, seed=0)["x"].shape == (40, 2)
