"""Compare the outputs of two graphs on random inputs."""

from collections.abc import Sequence

import numpy as np

from tests.graph.layouts import channels_last
from tfopt.graph.session import evaluate

TOLERANCE = {"float64": 1e-14, "float32": 1e-6, "float16": 4e-3, "bfloat16": 3e-2}  # relative to the largest value


def assert_same_function(before, after, outputs: Sequence[str] = ("y",), *, seed: int = 0) -> None:
    """Assert equal outputs on the same random inputs, with infinity and NaN at the same positions."""
    feeds = probes(before, seed)
    fetches = [f"{name}:0" for name in outputs]
    values_before, values_after = (evaluate(channels_last(graph), fetches, feeds) for graph in (before, after))
    for name, value_before, value_after in zip(outputs, values_before, values_after, strict=True):
        assert value_before.dtype == value_after.dtype, name
        assert value_before.shape == value_after.shape, name
        tolerance = TOLERANCE.get(value_before.dtype.name, 0)
        a, b = (array if np.iscomplexobj(array) else array.astype(np.float64) for array in (value_before, value_after))
        np.testing.assert_array_equal(np.isfinite(a), np.isfinite(b), err_msg=name)
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b), err_msg=name)
        a, b = np.nan_to_num(a), np.nan_to_num(b)
        assert np.abs(a - b).max(initial=0) <= tolerance * np.abs(a).max(initial=0), name


def probes(graph_def, seed: int = 0) -> dict:
    """Return normally distributed values for every placeholder, with 2 for each unknown size."""
    import tensorflow as tf

    draw = np.random.default_rng(seed)
    feeds = {}
    for node in graph_def.node:
        if node.op == "Placeholder":
            shape = [dimension.size if dimension.size >= 0 else 2 for dimension in node.attr["shape"].shape.dim]
            dtype = tf.as_dtype(node.attr["dtype"].type)
            values = draw.normal(0, 1, shape) * (1 if dtype.is_floating else 3)
            feeds[f"{node.name}:0"] = values.astype(dtype.as_numpy_dtype)
    return feeds
