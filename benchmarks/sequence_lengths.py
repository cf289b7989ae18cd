"""Measure what it costs that requests have different lengths, and what padding them to a few lengths gains.

    python benchmarks/sequence_lengths.py                 # three models, five runtimes; ten minutes on two cores
    python benchmarks/sequence_lengths.py --models conv1d --runtimes xla

Each model has an open sequence axis. The same 60 requests of one sequence each, with lengths from 5 to 64, are served
in two ways: as they are, and padded with zeros to the next of 8, 16, 32, 64 (the *buckets*). The first pass over the
requests meets new lengths, which XLA compiles, and for which LiteRT and ONNX Runtime allocate; the following passes, in
which both ways take turns, do not. "Same outputs" is no where padding changes outputs of the steps that exist by more
than 0.0001 of their range: then the buckets compute another function, and cannot be used.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

BUCKETS = (8, 16, 32, 64)
WIDTH, REQUESTS, PASSES = 64, 60, 5
SAME = 1e-4
MODELS = ("LSTM", "masked LSTM", "conv1d", "transformer", "masked transformer")
RUNTIMES = ("saved_model", "xla", "tflite", "onnx", "openvino")


def main() -> None:
    """Print a row for each model and runtime."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=MODELS, choices=MODELS)
    parser.add_argument("--runtimes", nargs="*", default=RUNTIMES, choices=RUNTIMES)
    options = parser.parse_args()
    lengths = np.random.default_rng(0).integers(5, BUCKETS[-1] + 1, REQUESTS)
    print("| model | runtime | first pass | in buckets | later, ms a request | in buckets | gain | same outputs |")
    print("|---|---|---|---|---|---|---|---|")
    for name in options.models:
        for runtime in options.runtimes:
            with tempfile.TemporaryDirectory(prefix="tfopt-bench-") as folder:
                try:
                    row = compare_ways(name, runtime, Path(folder), lengths)
                except Exception as error:  # a model that a runtime cannot have is a result
                    row = f"not possible: {str(error).splitlines()[0][:100]}"
                print(f"| {name} | {runtime} | {row} |", flush=True)


def compare_ways(name: str, runtime: str, folder: Path, lengths: Any) -> str:
    """Serve the requests as they are and in buckets, and return a row."""
    export(name, folder / "model")
    requests = [
        np.random.default_rng(i).normal(size=(1, length, WIDTH)).astype("float32") + 0.01
        for i, length in enumerate(lengths)
    ]
    padded = [
        np.pad(request, ((0, 0), (0, bucket(request.shape[1]) - request.shape[1]), (0, 0))) for request in requests
    ]
    serve, outputs, first = {}, {}, {}
    later: dict[str, list[float]] = {"own": [], "bucket": []}
    for way, batch in (("own", requests), ("bucket", padded)):
        serve[way] = load(runtime, folder / "model", folder / f"{runtime} {way}")
        start = time.perf_counter()
        outputs[way] = [serve[way](request) for request in batch]
        first[way] = time.perf_counter() - start
    for _ in range(PASSES):
        for way, batch in (("own", requests), ("bucket", padded)):
            start = time.perf_counter()
            for request in batch:
                serve[way](request)
            later[way].append((time.perf_counter() - start) / len(batch))
    error = max(difference(*pair) for pair in zip(outputs["own"], outputs["bucket"], strict=True))
    own, buckets = (1e3 * float(np.median(later[way])) for way in ("own", "bucket"))
    same = "yes" if error <= SAME else f"no ({error:.2g})"
    return f"{first['own']:.2f} s | {first['bucket']:.2f} s | {own:.3f} | {buckets:.3f} | {own / buckets:.2f}x | {same}"


def bucket(length: int) -> int:
    """Return the length to which a sequence is padded."""
    return next(size for size in BUCKETS if size >= length)


def difference(own: Any, padded: Any) -> float:
    """Return the largest difference as a fraction of the range; outputs of padded steps are left out."""
    padded = padded[:, : own.shape[1]] if own.ndim == 3 else padded
    return float(np.abs(own - padded).max() / np.ptp(own))


def export(name: str, folder: Path) -> None:
    """Write a model of sequences of any length; the masked ones ignore steps of zeros."""
    import keras
    from keras import layers

    keras.utils.set_random_seed(0)
    steps = layers.Input((None, WIDTH), name="steps")
    flow = layers.Masking()(steps) if name.startswith("masked") else steps
    if name.endswith("LSTM"):
        flow = layers.LSTM(WIDTH)(flow)
    elif name == "conv1d":
        for dilation in (1, 2, 4):
            flow = layers.Conv1D(WIDTH, 3, padding="causal", dilation_rate=dilation, activation="relu")(flow)
    else:
        for _ in range(2):
            flow = layers.LayerNormalization()(flow + layers.MultiHeadAttention(4, WIDTH // 4)(flow, flow))
            flow = layers.LayerNormalization()(flow + layers.Dense(WIDTH)(layers.Dense(4 * WIDTH, "relu")(flow)))
        flow = layers.GlobalAveragePooling1D()(flow)
    keras.Model(steps, layers.Dense(10)(flow)).export(str(folder), verbose=False)


def load(runtime: str, model: Path, target: Path) -> Callable[[Any], Any]:
    """Return a function that serves one request with a runtime of 2 threads."""
    if runtime in ("saved_model", "xla"):
        return load_tensorflow(model, compiled=runtime == "xla")
    if runtime == "tflite":
        return load_tflite(model)
    from tfopt import runtimes
    from tfopt.artifacts import Model
    from tfopt.component import find

    component = find(f"export_{runtime}")
    exported = component(model, exported=target, precision="float32")["exported"]
    opened = runtimes.load(Model(exported.path), threads=2)
    (name,) = opened.inputs
    return lambda request: next(iter(opened.run({name: request}).values()))


def load_tensorflow(model: Path, *, compiled: bool) -> Callable[[Any], Any]:
    """Return the signature of a SavedModel, compiled by XLA for each new shape if requested."""
    import tensorflow as tf

    loaded = tf.saved_model.load(str(model))
    signature = loaded.signatures["serving_default"]
    (name,) = signature.structured_input_signature[1]
    call = tf.function(lambda steps: signature(**{name: steps}), jit_compile=compiled, reduce_retracing=True)
    spec = tf.TensorSpec((None, None, WIDTH), tf.float32)
    concrete = call.get_concrete_function(spec)

    def serve(request: Any) -> Any:
        return next(iter(concrete(tf.constant(request)).values())).numpy()

    serve.model = loaded  # type: ignore[attr-defined]  # its variables live as long as the function
    return serve


def load_tflite(model: Path) -> Callable[[Any], Any]:
    """Return a LiteRT interpreter that is resized when the length changes."""
    import tensorflow as tf
    from ai_edge_litert.interpreter import Interpreter

    converter = tf.lite.TFLiteConverter.from_saved_model(str(model))
    interpreter = Interpreter(model_content=converter.convert(), num_threads=2)
    (entry,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()
    shape: tuple[int, ...] = ()

    def serve(request: Any) -> Any:
        nonlocal shape
        if request.shape != shape:
            shape = request.shape
            interpreter.resize_tensor_input(entry["index"], shape)
            interpreter.allocate_tensors()
        interpreter.set_tensor(entry["index"], request)
        interpreter.invoke()
        return interpreter.get_tensor(result["index"])

    return serve


if __name__ == "__main__":
    main()
