"""Measure what TensorFlow can compute in 8 bits from a SavedModel on a CPU: speed, size, load time and error.

    python benchmarks/quantized_saved_model.py                       # five models, an hour on two cores
    python benchmarks/quantized_saved_model.py --models dense --batches 1 --seconds 10

For each model with random weights, these SavedModels run in turns in one process, with as many threads as cores:

    SavedModel              as Keras exports it
    optimized               by `optimize_graph`
    quantize_graph          from the optimized one: oneDNN's 8-bit operations
    weights                 8-bit weights that the graph converts to float32 at each call
    weights, XLA            the same, compiled by `compile_xla`
    bfloat16                the optimized one by `cast_precision`
    TF …, XLA …, UNIFORM …  TensorFlow's own quantizer (`quantize_saved_model`) with the three sets of operations

Ratios are those of median latencies to that of the SavedModel, with 99 % intervals by order statistics of the ratios of
neighboring calls. The error is the largest difference from the SavedModel, as a fraction of the range of the output, on
records that nothing was calibrated on. A variant that takes more than 20 times as long as the SavedModel is called 5
times, and not with larger batches.
"""

import argparse
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from data_sets import write_split
from transformer import WORDS, export_transformer

PLAIN = "SavedModel"
SLOW, FEW = 20, 5
QUANTIZER = {
    "TF static": ("TF", "METHOD_STATIC_RANGE_INT8"),
    "TF dynamic": ("TF", "METHOD_DYNAMIC_RANGE_INT8"),
    "XLA static": ("XLA", "METHOD_STATIC_RANGE_INT8"),
    "XLA weights": ("XLA", "METHOD_STATIC_RANGE_WEIGHT_ONLY_INT8"),
    "XLA dynamic": ("XLA", "METHOD_DYNAMIC_RANGE_INT8"),
    "UNIFORM static": ("UNIFORM_QUANTIZED", "METHOD_STATIC_RANGE_INT8"),
    "UNIFORM dynamic": ("UNIFORM_QUANTIZED", "METHOD_DYNAMIC_RANGE_INT8"),
    "STABLEHLO static": ("STABLEHLO", "METHOD_STATIC_RANGE_INT8"),
}
LIMIT_S = 300  # of TensorFlow's quantizer
MODELS = ("mnist", "dense", "MobileNetV2", "ResNet50", "transformer")


