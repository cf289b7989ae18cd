"""Repeat `benchmark` and `select_model` of a finished run, and count which models are selected.

    make run
    python benchmarks/winners.py --pipeline retrain --root runs/retrain --repetitions 20 --json F

Each repetition measures the models of the run again, with another seed and in new processes, and selects one of them by
the goals of the run. Every finished repetition is stored in the file, and a second run continues from there. Goals: the
same model is selected in 20 of 20 repetitions, and `benchmark` takes at most 25 s for the nine models of `make run`.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stored_results import load_results, save_results

from tfopt.artifacts import Benchmark, Decision
from tfopt.dag.dag import StepOutput
from tfopt.dag.tracing import trace
from tfopt.pipelines import optimize, retrain
from tfopt.processes.preloaded_processes import preloading

PIPELINES: dict[str, Callable[..., Mapping[str, object] | None]] = {
    "optimize": optimize.optimize,
    "retrain": retrain.retrain,
}


def main() -> None:
    """Run the repetitions that are missing and print the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipeline", choices=PIPELINES, default="retrain")
    parser.add_argument(
        "--root", type=Path, default=Path("runs/retrain"), help="folder of the run (default: %(default)s)"
    )
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    record = json.loads((options.root / "run.json").read_text())
    settings = {"pipeline": options.pipeline, "inputs": record["inputs"], "parameters": record["parameters"]}
    results = load_results(options.json, settings, "repetitions")
    with preloading(is_run=True):
        for seed in range(len(results["repetitions"]), options.repetitions):
            results["repetitions"].append(repeat(options.pipeline, options.root, record, seed))
            save_results(options.json, results)
            print(describe(results["repetitions"][-1]), flush=True)
    print_summary(results["repetitions"])


def repeat(pipeline: str, root: Path, record: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Measure the models of the run, select one, and return its name, the seconds, and the notes of each model."""
    dag = trace(PIPELINES[pipeline])
    values = {**record["sources"], **record["parameters"]}
    with tempfile.TemporaryDirectory(prefix="tfopt-bench-") as name:
        folder = Path(name)
        measured = {"benchmark": folder / "benchmark"}

        def path(wire: Any) -> Any:
            if isinstance(wire, tuple):
                return [path(item) for item in wire]
            if not isinstance(wire, StepOutput):
                return values[wire.name]
            return measured.get(wire.step) or newest(root / "artifacts" / wire.step / wire.output)

        seconds = {}
        for step in (dag.steps["benchmark"], dag.steps["select_model"]):
            outputs = {output: folder / output for output in step.component.outputs}
            parameters = step.resolve(values) | ({"seed": seed} if step.id == "benchmark" else {})
            begun = time.monotonic()
            step.component(**{key: path(wire) for key, wire in step.inputs.items()}, **outputs, **parameters)
            seconds[step.id] = time.monotonic() - begun
        models = Benchmark(measured["benchmark"]).load().models
        return {
            "selected": Decision(folder / "decision").load().selected,
            "seconds": seconds["benchmark"],
            "notes": {model.name: model.notes for model in models},
        }


def newest(folder: Path) -> Path:
    """Return the output of the last execution of a step."""
    return max(folder.iterdir(), key=lambda path: int(path.name))


def describe(repetition: Mapping[str, Any]) -> str:
    """Describe a repetition in one line."""
    return f"{repetition['selected']} in {repetition['seconds']:.1f} s"


def print_summary(repetitions: list[dict[str, Any]]) -> None:
    """Print how often each model was selected, and the time of the measurement."""
    for name, count in Counter(repetition["selected"] for repetition in repetitions).most_common():
        print(f"{name}: {count} of {len(repetitions)}")
    seconds = [repetition["seconds"] for repetition in repetitions]
    print(f"benchmark: {statistics.median(seconds):.1f} s ({min(seconds):.1f} to {max(seconds):.1f} s)")


if __name__ == "__main__":
    main()
