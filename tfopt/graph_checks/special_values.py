"""Compare models on special values: NaN, infinities, zeros of both signs, denormals, extremes, batches of no records.

NaN must stay NaN, and an infinity the same infinity. Zeros of both signs are equal in an output, as IEEE 754 compares
them; inside of a graph the sign shows in what is computed from it (1 / -0 is -infinity). A denormal equals zero:
TensorFlow's kernels flush denormals, operations that only move data do not. No records are left out where oneDNN
computes convolutions, which then return another shape than the graph's. Other floats may differ by the tolerance,
and all other values must be equal. An input on which the parent fails must fail with the same kind of error.
"""

import functools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts.tensor_spec import TensorSpec, batched_tensors, fixed_batch
from tfopt.data.batches import Batch
from tfopt.graph.frozen_model import Frozen
from tfopt.graph.op_registry import BINARY, REDUCTIONS, UNARY
from tfopt.graph.session import evaluate
from tfopt.graph_checks.frozen_runtime import FrozenRuntime
from tfopt.graph_def import nodes, reach, readers
from tfopt.runtimes import Runtime
from tfopt.runtimes.runtime import Call

IEEE, LARGEST = "NaN, infinities, zeros and denormals", "the largest floats"
EXTREMES, EMPTY = "extreme integers and texts", "no records"
SMALL_RECORD, MANY, FEW = 64, 48, 12  # elements of a small record; records of special values, if small and otherwise
CALLS = 4  # batches into which many records are divided: a reduction over the batch spreads a NaN
TIMEOUT_S = 20.0  # a loop until a limit that is infinite never ends
OUT_OF_MEMORY = "ResourceExhaustedError"
CONVOLUTIONS = {"Conv2D", "Conv3D", "DepthwiseConv2dNative", "Conv2DBackpropInput", "Conv3DBackpropInputV2"}
TEXTS = (b"", b"\xff\xfe\x00", "\u00e9".encode(), b" ", b"a" * 300)
Outputs = dict[str, NDArray[Any]]

# Operations that allocate no more for an extreme integer: they compute, select, or fail.
COMPUTING = UNARY | BINARY | REDUCTIONS
COMPUTING |= {"AddN", "ArgMax", "ArgMin", "AsString", "BatchMatMulV2", "BiasAdd", "ConcatV2", "Const", "Conv2D"}
COMPUTING |= {"Cumsum", "DepthwiseConv2dNative", "ExpandDims", "FusedBatchNormV3", "Gather", "GatherNd", "GatherV2"}
COMPUTING |= {"Identity", "IdentityN", "LogSoftmax", "LookupTableFindV2", "MatMul", "Pack", "Reshape", "ReverseV2"}
COMPUTING |= {"Select", "SelectV2", "Softmax", "Split", "SplitV", "Squeeze", "StopGradient", "StridedSlice"}
COMPUTING |= {"StringToHashBucketFast", "Transpose", "Unpack"}
# Their result depends on the shape of the input, not on its values.
SHAPES = {"OnesLike", "Rank", "Shape", "ShapeN", "Size", "ZerosLike"}

# Kernels of TensorFlow 2.21 that read out of bounds, or never end, for NaN or the largest floats.
CRASHING = {"CropAndResize", "CropAndResizeGradBoxes", "CropAndResizeGradImage", "RandomPoisson", "RandomPoissonV2"}
CRASHING |= {"AdjustHue", "StatefulRandomBinomial", "StatelessRandomBinomial", "StatelessRandomPoisson"}


@dataclass
class Probe:
    """Inputs of one call, and what the parent makes of them."""

    kind: str  # the kind of special values
    arrays: Batch  # the inputs
    outcome: Outputs | str  # the outputs, or the name of the error


def record_probes(runtime: FrozenRuntime, key: str, ordinary: Batch, most: int | None = None) -> list[Probe]:
    """Return probes with the outcomes of the parent; records on which it does not fail are compared without the others.

    Shapes, and values between the special ones, are those of ordinary records for its signature. Of each kind there are
    at most as many records.
    """
    probes = []
    convolves = any(node.op in CONVOLUTIONS for node in nodes(runtime.frozen.graph))
    for kind, arrays in _draw(ordinary, runtime.inputs, size_inputs(runtime.frozen, key), most):
        if kind == EMPTY and convolves and not _convolves_no_records():
            continue
        outcome = outcome_of(runtime, arrays)
        probes += [Probe(kind, arrays, outcome)]
        if isinstance(outcome, str) and kind != EMPTY:
            rows = working_records(runtime, arrays)
            outcome = outcome_of(runtime, rows) if rows else "no record"
            probes += [Probe(kind, rows, outcome)] if isinstance(outcome, dict) else []
    return [probe for probe in probes if probe.outcome != "DeadlineExceededError"]