def main() -> None:
    """Measure every model and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=MODELS, choices=MODELS)
    parser.add_argument("--batches", nargs="*", type=int, default=[1, 32])
    parser.add_argument("--side", type=int, default=96, help="height and width of the backbones' images")
    parser.add_argument("--seconds", type=float, default=40.0, help="for each batch size, for all variants together")
    parser.add_argument("--variants", nargs="*", help="names, instead of all")
    parser.add_argument(
        "--quantize", nargs=4, help=argparse.SUPPRESS
    )  # TensorFlow's quantizer, in a process of its own
    options = parser.parse_args()
    if options.quantize:
        run_quantizer(*options.quantize)
        return
    for name in options.models:
        with tempfile.TemporaryDirectory(prefix="tfopt-bench-") as folder:
            compare_variants(name, Path(folder), options)


def compare_variants(name: str, folder: Path, options: argparse.Namespace) -> None:
    """Make all variants of a model, and print a table for each batch size."""
    from tfopt.artifacts import Examples
    from tfopt.cli.terminal.log_redirect import capture_library_logs
    from tfopt.data.batches import read_batches

    with capture_library_logs():
        write_source(name, folder / "plain", options.side)
        write_examples(folder / "plain", folder / "examples")
        variants, failures = make_variants(folder, options.variants)
    facts, runtimes = {}, {}
    for variant, path in variants.items():
        try:
            runtimes[variant], facts[variant] = load(path)
        except Exception as error:  # of TensorFlow: a variant that does not run is a result
            failures[variant] = str(error).splitlines()[0][:100]
    inputs = runtimes[PLAIN].inputs
    held_out = next(iter(read_batches(Examples(folder / "examples").split("eval"), inputs, batch_size=32)))
    few = {key: array[:4] for key, array in held_out.items()}
    for variant in list(runtimes):
        try:
            facts[variant] |= compare_outputs(runtimes[PLAIN], runtimes[variant], few)
        except Exception as error:
            failures[variant] = str(error).splitlines()[0][:100]
            del runtimes[variant]
    for size in options.batches:
        batch = {key: array[:size] for key, array in held_out.items()}
        times = measure(runtimes, batch, options.seconds)
        for variant, seconds in times.items():
            if np.median(seconds) > SLOW * np.median(times[PLAIN]):
                del runtimes[variant]
        print(f"{name}, batch {size}: {1e3 * np.median(times[PLAIN]):.3g} ms")
        print("| variant | speed | file | load and first call | error | correlation |\n|---|---|---|---|---|---|")
        for variant, seconds in times.items():
            print(f"| {variant} | {ratio(times[PLAIN], seconds)} | {describe(facts[variant])} |", flush=True)
        for variant, reason in failures.items():
            print(f"| {variant} | fails: {reason} |")


def write_source(name: str, folder: Path, side: int) -> None:
    """Write a model with random weights."""
    import keras

    keras.utils.set_random_seed(0)
    if name == "mnist":
        sys.path.insert(0, str(Path(__file__).parent.parent / "docs" / "mnist"))
        model = importlib.import_module("model").build_model()
        draw = np.random.default_rng(0)
        for layer in model.layers:  # statistics as after training: of the size of the values
            if isinstance(layer, keras.layers.BatchNormalization):
                layer.beta.assign(draw.normal(0, 0.5, layer.beta.shape))
                layer.momentum = 0.0
        model(draw.random((64, 28, 28, 1), np.float32), training=True)
        model.export(str(folder), verbose=False)
    elif name == "dense":
        values = keras.layers.Input((784,), name="values")
        flow = values
        for units in (1024, 1024, 1024):
            flow = keras.layers.Dense(units, "relu")(flow)
        keras.Model(values, keras.layers.Dense(10)(flow)).export(str(folder), verbose=False)
    elif name == "transformer":
        export_transformer(folder, 128, masked=False, approximate=True, random_biases=False)
    else:
        from graph import export  # imports TensorFlow

        export(name, "keras", folder, side)


def write_examples(model: Path, folder: Path) -> None:
    """Write random numbers of words, or values between 0 and 1, for the inputs of a model, in two equal splits."""
    from tfopt import runtimes
    from tfopt.artifacts import SavedModel

    draw = np.random.default_rng(0)
    with runtimes.load(SavedModel(model)) as plain:
        shapes = {name: (32, *(size or 1 for size in spec.shape[1:])) for name, spec in plain.inputs.items()}
        columns = {
            name: draw.integers(0, WORDS, shape)
            if plain.inputs[name].dtype == "int32"
            else draw.random(shape, np.float32)
            for name, shape in shapes.items()
        }
    for split in ("train", "eval"):
        write_split(folder, split, columns)


def make_variants(folder: Path, names: list[str] | None) -> tuple[dict[str, Path], dict[str, str]]:
    """Return the folders of the variants that could be made, and the errors of the others."""
    from tfopt.components.cast_precision.component import cast_precision
    from tfopt.components.compile_xla.component import compile_xla
    from tfopt.components.optimize_graph.component import optimize_graph
    from tfopt.components.quantize_graph.component import quantize_graph

    plain, examples, optimized = folder / "plain", folder / "examples", folder / "optimized"
    loose: dict[str, Any] = {"examples": examples, "tolerance": 1.0}
    calls: dict[str, Callable[[Path], Any]] = {
        "optimized": lambda out: optimize_graph(plain, optimized=out, examples=examples),
        "quantize_graph": lambda out: quantize_graph(
            optimized, quantized=out, calibration_count=32, **{**loose, "tolerance": 100.0}
        ),
        "weights": lambda out: write_weights(optimized, out),
        "weights, XLA": lambda out: compile_xla(folder / "weights", compiled=out, batch_sizes=["1", "32"], **loose),
        "bfloat16": lambda out: cast_precision(optimized, cast=out, precision="bfloat16", **loose),
        **{name: partial(call_quantizer, plain, *QUANTIZER[name]) for name in QUANTIZER},
    }
    made, failures = {PLAIN: plain}, {}
    for name, call in calls.items():
        if names and name not in names:
            continue
        try:
            call(folder / name)
            made[name] = folder / name
        except Exception as error:
            failures[name] = str(error).splitlines()[0][:100]
    return made, failures


def write_weights(model: Path, folder: Path) -> None:
    """Write a model whose kernels are 8-bit integers with a scale for each output channel, converted at each call."""
    import tensorflow as tf

    from tfopt.artifacts import SavedModel
    from tfopt.saved_models.saved_model import read, write

    frozen = read(SavedModel(model).saved_model or model)
    graph = tf.compat.v1.GraphDef()
    graph.versions.CopyFrom(frozen.graph.versions)
    kernels = {node.input[1] for node in frozen.graph.node if node.op in ("Conv2D", "DepthwiseConv2dNative", "MatMul")}
    number = tf.float32.as_datatype_enum
    for node in frozen.graph.node:
        weights = tf.make_ndarray(node.attr["value"].tensor) if node.op == "Const" and node.name in kernels else None
        if weights is None or weights.size < 256:
            graph.node.add().CopyFrom(node)
            continue
        scale = (np.abs(weights).max(axis=tuple(range(weights.ndim - 1))) / 127).clip(1e-30).astype(np.float32)
        for role, array in (("int8", np.rint(weights / scale).astype(np.int8)), ("scale", scale)):
            const = graph.node.add(name=f"{node.name}/{role}", op="Const")
            const.attr["dtype"].type = tf.as_dtype(array.dtype).as_datatype_enum
            const.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(array))
        cast = graph.node.add(name=f"{node.name}/cast", op="Cast", input=[f"{node.name}/int8"])
        cast.attr["SrcT"].type, cast.attr["DstT"].type = tf.int8.as_datatype_enum, number
        graph.node.add(name=node.name, op="Mul", input=[cast.name, f"{node.name}/scale"]).attr["T"].type = number
    frozen.graph = graph
    write(frozen, folder)


def call_quantizer(plain: Path, operations: str, method: str, target: Path) -> None:
    """Run TensorFlow's quantizer in a process of its own, since it may crash or not end."""
    command = [sys.executable, __file__, "--quantize", str(plain), str(target), operations, method]
    result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if line.strip()] or ["it crashed"]
        shutil.rmtree(target, ignore_errors=True)
        raise RuntimeError(lines[-1])


