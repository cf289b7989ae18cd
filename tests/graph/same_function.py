"""Compare the outputs of two graphs on random inputs and on special values."""

from collections.abc import Callable, Collection, Sequence
from contextlib import contextmanager

import numpy as np
import tensorflow as tf

from tests.graph.layouts import channels_last
from tfopt.graph.frozen_model import Endpoint, Frozen, Signature
from tfopt.graph.law_order import ROUNDING, UNCHECKING
from tfopt.graph.session import session
from tfopt.graph_checks.comparison import FLOAT32_TOLERANCE
from tfopt.graph_checks.comparison import TOLERANCE as HALF
from tfopt.graph_checks.special_values import EXTREMES, IEEE, LARGEST, Probe, difference, overlaid, size_inputs, values

TOLERANCE = {"float64": 1e-14, "float32": 1e-6, "float16": 4e-3, "bfloat16": 3e-2}  # relative to the largest value


def assert_same_function(
    before,
    after,
    outputs: Sequence[str] = ("y",),
    *,
    seed: int = 0,
    laws: Collection[str] | None = None,
    tolerance: float | None = None,
) -> None:
    """Assert equal outputs on the same random inputs, with infinity and NaN at the same positions.

    Args:
        before: A graph.
        after: Another one.
        outputs: Names of the nodes to compare.
        seed: Seed of the inputs.
        laws: If given, also assert that these laws preserve outputs on special values.
        tolerance: Allowed error as a fraction of the largest value, which is at least 1; None for that of the dtype,
            without this bound.
    """
    feeds = probes(before, seed)
    fetches = [f"{name}:0" for name in outputs]
    with _sessions(before, after) as sessions:
        values_before, values_after = (opened.run(fetches, feeds) for opened in sessions)
        for name, value_before, value_after in zip(outputs, values_before, values_after, strict=True):
            assert value_before.dtype == value_after.dtype, name
            assert value_before.shape == value_after.shape, name
            a, b = (each if np.iscomplexobj(each) else each.astype(np.float64) for each in (value_before, value_after))
            np.testing.assert_array_equal(np.isfinite(a), np.isfinite(b), err_msg=name)
            np.testing.assert_array_equal(np.isnan(a), np.isnan(b), err_msg=name)
            a, b = np.nan_to_num(a), np.nan_to_num(b)
            near, least = (TOLERANCE.get(value_before.dtype.name, 0), 0) if tolerance is None else (tolerance, 1)
            assert np.abs(a - b).max(initial=0) <= near * np.abs(a).max(initial=least), name
        if laws is not None:
            _compare_on_special_values(before, *sessions, outputs, laws)


def assert_same_on_special_values(before, after, outputs: Sequence[str] = ("y",), *, laws: Collection[str]) -> None:
    """Assert that laws preserve outputs on NaN, infinities, zeros, denormals and extremes; see `special_values`."""
    with _sessions(before, after) as sessions:
        _compare_on_special_values(before, *sessions, outputs, laws)


@contextmanager
def _sessions(before, after):
    with session(channels_last(before)) as one, session(channels_last(after)) as other:
        yield one, other


def _compare_on_special_values(before, one, other, outputs, laws) -> None:
    feeds = probes(before)
    inputs = {name: Endpoint(name, array.dtype.name, None) for name, array in feeds.items()}
    sizes = size_inputs(Frozen(before, {"s": Signature(inputs, {})}), "s")
    kinds = [kind for kind in (IEEE, LARGEST, EXTREMES) if not (kind == LARGEST and set(laws) & ROUNDING)]
    types = {tf.as_dtype(node.attr["T"].type).name for node in before.node if "T" in node.attr and node.attr["T"].type}
    tolerance = max([FLOAT32_TOLERANCE, *(HALF[name] for name in types & set(HALF))])
    run_before, run_after = (_runner(opened, outputs, feeds) for opened in (one, other))
    ranges = {
        name: float(np.abs(value).max(initial=0))
        for name, value in run_before(feeds).items()
        if value.dtype.kind in "fcV"
    }
    for kind in kinds:
        if all(name in sizes or values(array.dtype, kind) is None for name, array in feeds.items()):
            continue  # the inputs would be those of `feeds`
        draw = np.random.default_rng(0)
        drawn = {
            name: overlaid(np.asarray(array)[None], kind if name not in sizes else "", 6, draw)
            for name, array in feeds.items()
        }
        for row in range(6):
            arrays = {name: array[row] for name, array in drawn.items()}
            expected, received = run_before(arrays), run_after(arrays)
            if isinstance(expected, str) and set(laws) & UNCHECKING:
                continue
            reason = difference(Probe(kind, arrays, expected), received, tolerance, ranges)
            assert reason is None, (laws, reason, arrays)


def _runner(opened, outputs, feeds) -> Callable:
    """Return a function that runs a session on arrays, and returns the outputs or the name of the error."""
    options = tf.compat.v1.RunOptions(timeout_in_ms=3000)  # a loop until a limit that is infinite never ends
    call = opened.make_callable([f"{name}:0" for name in outputs], list(feeds), accept_options=True)

    def run(arrays):
        try:
            results = call(*(arrays[name] for name in feeds), options=options)
        except tf.errors.OpError as error:
            return type(error).__name__
        return {name: np.asarray(value) for name, value in zip(outputs, results, strict=True)}

    return run


def probes(graph_def, seed: int = 0) -> dict:
    """Return normally distributed values for every placeholder, with 2 for each unknown size."""
    draw = np.random.default_rng(seed)
    feeds = {}
    for node in graph_def.node:
        if node.op == "Placeholder":
            shape = [dimension.size if dimension.size >= 0 else 2 for dimension in node.attr["shape"].shape.dim]
            dtype = tf.as_dtype(node.attr["dtype"].type)
            values = draw.normal(0, 1, shape) * (1 if dtype.is_floating else 3)
            feeds[f"{node.name}:0"] = values.astype(dtype.as_numpy_dtype)
    return feeds
