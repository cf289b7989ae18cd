"""Measure each technique that shrinks a model: accuracy, bytes, zeros, and speed on every runtime.

    python benchmarks/shrink.py [--data mnist flights] [--only NAME …] [--epochs N] [--no-latency] [--folder FOLDER]
    python benchmarks/shrink.py --data wide [--only NAME …]        # the digits with a compute-bound network
    python benchmarks/shrink.py --data attention [--only NAME …]   # with two blocks of a transformer
    python benchmarks/shrink.py --data residual --seeds 0 1 2 --only QAT "QAT, int4" …     # and the mean over trainings
    python benchmarks/shrink.py --data MobileNetV2 ResNet50 [--only NAME …]                # or any other backbone

Two real data sets: 5,000 digits (docs/mnist/model.py, 34 thousand weights) and 327,346 flights (docs/flights, 345
thousand). A network is trained on each, each technique fine-tunes a copy, and every copy is exported. `eval` selects
the best epoch of a training on `train`, and all models are evaluated on `test`. Differences are to the trained model,
with 95 % intervals. Sizes are those of the TFLite file. Speed is the trained model's latency divided by the copy's in
the same runtime, at batch size 1 or --batch. With --folder the models are stored and reused: accuracy can be measured
on a busy machine, and the same command without --no-latency measures speed later on a quiet one.

Backbones of keras.applications are trained for an epoch on random images of 128x128, to measure sizes, zeros and speed.
No accuracy is reported for them.

The goal for int8, 3.7x smaller, applies to networks whose file consists mostly of weights. An 8-bit file has 12 bytes
of scale and zero point for each channel, and as many for its bias, unless it is a dense layer's: 14 of the digits'
54 kB.
"""

import argparse
import contextlib
import itertools
import json
import logging
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from data_sets import DATA, Data

from tfopt.artifacts import Benchmark, Evaluation, Model, Sensitivities
from tfopt.component import find
from tfopt.errors import ComponentError
from tfopt.reports.sensitivity_report import Loss

Row = dict[str, Any]
Step = tuple[str, dict[str, Any]]


SPLITS = ["train:7", "eval:1", "test:2"]

PARENT = "trained"
FOLD: Step = ("fold_batch_norm", {})  # before clustering: an exporter would give each channel other values
ZEROS = "prune", {"sparsity": 0.8}
SLIM = "prune", {"pattern": "channel", "sparsity": 0.5}
SHARE = "cluster", {"clusters": 32}
AWARE: Step = ("quantize", {})
MEASURED, REVERSED = "measured", "reversed"  # sensitivities, and those that rank the layers in the reverse order


def mixed(sensitivities: str, **options: Any) -> Step:
    """Return quantization-aware training with 6 bits for a weight in the mean."""
    return "quantize", {"weight_bits": 6.0, "sensitivities": sensitivities, **options}


# Steps applied to the trained model, and the precision of its TFLite file.
VARIANTS: dict[str, tuple[list[Step], str]] = {
    PARENT: ([], "float32"),
    "80% zeros": ([ZEROS], "float32"),
    "80% zeros, sparse file": ([ZEROS], "sparse"),
    "2:4 zeros": ([("prune", {"pattern": "n_m"})], "float32"),
    "50% zeros in 1x4 blocks": ([("prune", {"pattern": "block"})], "float32"),
    "half the FLOPs": ([SLIM], "float32"),
    "32 values": ([FOLD, SHARE], "float32"),
    "80% zeros, 32 values": ([FOLD, ZEROS, SHARE], "float32"),
    "dynamic": ([], "dynamic"),
    "int4": ([], "int4"),
    "mix, 1% degradation": ([], "mix"),
    "int8": ([], "int8"),
    "int8, 1% degradation": ([], "limited"),
    "80% zeros, int8": ([ZEROS], "int8"),
    "half the FLOPs, int8": ([SLIM], "int8"),
    "QAT": ([AWARE], "int8"),
    "QAT, labels alone": ([("quantize", {"alpha": 0.0})], "int8"),
    "QAT, int4": ([("quantize", {"recipe": ["*=int4"]})], "int8"),
    "QAT, int4, labels alone": ([("quantize", {"recipe": ["*=int4"], "alpha": 0.0})], "int8"),
    "QAT, learned scales": ([("quantize", {"learned_scales": True})], "int8"),
    "QAT, int4, learned scales": ([("quantize", {"recipe": ["*=int4"], "learned_scales": True})], "int8"),
    "QAT, 6 bits": ([mixed(MEASURED)], "int8"),
    "QAT, 6 bits, labels alone": ([mixed(MEASURED, alpha=0.0)], "int8"),
    "QAT, 6 bits in the reverse order": ([mixed(REVERSED)], "int8"),
    "80% zeros, QAT": ([ZEROS, AWARE], "int8"),
    "32 values, QAT": ([FOLD, SHARE, AWARE], "int8"),
    "80% zeros, 32 values, QAT": ([FOLD, ZEROS, SHARE, AWARE], "int8"),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "limited": {"precision": "int8", "max_degradation": 0.01},
    "sparse": {"precision": "float32", "sparse": True},
    "mix": {"precision": "auto", "max_degradation": 0.01},
}
ONNX = ("float32", "int8", "limited", "mix")  # precisions of the above that export_onnx supports


