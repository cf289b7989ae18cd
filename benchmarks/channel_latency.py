"""Compare two ways to choose channels at equal latency: by the table of latencies of `prune`, and by FLOPs.

    python benchmarks/channel_latency.py [--data mnist residual] [--seeds 0 1 2] [--sparsity 0.4] [--folder FOLDER]

Networks of data_sets.py are trained on 5,000 real digits, once for each seed. `prune` removes channels until LiteRT
needs the requested fraction less time, by the table. Then the fraction of FLOPs is searched whose removal leaves the
same latency, measured alternately with the parent, and `prune` removes that. Both models are fine-tuned alike,
evaluated on ``test``, and timed by `benchmark` in interleaved rounds. Differences are those of the table to FLOPs, with
the intervals of `evaluate` and `benchmark`. With --folder models are stored and reused.
"""

import argparse
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_sets import DATA
from shrink import SPLITS

from tfopt import keras_models
from tfopt.artifacts import Benchmark, Evaluation, KerasModel
from tfopt.component import find
from tfopt.components.prune.channels.latency import LatencyMeter
from tfopt.components.prune.channels.selection import remove_channels
from tfopt.components.prune.parameters import PruningSettings

CHANNELS: dict[str, Any] = {"pattern": "channel", "latency_runtime": "tflite"}
STEPS = 6  # of the search for FLOPs with the same latency
Row = dict[str, Any]


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", nargs="+", choices=[name for name in DATA if DATA[name].real], default=["mnist", "residual"]
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--sparsity", type=float, default=0.4, help="fraction of the latency to remove")
    parser.add_argument("--seconds", type=float, default=4.0, help="time to measure the speed of each model")
    parser.add_argument("--folder", type=Path, help="store the models here, and reuse those that are there")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("tfopt").setLevel(logging.INFO)
    rows = []
    with tempfile.TemporaryDirectory(prefix="tfopt-") as scratch:
        for data in arguments.data:
            for seed in arguments.seeds:
                folder = (arguments.folder or Path(scratch)) / data
                rows.append(measure(folder, data, seed, arguments.sparsity, arguments.seconds))
                print("\n".join(table(rows)), flush=True)


def measure(folder: Path, data: str, seed: int, sparsity: float, seconds: float) -> Row:
    """Train, prune in both ways, evaluate and time the models, and return a row."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen = DATA[data]
    examples = once(
        "prepare_examples",
        folder / "examples",
        data=chosen.rows(folder),
        label="label",
        splits=SPLITS,
        **chosen.prepared,
    )
    module = chosen.module(folder)
    parent = once("train", folder / f"trained {seed}", examples=examples, module=module, **chosen.train, seed=seed)
    tuned = {"examples": examples, "module": module, **chosen.tuned, "seed": seed, **CHANNELS}
    by_table = once(
        "prune", folder / f"table {seed}", model=parent, measure="latency", sparsity=sparsity,
        checkpoints=str(folder / "latencies"), **tuned,
    )  # fmt: skip
    ratio = KerasModel(by_table).card.facts["report"]["ratio"]
    removed = find_flops(KerasModel(parent), ratio)
    by_flops = once("prune", folder / f"flops {seed}", model=parent, measure="flops", sparsity=removed, **tuned)
    find("evaluate")(by_flops, [by_table, parent], examples, folder / f"evaluation {seed}", split="test")
    files = [once("export_tflite", Path(f"{model}.lite"), model=model) for model in (by_flops, by_table, parent)]
    find("benchmark")(files[0], files[1:], folder / f"benchmark {seed}", examples, batch_sizes=["1"], seconds=seconds)
    evaluated = Evaluation(folder / f"evaluation {seed}").read()["models"]
    speeds = [model.get("speedup") for model in Benchmark(folder / f"benchmark {seed}").read()["models"]]
    return {
        "data": data,
        "seed": seed,
        "accuracies": [model["metrics"]["accuracy"]["value"] for model in evaluated],
        "difference": evaluated[1]["delta"]["accuracy"],
        "speedup": speeds[1]["1"],
        "parent": speeds[2]["1"]["value"],
        "flops": [flops_left(model) for model in (by_flops, by_table)],
    }


def find_flops(parent: KerasModel, ratio: float) -> float:
    """Return the fraction of FLOPs whose removal leaves this fraction of the latency, or the next one above it."""
    model = keras_models.load(parent)
    meter = LatencyMeter(model, "tflite")
    low, high, best = 0.0, 0.98, (1.0, 0.0)
    for _ in range(STEPS):
        middle = (low + high) / 2
        latency = meter.measure(remove_channels(model, PruningSettings(middle, "channel")).model)
        best = min(best, (abs(latency - ratio), middle))
        low, high = (middle, high) if latency > ratio else (low, middle)
    return best[1]


def flops_left(model: Path) -> float:
    """Return the fraction of the FLOPs that a pruned model has."""
    flops = KerasModel(model).card.facts["report"]["flops"]
    return float(flops["after"] / flops["before"])


def table(rows: list[Row]) -> Iterator[str]:
    """Yield a Markdown table with one line per network and seed."""
    heads = ["network", "seed", "trained", "by FLOPs", "by the table", "table - FLOPs, points"]
    heads += ["latency by FLOPs", "table as fast as FLOPs", "FLOPs left"]
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        by_flops, by_table, trained = (f"{accuracy:.2%}" for accuracy in row["accuracies"])
        value, low, high = (f"{100 * row['difference'][end]:+.2f}" for end in ("value", "low", "high"))
        speed, flops = row["speedup"], row["flops"]
        cells = [row["data"], row["seed"], trained, by_flops, by_table, f"{value} ({low} to {high})"]
        cells += [f"{row['parent']:.0%}"]
        cells += [f"{speed['value']:.2f}x ({speed['low']:.2f} to {speed['high']:.2f}), {speed['verdict']}"]
        cells += [f"{flops[0]:.0%}, {flops[1]:.0%}"]
        yield f"| {' | '.join(map(str, cells))} |"


def once(name: str, target: Path, **arguments: Any) -> Path:
    """Run a component unless its output is there."""
    component = find(name)
    if not target.exists():
        component(**arguments, **{next(iter(component.outputs)): target})
    return target


if __name__ == "__main__":
    main()