@cache
def _convolves_no_records() -> bool:
    """Return whether a convolution of no records has the right shape; with oneDNN, TensorFlow 2.21 returns another."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        records = tf.compat.v1.placeholder(tf.float32, [None, 4, 4, 1], name="x")
        tf.nn.conv2d(records, np.ones([1, 1, 1, 2], np.float32), 1, "SAME", name="y")
    (output,) = evaluate(graph.as_graph_def(), ["y:0"], {"x:0": np.ones([0, 4, 4, 1], np.float32)})
    return output.shape == (0, 4, 4, 2)


def outcome_of(runtime: Runtime, arrays: Batch) -> Outputs | str:
    """Return the outputs, or the name of the error with which the model fails."""
    try:
        call: Call = runtime.call
        if isinstance(runtime, FrozenRuntime):
            call = functools.partial(runtime.call, timeout_s=TIMEOUT_S)
        return runtime.run_within_limit(call, arrays)
    except Exception as error:  # of TensorFlow, or a ValueError for a shape that it refuses
        return type(error).__name__


def working_records(runtime: Runtime, arrays: Batch, *, finite: bool = False) -> Batch:
    """Return the records on which a model does not fail, or (``finite``) return NaN, each run by itself.

    The result is empty if there are none.
    """
    names = batched_tensors(runtime.inputs)
    if not names or fixed_batch(runtime.inputs):
        return {}
    rows = []
    for row in range(min(len(arrays[name]) for name in names)):
        outcome = outcome_of(runtime, {**arrays, **{name: arrays[name][row : row + 1] for name in names}})
        if outcome == OUT_OF_MEMORY:  # TensorFlow waits 10 s for memory in each call
            break
        if isinstance(outcome, dict) and not (finite and any(map(contains_nan, outcome.values()))):
            rows.append(row)
    records = {**arrays, **{name: arrays[name][rows] for name in names}} if rows else {}
    return records if isinstance(outcome_of(runtime, records), dict) else {}  # outputs may have another shape each


def contains_nan(array: NDArray[Any]) -> bool:
    """Return True if a value is NaN."""
    return is_float(array.dtype) and bool(np.isnan(array.astype(np.float64)).any())


def difference(probe: Probe, outcome: Outputs | str, tolerance: float, ranges: dict[str, float]) -> str | None:
    """Return how an outcome differs from the parent's, or None.

    Args:
        probe: The inputs, and the outcome of the parent.
        outcome: The outcome of a child.
        tolerance: Allowed error of finite floats, as a fraction of the range of an output.
        ranges: The range of each output on ordinary inputs; the largest value of a record counts if it is larger.
    """
    where = f"on {probe.kind}"
    if isinstance(outcome, str) or isinstance(probe.outcome, str):
        kinds = [result if isinstance(result, str) else "outputs" for result in (probe.outcome, outcome)]
        return None if kinds[0] == kinds[1] else f"{kinds[1]} instead of {kinds[0]} {where}"
    for name, before in probe.outcome.items():
        after = outcome[name]
        if before.dtype != after.dtype or before.shape != after.shape:
            types = f"{after.dtype}{list(after.shape)}, not {before.dtype}{list(before.shape)}"
            return f"output {name!r} is {types} {where}"
        wrong = _differing(before, after, tolerance, ranges.get(name, 0.0))
        if wrong.any():
            at = tuple(np.argwhere(wrong)[0]) if before.ndim else ()
            return f"output {name!r} is {after[at]!s} instead of {before[at]!s} {where}"
    return None


def _differing(before: NDArray[Any], after: NDArray[Any], tolerance: float, spread: float) -> NDArray[np.bool_]:
    """Return the elements that differ."""
    if before.dtype.kind == "c":
        parts = ((before.real, after.real), (before.imag, after.imag))
        return np.logical_or(*(_differing(*pair, tolerance, spread) for pair in parts))
    if not is_float(before.dtype):
        return np.asarray(before != after)
    with np.errstate(all="ignore"):
        one, other = before.astype(np.float64), after.astype(np.float64)
        classes = (np.isnan(one) != np.isnan(other)) | ((np.isinf(one) | np.isinf(other)) & (one != other))
        is_finite = np.isfinite(one) & np.isfinite(other)
        finite = np.abs(np.where(np.isfinite(one), one, 0))
        scale = np.maximum(finite.max(axis=tuple(range(1, one.ndim)), keepdims=True, initial=0), spread)
        error = np.where(is_finite, np.abs(one / 2 - other / 2) * 2, 0)
        smallest_normal = float(ml_dtypes.finfo(before.dtype).tiny)
        flushed = is_finite & (np.maximum(finite, np.abs(other)) < smallest_normal)
        return np.asarray((classes | (error > tolerance * scale)) & ~flushed)


def is_float(dtype: np.dtype[Any]) -> bool:
    """Return True for real floats, also those that numpy does not have (bfloat16 has kind V)."""
    return dtype.kind == "f" or "float" in dtype.name


def _draw(
    ordinary: Batch, specs: Mapping[str, TensorSpec], sizes: Collection[str], most: int | None
) -> Iterator[tuple[str, Batch]]:
    """Yield kinds and batches, of at most as many records; the inputs ``sizes`` get no extremes."""
    batched, fixed = batched_tensors(specs), fixed_batch(specs)
    records = {name: array if name in batched else array[None] for name, array in ordinary.items()}
    elements = max((array[:1].size for array in records.values()), default=0)
    count = MANY if elements <= SMALL_RECORD and most is None else min(FEW, most or FEW)
    size = fixed or (1 if not batched else count // CALLS if count == MANY else count)
    count = -(-count // size) * size
    for number, kind in enumerate((IEEE, LARGEST, EXTREMES)):
        left = sizes if kind == EXTREMES else ()
        if all(name in left or values(array.dtype, kind) is None for name, array in records.items()):
            continue
        draw = np.random.default_rng(number)
        drawn = {name: overlaid(array, "" if name in left else kind, count, draw) for name, array in records.items()}
        for start in range(0, count, size):
            rows = {name: slice(start, start + size) if name in batched else start for name in drawn}
            yield kind, {name: array[rows[name]] for name, array in drawn.items()}
    if batched and not fixed:
        yield EMPTY, {name: array[:0] if name in batched else array for name, array in ordinary.items()}


def size_inputs(frozen: Frozen, key: str) -> set[str]:
    """Return the names of the integer inputs of a signature that reach another operation than those above."""
    reading = readers(frozen.graph)
    ops = {node.name: node.op for node in frozen.graph.node}

    def following(name: str) -> list[str]:
        return [reader for reader in reading.get(name, ()) if ops[reader] not in SHAPES]

    integers = {name: end for name, end in frozen.signatures[key].inputs.items() if "int" in end.dtype}
    behind = {name: reach(following(end.node), following) for name, end in integers.items()}
    return {name for name, names in behind.items() if not {ops[node] for node in names} <= COMPUTING}


def overlaid(array: NDArray[Any], kind: str, count: int, draw: np.random.Generator) -> NDArray[Any]:
    """Return records with special values: everywhere, at one place, or at half of the places, in turns."""
    result = np.array(array[np.arange(count) % len(array)])
    special = values(array.dtype, kind)
    if special is None or not result[:1].size:
        return result
    finite = special[np.isfinite(special.astype(np.float64))] if is_float(special.dtype) else special
    shape, shift = result.shape[1:], int(draw.integers(len(special)))
    for row in range(count):
        turn, layout = divmod(row, 3)
        places = np.ones(shape, bool) if layout == 0 else draw.random(shape) < 0.5
        if layout == 1 and result[row : row + 1].size > 1:
            places = np.arange(result[row : row + 1].size).reshape(shape) == draw.integers(result[row : row + 1].size)
        same = np.full(shape, special[(turn + shift) % len(special)], special.dtype)
        pool = special if turn % 2 else finite  # with NaN and infinities, a sum over a record is NaN
        mixed = pool[draw.integers(len(pool), size=shape)]
        result[row] = np.where(places, mixed if layout == 2 else same, result[row])
    return result


def values(dtype: np.dtype[Any], kind: str) -> NDArray[Any] | None:
    """Return the special values of a dtype and kind; None if it has none."""
    if dtype.kind == "c":
        real = values(np.dtype("float32" if dtype.itemsize == 8 else "float64"), kind)
        return None if real is None else np.array([complex(a, b) for a in real for b in real[:3]], dtype)
    if is_float(dtype) and kind in (IEEE, LARGEST):
        limits = ml_dtypes.finfo(dtype)
        if kind == LARGEST:
            return np.array([limits.max, limits.min], dtype)
        denormal = float(limits.smallest_subnormal) * 3
        return np.array([np.nan, np.inf, -0.0, -np.inf, denormal, 0.0, -denormal], dtype)
    if dtype.name.lstrip("u").startswith("int") and kind == EXTREMES:
        integers = ml_dtypes.iinfo(dtype)
        unsigned = integers.min == 0
        return np.array([integers.max, integers.min, 0, 1, integers.max if unsigned else -1], dtype)
    return np.array(TEXTS, object) if dtype.kind == "O" and kind == EXTREMES else None