def main() -> None:
    """Measure, print a table for each data set and which goals were met, and write JSON if requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=list(DATA), default=["mnist", "flights"])
    parser.add_argument("--only", nargs="+", choices=list(VARIANTS), help="only these techniques")
    parser.add_argument(
        "--epochs", type=int, help="of each fine-tuning, instead of 20 (mnist), 6 (wide), 5 (flights) or 1"
    )
    parser.add_argument(
        "--no-latency", action="store_true", help="do not measure speed, which is unreliable on a busy machine"
    )
    parser.add_argument("--no-onnx", action="store_true", help="export LiteRT files only")
    parser.add_argument("--seconds", type=float, default=6.0, help="time to measure the speed of each model")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of trainings; one table for each")
    parser.add_argument("--batch", type=int, default=1, help="rows in a call whose speed is measured")
    parser.add_argument("--folder", type=Path, help="store the models here, and reuse those that are there")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("tfopt").setLevel(logging.INFO)
    names = [name for name in VARIANTS if not arguments.only or name in arguments.only or name == PARENT]
    results: dict[str, list[Row]] = {}
    for data, seed in itertools.product(arguments.data, arguments.seeds):
        name = f"{data} {seed}" if seed else data
        with _folder(arguments.folder and arguments.folder / name) as folder:
            bench = Bench(folder, DATA[data], arguments.epochs, seed)
            seconds = None if arguments.no_latency else arguments.seconds
            results[name] = bench.rows(names, seconds, arguments.batch, with_onnx=not arguments.no_onnx)
        print(f"\n{name}\n\n" + "\n".join(table(results[name])) + "\n")
        print("\n".join(check_goals({row["technique"]: row for row in results[name]})), flush=True)
    for data in arguments.data if len(arguments.seeds) > 1 else ():
        print(f"\n{data}, {len(arguments.seeds)} trainings\n\n" + "\n".join(means(data, results)))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


class Bench:
    """A data set with its examples, models and files."""

    def __init__(self, folder: Path, data: Data, epochs: int | None, seed: int) -> None:
        """Prepare the examples and train the baseline, unless they exist."""
        self.folder, self.data, self.epochs, self.seed = folder, data, epochs, seed
        self.examples = self._once("prepare_examples", "examples", splits=SPLITS, **data.prepared)
        self.module = data.module(folder)
        self.baseline = self._once("train", PARENT, examples=self.examples, module=self.module, **data.train, seed=seed)

    def rows(self, names: list[str], seconds: float | None, batch: int, *, with_onnx: bool) -> list[Row]:
        """Shrink, export and evaluate; return a row for each technique, the trained model first."""
        shrunk = {name: self._shrunk(name) for name in names}
        lite = {name: self._exported("tflite", name, shrunk[name]) for name in names}
        onnx = {name: self._exported("onnx", name, shrunk[name]) if with_onnx else None for name in names}
        files = [file for file in (*lite.values(), *onnx.values()) if file]
        evaluated: dict[Path, Row] = {file: {} for file in files}
        if self.data.real:
            evaluated = dict(
                zip(files, self._report("evaluate", Evaluation, files, split="test")["models"][1:], strict=True)
            )
        rows: list[Row] = [
            {
                "technique": name,
                "zeros": zeros(shrunk[name]),
                "speed": {},
                **{key: _facts(file, evaluated) for key, file in (("tflite", lite[name]), ("onnx", onnx[name]))},
            }
            for name in names
        ]
        if seconds:
            models_by_runtime: dict[str, dict[str, Path | None]] = {
                "saved_model": {**shrunk},
                "tflite": lite,
                "onnx": onnx,
            }
            for runtime, models in models_by_runtime.items():
                unique = list(dict.fromkeys(model for model in models.values() if model))  # one SavedModel, many files
                if len(unique) < 2:
                    continue
                report = self._report(
                    f"benchmark {runtime}", Benchmark, unique, seconds=seconds, batch_sizes=[str(batch)]
                )
                speed = {m: row.get("speedup") for m, row in zip(unique, report["models"], strict=True)}
                for row in rows:
                    model = models[row["technique"]]
                    row["speed"][runtime] = ((speed[model] if model else None) or {}).get(str(batch))
        return rows

    def _shrunk(self, name: str) -> Path:
        """Return the model after every step; steps that two techniques share run once."""
        model, tuned = self.baseline, {**self.data.tuned, **({"epochs": self.epochs} if self.epochs else {})}
        for component, options in VARIANTS[name][0]:
            more = {**tuned, **(self.data.pruned if component == "prune" else {}), "module": self.module}
            more = {} if component == FOLD[0] else {**more, "seed": self.seed}
            step = f"{component} {'-'.join(f'{key}={value}' for key, value in options.items())}".strip()
            step = re.sub(r"[*\[\]']", "", step)  # no characters of patterns in a path
            if order := options.get("sensitivities"):
                more["sensitivities"] = self._sensitivities(model, order)
            model = self._once(
                component, f"{model.name} {step}", model=model, examples=self.examples, **{**options, **more}
            )
        return model

    def _sensitivities(self, model: Path, order: str) -> Path:
        measured = self._once("measure_sensitivities", f"{model.name} {MEASURED}", model=model, examples=self.examples)
        reverse, content = self.folder / f"{model.name} {REVERSED}", Sensitivities(measured).load()
        negative = [
            replace(
                layer, rounded_weights={name: Loss(-loss.divergence) for name, loss in layer.rounded_weights.items()}
            )
            for layer in content.layers
        ]
        reverse.mkdir(exist_ok=True)
        Sensitivities(reverse).write(replace(content, layers=negative))
        return reverse if order == REVERSED else measured

    def _exported(self, kind: str, name: str, model: Path) -> Path | None:
        """Return the exported file, or None (with a message) if the format does not support the model."""
        precision = VARIANTS[name][1]
        if kind == "onnx" and precision not in ONNX:
            return None
        options = {**self.data.exported, **OPTIONS.get(precision, {"precision": precision})}
        try:
            return self._once(f"export_{kind}", f"{kind} {name}", model=model, examples=self.examples, **options)
        except ComponentError as error:
            print(f"{name}: no {kind}: {error.received}", flush=True)
            return None

    def _report(self, step: str, kind: type[Any], models: list[Path], **options: Any) -> dict[str, Any]:
        """Run a comparison, and return its report. It is not reused, since there may be more models than last time."""
        target = self.folder / f"report {step}"
        shutil.rmtree(target, ignore_errors=True)
        baseline, candidates = (self.baseline, models) if step == "evaluate" else (models[0], models[1:])
        output = {step.split()[0] if step != "evaluate" else "evaluation": target}
        find(step.split()[0])(baseline=baseline, candidates=candidates, examples=self.examples, **output, **options)
        return dict(kind(target).read())

    def _once(self, component: str, name: str, **arguments: Any) -> Path:
        target = self.folder / name
        if not target.exists():
            if component == "prepare_examples":
                arguments["data"] = self.data.rows(self.folder)
            declared = find(component)
            declared(**arguments, **{next(iter(declared.outputs)): target})
        return target


def means(data: str, results: Mapping[str, list[Row]]) -> Iterable[str]:
    """Yield a table of the differences of each technique in all trainings, with the mean and the mean size."""
    trainings = [rows for name, rows in results.items() if name.split()[0] == data]
    yield "| technique | differences, points | mean | size |"
    yield "|---|---|---|---|"
    for rows in zip(*trainings, strict=True):
        if all(row["tflite"] and "difference" in row["tflite"] for row in rows):
            points = [100 * row["tflite"]["difference"]["value"] for row in rows]
            mean, size = sum(points) / len(points), sum(row["tflite"]["raw"] for row in rows) / len(rows)
            values = ", ".join(f"{value:+.2f}" for value in points)
            yield f"| {rows[0]['technique']} | {values} | {mean:+.2f} | {size / 1e3:.1f} kB |"


def zeros(model: Path) -> float:
    """Return the fraction of zeros in the SavedModel's weights with two or more dimensions."""
    import tensorflow as tf

    file = tf.train.load_checkpoint(str(model / "Format-Serving" / "variables" / "variables"))
    kernels = [file.get_tensor(name) for name, shape in file.get_variable_to_shape_map().items() if len(shape) > 1]
    return sum(int((kernel == 0).sum()) for kernel in kernels) / sum(int(kernel.size) for kernel in kernels)


