"""Test the methods of calibration end to end: records with a glitch, residual sums, refusals."""

import numpy as np
import pytest
import tensorflow as tf

from tests.components.exporters import EXPORTERS, ONNX, OPENVINO, TFLITE, write_split
from tests.components.test_int8_exact_values import shared_model
from tests.runtimes.formulas import saved
from tfopt.artifacts import Examples, SavedModel
from tfopt.components.export_tflite import litert_converter, quantize
from tfopt.components.export_tflite.parameters import TFLiteConversion
from tfopt.components.quantize_graph.parameters import GraphQuantization
from tfopt.components.quantize_graph.quantize import quantize as quantize_graph
from tfopt.conversion.activation_ranges import select_ranges
from tfopt.errors import ComponentError

# A quantizer of the same ranges written in NumPy has 0.018, 0.60, 0.15 and 0.031 here, and 1.05 with min_max.
LARGEST_NOISE = {"percentile": 0.03, "mse": 0.7, "entropy": 0.2, "moving_average": 0.05}


@pytest.fixture(scope="module")
def glitch(tmp_path_factory):
    """A network that computes each pixel on its own; one value of all records to calibrate on is 800."""
    folder, draw = tmp_path_factory.mktemp("glitch"), np.random.default_rng(0)
    first, second = (tf.constant(draw.normal(size=size) / 2, tf.float32) for size in ((1, 1, 3, 8), (1, 1, 8, 4)))

    def serve(x):
        hidden = tf.nn.relu(tf.nn.conv2d(x, first, 1, "SAME"))
        return {"y": tf.nn.conv2d(hidden, second, 1, "SAME")}

    model = saved(folder / "model", serve, x=([None, 64, 64, 3], tf.float32))
    records = draw.normal(size=(120, 12288)).astype(np.float32)
    examples = write_split(folder / "examples", {"x": records[100:]}, "eval")
    records[7, 300] = 800
    return model, write_split(examples, {"x": records[:100]})


@pytest.mark.parametrize("exporter", EXPORTERS, ids=str)
def test_a_glitch_breaks_the_smallest_and_largest_value_and_no_other_method(exporter, glitch, tmp_path):
    with pytest.raises(ComponentError, match="correlation"):
        exporter.export(*glitch, tmp_path / "min_max", "int8", calibration="min_max", calibration_count=100)
    for method, largest in LARGEST_NOISE.items():
        facts = exporter.export(*glitch, tmp_path / method, "int8", calibration=method, calibration_count=100)
        assert facts["activation_ranges"] == {"chosen": method}
        assert facts["verified"]["outputs"]["y"]["noise"] < largest
    facts = exporter.export(*glitch, tmp_path / "auto", "int8", calibration_count=100)
    errors = facts["activation_ranges"]["error"]
    chosen = facts["activation_ranges"]["chosen"]
    assert chosen == min(errors, key=errors.get) and errors[chosen] < 0.05 and errors["min_max"] > 0.9
    assert facts["verified"]["outputs"]["y"]["noise"] == pytest.approx(errors[chosen], rel=0.02)


def test_quantize_graph_selects_by_the_same_methods(glitch, tmp_path):
    model, examples = glitch

    def quantized(**settings):
        folder = tmp_path / settings.get("calibration", "auto")
        folder.mkdir()
        return quantize_graph(SavedModel(model), folder, Examples(examples), GraphQuantization(**settings))

    with pytest.raises(ComponentError, match="correlation"):
        quantized(calibration="min_max")
    for method, largest in LARGEST_NOISE.items():
        assert quantized(calibration=method)["verified"]["outputs"]["y"]["noise"] < largest
    assert quantized()["verified"]["outputs"]["y"]["noise"] < 0.05
