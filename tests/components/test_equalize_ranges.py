"""Tests of `equalize_ranges`: equal floats, less noise in the 8 bits of each runtime, and what is refused."""

import numpy as np
import pytest
import tensorflow as tf

from tests.components.exporters import ONNX, OPENVINO, TFLITE, write_split
from tests.runtimes.formulas import saved
from tfopt import runtimes
from tfopt.artifacts import SavedModel
from tfopt.components.equalize_ranges.component import equalize_ranges
from tfopt.components.equalize_ranges.equalize import equalize_frozen
from tfopt.components.equalize_ranges.factors import SIMILAR, choose_factors, estimate_noise, reading_of
from tfopt.errors import ComponentError
from tfopt.saved_models.saved_model import opened


def write_model(folder, activation):
    """Write a network of three layers whose channels have ranges that differ by up to a factor of 1000."""
    draw = np.random.default_rng(0)
    sizes = [10.0 ** draw.uniform(-1.5, 1.5, count) for count in (16, 12)]
    first, second, third = (
        tf.constant(draw.normal(size=size) * scale, tf.float32)
        for size, scale in (
            ((1, 1, 3, 16), sizes[0]),
            ((3, 3, 16, 12), sizes[1] / sizes[0][:, None] / 12),
            ((12, 4), 1 / sizes[1][:, None]),
        )
    )

    def serve(x):
        flow = activation(tf.nn.conv2d(x, first, 1, "SAME"))
        return {"y": tf.reduce_mean(activation(tf.nn.conv2d(flow, second, 1, "SAME")), [1, 2]) @ third}

    return saved(folder, serve, x=([None, 6, 6, 3], tf.float32))


@pytest.fixture(scope="module")
def equalized(tmp_path_factory):
    """The model, its examples, and the equalized model."""
    folder, draw = tmp_path_factory.mktemp("equalized"), np.random.default_rng(1)
    model = write_model(folder / "model", tf.nn.relu)
    examples = write_split(folder / "examples", {"x": draw.normal(size=(60, 108)).astype(np.float32)})
    write_split(examples, {"x": draw.normal(size=(60, 108)).astype(np.float32)}, "eval")
    result = equalize_ranges(model=model, examples=examples, equalized=folder / "out")["equalized"]
    return model, examples, result


def test_floats_have_the_same_digits(equalized):
    model, _, result = equalized
    x = np.random.default_rng(2).normal(size=(7, 6, 6, 3)).astype(np.float32)
    before, after = (runtimes.load(SavedModel(path)).run({"x": x})["y"] for path in (model, result.path))
    np.testing.assert_array_equal(before, after)
    assert result.card.facts["verified"]["outputs"]["serving_default/y"]["relative_error"] == 0


def test_the_report_has_each_group_with_its_ranges(equalized):
    facts = equalized[2].card.facts
    groups = facts["report"]["groups"]
    assert [group["channels"] for group in groups] == [16, 12]
    for group in groups:
        assert group["spread"][0] > 10 > 4 > group["spread"][1] >= 1
        assert group["noise"][1] < 0.5 * group["noise"][0]
    assert facts["calibration"]["used"] == 60 and len(facts["calibration"]["records"]) == 60
    assert facts["report"]["stays"] == {"IdentityN is in between": 1}
    assert "2 of 2 groups of channels equalized" in facts["report"]["summary"]


@pytest.mark.parametrize("exporter", [TFLITE, ONNX, pytest.param(OPENVINO, marks=pytest.mark.nightly)], ids=str)
def test_int8_has_a_fraction_of_the_noise(exporter, equalized, tmp_path):
    model, examples, result = equalized
    noises = []
    for name, path in (("as it is", model), ("equalized", result.path)):
        facts = exporter.export(path, examples, tmp_path / name, "int8", tolerance=100.0)
        noises.append(facts["verified"]["outputs"]["y"]["noise"])
    assert noises[1] < 0.5 * noises[0]


def test_a_model_without_a_group_is_refused(equalized, tmp_path):
    model = write_model(tmp_path / "model", tf.nn.swish)
    with pytest.raises(ComponentError, match=r"nothing to equalize: Mul is in between: 2") as error:
        equalize_ranges(model=model, examples=equalized[1], equalized=tmp_path / "out")
    assert "quantize the model as it is" in str(error.value) and not (tmp_path / "out").exists()


def test_a_graph_whose_groups_gain_nothing_stays(tmp_path):
    def serve(x):
        flow = tf.nn.relu(tf.nn.conv2d(x, tf.ones((1, 1, 3, 16)), 1, "SAME"))
        return {"y": tf.reduce_mean(flow, [1, 2]) @ tf.ones((16, 4))}

    model = saved(tmp_path / "model", serve, x=([None, 6, 6, 3], tf.float32))
    batch = {"x": np.random.default_rng(1).normal(size=(20, 6, 6, 3)).astype(np.float32)}
    with opened(SavedModel(model), state=True) as frozen:
        child, report = equalize_frozen(frozen, "serving_default", [batch])
    assert report["summary"].startswith("0 of 1 groups of channels equalized: none would gain a tenth")
    assert child is frozen


def test_channels_of_similar_ranges_stay_and_zeros_are_no_division_by_zero():
    kernel, ones = np.ones((1, 1, 4, 3)), np.ones(4)
    assert choose_factors([reading_of("Conv2D", kernel, -2, (-ones, ones, ones), 1)], 4) == SIMILAR
    large = np.asarray([1000.0, 0, 1, 2])
    factors = choose_factors([reading_of("Conv2D", kernel, -2, (-large, large, large**2), 1)], 4)
    assert np.isfinite(factors.exponents).all() and factors.spread[0] > 5 * factors.spread[1]
    for zeros in ((0 * ones, 0 * ones, 0 * ones), (-ones, ones, ones)):
        assert "are zero" in choose_factors([reading_of("Conv2D", (zeros[1].any() == 0) * kernel, -2, zeros, 1)], 4)


def rounded(values, scale):
    """Round to multiples of a scale."""
    return np.rint(values / scale) * scale


@pytest.mark.parametrize("op", ["Conv2D", "DepthwiseConv2dNative"])
def test_the_estimate_is_the_noise_of_rounded_numbers(op):
    draw = np.random.default_rng(3)
    x = draw.normal(size=(500, 9, 16)) * 10.0 ** draw.uniform(-1.5, 1.5, 16)
    kernel, sums = draw.normal(size=(9, 1, 16, 5)), "rwc,wco->ro" if op == "Conv2D" else "rwc,wco->rco"
    statistics = x.min(axis=(0, 1)), x.max(axis=(0, 1)), (x**2).mean(axis=(0, 1))
    readings = [reading_of(op, kernel, -2, statistics, 1)]
    factors = choose_factors(readings, 16)
    for exponents in (np.zeros(16, int), factors.exponents):
        inputs, weights = x / 2.0**exponents, kernel[:, 0] * (2.0**exponents)[:, None]
        steps = np.abs(weights).max(axis=(0, 1) if op == "Conv2D" else 0) / 127
        exact = np.einsum(sums, inputs, weights)
        noise = np.einsum(sums, rounded(inputs, np.ptp(inputs) / 255), rounded(weights, steps)) - exact
        measured = (noise**2).sum() / (exact**2).sum()
        assert sum(estimate_noise(readings, exponents)) == pytest.approx(measured, rel=0.15)
    assert factors.noise[1] < 0.7 * factors.noise[0]