def table(rows: list[Row]) -> Iterable[str]:
    """Yield a Markdown table with one line per technique."""
    runtimes = list(rows[0]["speed"])
    head = ["technique", "accuracy", "difference, points", "zeros", "size", "gzipped", "smaller"]
    head += ["ONNX: difference", "size", *(f"{runtime} speed" for runtime in runtimes)]
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        lite, onnx = row["tflite"], row["onnx"]
        cells = [row["technique"], "-", "-", f"{row['zeros']:.0%}", "-", "-", "-", "-", "-"]
        if lite:
            cells[1:3] = f"{lite['accuracy']:.2%}" if "accuracy" in lite else "-", _difference(lite)
            cells[4:7] = f"{lite['raw'] / 1e3:.1f} kB", f"{lite['gzipped'] / 1e3:.1f} kB", f"{_less(rows[0], row):.2f}x"
        if onnx:
            cells[7:] = _difference(onnx), f"{onnx['raw'] / 1e3:.1f} kB"
        yield f"| {' | '.join([*cells, *(_speed(row['speed'][runtime]) for runtime in runtimes)])} |"


def check_goals(rows: Mapping[str, Row]) -> Iterator[str]:
    """Yield for each measured goal whether it was met."""
    points = {"80% zeros": 1.0, "half the FLOPs": 1.5, "QAT": 0.5}
    real = "accuracy" in rows[PARENT]["tflite"]
    for name, most in points.items():
        if real and name in rows and rows[name]["tflite"]:
            lost = -100 * rows[name]["tflite"]["difference"]["value"]
            yield _verdict(name, f"{lost:.2f} points lost, goal at most {most:g}", lost <= most)
    for name in ("80% zeros", "80% zeros, sparse file", "80% zeros, 32 values", "80% zeros, int8"):
        if name in rows and rows[name]["tflite"]:
            yield _verdict(
                name,
                f"{_less(rows[PARENT], rows[name]):.2f}x smaller gzipped, goal 3x",
                _less(rows[PARENT], rows[name]) >= 3,
            )
    for name in ("int8", "QAT"):
        if name in rows and rows[name]["tflite"]:
            ratio = rows[PARENT]["tflite"]["raw"] / rows[name]["tflite"]["raw"]
            yield _verdict(name, f"{ratio:.2f}x smaller, goal 3.7x", ratio >= 3.7)
    if real and {"int8", "QAT"} <= set(rows):
        gained = 100 * (rows["QAT"]["tflite"]["accuracy"] - rows["int8"]["tflite"]["accuracy"])
        yield _verdict("QAT", f"{gained:+.2f} points against int8 calibrated, goal +0", gained >= 0)
    for runtime in ("saved_model", "tflite"):
        speed = rows.get("half the FLOPs", {}).get("speed", {}).get(runtime)
        if speed:
            yield _verdict("half the FLOPs", f"{speed['value']:.2f}x on {runtime}, goal 1.6x", speed["value"] >= 1.6)