def run_quantizer(plain: str, target: str, operations: str, method: str) -> None:
    """Quantize with TensorFlow's quantizer, calibrated on the examples next to the model."""
    from tensorflow.compiler.mlir.quantization.tensorflow import quantization_options_pb2 as options_proto
    from tensorflow.compiler.mlir.quantization.tensorflow.python import quantize_model

    from tfopt import runtimes
    from tfopt.artifacts import Examples, SavedModel
    from tfopt.data.batches import read_batches

    with runtimes.load(SavedModel(plain)) as baseline:
        split = Examples(Path(plain).parent / "examples").split("train")
        feed = list(read_batches(split, baseline.inputs, batch_size=4))
    options = options_proto.QuantizationOptions(op_set=getattr(options_proto, operations))
    options.quantization_method.preset_method = getattr(options_proto.QuantizationMethod, method)
    options.tags.append("serve")
    options.signature_keys.append("serving_default")
    options.enable_per_channel_quantization = operations == "XLA"  # the other sets do not support it
    calibration = feed if method == "METHOD_STATIC_RANGE_INT8" else None
    quantize_model.quantize(plain, target, options, representative_dataset=calibration)


def load(path: Path) -> tuple[Any, dict[str, Any]]:
    """Return a loaded model, and its file size and load time."""
    from tfopt import runtimes
    from tfopt.artifacts import SavedModel

    start = time.perf_counter()
    runtime = runtimes.load(SavedModel(path))
    folder = SavedModel(path).saved_model or path
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return runtime, {"bytes": size, "load": time.perf_counter() - start}


def compare_outputs(baseline: Any, child: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """Return the error and the correlation of the first output, and the time of the first call."""
    start = time.perf_counter()
    received = next(iter(child.run(batch).values())).astype(np.float64)
    first = time.perf_counter() - start
    expected = next(iter(baseline.run(batch).values())).astype(np.float64)
    error = float(np.abs(expected - received).max() / np.ptp(expected))
    return {"first": first, "error": error, "correlation": float(np.corrcoef(expected.ravel(), received.ravel())[0, 1])}


def measure(runtimes: dict[str, Any], batch: dict[str, Any], seconds: float) -> dict[str, list[float]]:
    """Return the times of calls of each variant, which take turns."""
    times: dict[str, list[float]] = {name: [] for name in runtimes}
    for name in runtimes:
        runtimes[name].run(batch)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[PLAIN]) < FEW:
        for name, runtime in runtimes.items():
            if len(times[name]) >= FEW and np.median(times[name]) > SLOW * np.median(times[PLAIN]):
                continue
            start = time.perf_counter()
            runtime.run(batch)
            times[name].append(time.perf_counter() - start)
    return times


def ratio(baseline: list[float], child: list[float]) -> str:
    """Format the ratio of medians, with a 99 % interval of the median of paired ratios."""
    count = min(len(baseline), len(child))
    pairs = np.sort(np.asarray(baseline[:count]) / np.asarray(child[:count]))
    half = int(np.ceil(2.576 * np.sqrt(count) / 2))
    low, high = max(0, count // 2 - half), min(count - 1, count // 2 + half)
    return f"{np.median(baseline[:count]) / np.median(child):.2f}x ({pairs[low]:.2f} to {pairs[high]:.2f})"


def describe(facts: dict[str, Any]) -> str:
    """Format size, load time, error and correlation of a variant."""
    load = f"{facts['load'] + facts['first']:.1f} s"
    return f"{facts['bytes'] / 1e6:.2f} MB | {load} | {facts['error']:.2g} | {facts['correlation']:.4f}"


if __name__ == "__main__":
    main()
