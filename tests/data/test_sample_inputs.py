"""Test sample inputs: examples from unseen splits, random values, and splitting into batches."""

import numpy as np
import pytest

from tests.conftest import write_examples
from tfopt.artifacts import Examples
from tfopt.artifacts.tensor_spec import ParsedFeature, RecordSpec, TensorSpec
from tfopt.conversion.calibration import sample_inputs
from tfopt.conversion.parameters import Calibration
from tfopt.data.sample_inputs import compared_records, draw_inputs, random_batch, split_batches
from tfopt.errors import ComponentError

IMAGE = {"image": TensorSpec("float32", (None, 8, 8, 1))}


def test_examples_come_from_a_split_that_was_not_seen(digits_examples):
    examples = Examples(digits_examples)
    for seen, selected in (("train", "eval"), ("eval", "train")):
        batch, source = draw_inputs(examples, IMAGE, records=20, seen=seen)
        assert batch["image"].shape == (20, 8, 8, 1) and source == f"examples, split {selected!r}"
    assert len(draw_inputs(examples, IMAGE, records=1000)[0]["image"]) == 397


def test_the_test_split_is_used_only_without_a_third_split(tmp_path):
    for split, selected in (("train", "train"), ("test", "test"), ("eval", "eval")):  # one more at each step
        write_examples(tmp_path / f"Split-{split}" / "a", {"image": np.ones((3, 64))})
        assert draw_inputs(Examples(tmp_path), IMAGE, records=9)[1] == f"examples, split {selected!r}"
    assert draw_inputs(Examples(tmp_path), IMAGE, records=9, seen="eval")[1] == "examples, split 'train'"


def test_a_single_split_is_used(tmp_path):
    write_examples(tmp_path / "Split-train" / "a", {"image": np.ones((3, 64))})
    batch, source = draw_inputs(Examples(tmp_path), IMAGE, records=9)
    assert len(batch["image"]) == 3 and source == "examples, split 'train'"


def test_an_empty_split_is_rejected(tmp_path):
    write_examples(tmp_path / "Split-eval" / "a", {"image": np.ones((0, 64))})
    with pytest.raises(ComponentError, match="split 'eval': no examples"):
        draw_inputs(Examples(tmp_path), IMAGE, records=9)


def test_a_fixed_batch_size_is_filled(tmp_path):
    write_examples(tmp_path / "Split-eval" / "a", {"image": np.ones((40, 64))})
    fixed = {"image": TensorSpec("float32", (32, 8, 8, 1))}
    inputs, _ = draw_inputs(Examples(tmp_path), fixed, records=4)
    assert [batch["image"].shape for batch in split_batches(inputs, fixed, 1)] == [(32, 8, 8, 1)]
    with pytest.raises(ComponentError, match="40 examples, and a model with batch size 64"):
        draw_inputs(Examples(tmp_path), {"image": TensorSpec("float32", (64, 8, 8, 1))}, records=4)


def test_calibration_inputs_have_at_least_one_batch(tmp_path):
    write_examples(tmp_path / "Split-train" / "a", {"image": np.ones((40, 64))})
    conversion = Calibration(calibration_count=10, split="train")
    sampled, _ = sample_inputs(Examples(tmp_path), {"image": TensorSpec("float32", (32, 8, 8, 1))}, conversion)
    assert len(sampled["image"]) == 32
    with pytest.raises(ComponentError, match="40 examples\nexpected: at least 64 to calibrate on"):
        sample_inputs(Examples(tmp_path), {"image": TensorSpec("float32", (64, 8, 8, 1))}, conversion)


def test_calibration_inputs_must_be_finite(tmp_path):
    images = np.ones((9, 64), np.float32)
    images[[2, 5], 7] = np.nan, np.inf
    write_examples(tmp_path / "Split-train" / "a", {"image": images})
    with pytest.raises(ComponentError, match="'image' is NaN or infinite in 2 of 9 examples"):
        sample_inputs(Examples(tmp_path), IMAGE, Calibration(calibration_count=100, split="train"))


def test_random_inputs_fit_the_signature_and_are_reproducible():
    specs = {
        "image": TensorSpec("float32", (None, 8, None, 3)),
        "pixels": TensorSpec("uint8", (1, 100)),
        "token": TensorSpec("int64", (None, 20)),
        "mask": TensorSpec("bool", (None, 20)),
        "scale": TensorSpec("float64", ()),
    }
    batches = random_batch(specs, records=6, seed=1)
    shapes = {name: (array.dtype.name, array.shape) for name, array in batches.items()}
    assert shapes == {
        "image": ("float32", (6, 8, 64, 3)),
        "pixels": ("uint8", (6, 100)),
        "token": ("int64", (6, 20)),
        "mask": ("bool", (6, 20)),
        "scale": ("float64", ()),
    }
    assert set(np.unique(batches["token"])) == {0, 1}
    assert batches["pixels"].max() > 200
    assert not np.array_equal(batches["token"], batches["mask"])
    single = random_batch({"token": specs["token"]}, records=6, seed=1)
    assert np.array_equal(single["token"], batches["token"])
    assert not np.array_equal(batches["image"], random_batch(specs, records=6, seed=2)["image"])


def test_random_text_is_rejected():
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
def test_batches_have_the_requested_or_the_fixed_size(batch, sizes, lengths):
    arrays = {"scale": np.float32(2), "x": np.arange(10)}
    specs = {"scale": TensorSpec("float32", ()), "x": TensorSpec("int64", (batch,))}
    batches = list(split_batches(arrays, specs, *sizes))
    assert [len(piece["x"]) for piece in batches] == lengths
    assert np.concatenate([[], *(piece["x"] for piece in batches)]).tolist() == list(range(sum(lengths)))
    assert all(piece["scale"] == 2 for piece in batches)


def test_different_first_sizes_are_not_a_batch_size(tmp_path):
    specs = {"x": TensorSpec("float32", (4,)), "y": TensorSpec("float32", (3, 2))}
    write_examples(tmp_path / "Split-eval" / "a", {"x": np.ones((9, 1)), "y": np.ones((9, 2))})
    for examples in (None, Examples(tmp_path)):
        (batches,) = split_batches(draw_inputs(examples, specs, records=8)[0], specs, 1, 3)
        assert {name: array.shape for name, array in batches.items()} == {"x": (4,), "y": (3, 2)}


def test_random_inputs_fill_a_fixed_batch():
    assert random_batch({"x": TensorSpec("float32", (40, 2))}, records=8, seed=0)["x"].shape == (40, 2)


def test_fewer_records_are_compared_if_all_inputs_or_parsed_features_together_are_large():
    image, small = TensorSpec("uint8", (None, 512, 512, 3)), TensorSpec("float32", (None, 4))
    records = RecordSpec("string", (None,), features={"image": ParsedFeature("float32", (None, 128, 128, 4))})
    assert compared_records({"small": small}, 256) == 256
    assert compared_records({"small": small, "image": image}, 256) == 32
    assert compared_records({"examples": records}, 256) == 64
    assert compared_records({"text": TensorSpec("string", (None,))}, 256) == 256
    assert compared_records({}, 256) == 256


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "bool", "string", "complex64"])
@pytest.mark.parametrize("shape", [(None, 2**60), (None, 2**40, 2**40), (2**37,)])
def test_an_input_that_fits_into_no_memory_is_refused(dtype, shape):
    with pytest.raises(ComponentError, match=r"input 'x' of shape .* values"):
        random_batch({"x": TensorSpec(dtype, shape)}, records=1, seed=0)