def _facts(file: Path | None, evaluated: Mapping[Path, Row]) -> Row | None:
    """Return the accuracy and the bytes of a file, or None if it does not exist or could not be run."""
    if file is None or evaluated[file].get("error"):
        return None
    row = evaluated[file]
    metrics = {"accuracy": row["metrics"]["accuracy"]["value"], "difference": row["delta"]["accuracy"]} if row else {}
    return {**metrics, **Model(file).sizes()}


def _less(baseline: Row, row: Row) -> float:
    return float(baseline["tflite"]["gzipped"] / row["tflite"]["gzipped"])


def _difference(file: Row) -> str:
    difference = file.get("difference")
    return (
        "-"
        if difference is None
        else f"{100 * difference['value']:+.2f} ({100 * difference['low']:+.2f} to {100 * difference['high']:+.2f})"
    )


def _verdict(name: str, measured: str, is_met: bool) -> str:
    return f"{name}: {measured}: {'met' if is_met else 'MISSED'}"


def _speed(measured: Mapping[str, Any] | None) -> str:
    return f"{measured['value']:.2f}x {measured['verdict']}" if measured else "-"


@contextlib.contextmanager
def _folder(path: Path | None) -> Iterator[Path]:
    if path:
        path.mkdir(parents=True, exist_ok=True)
        yield path
    else:
        with tempfile.TemporaryDirectory(prefix="tfopt-shrink-") as folder:
            yield Path(folder)


if __name__ == "__main__":
    main()
