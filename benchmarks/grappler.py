"""Measure the effect of each Grappler optimizer that is run offline and stored in a model.

    python benchmarks/grappler.py                      # the table of docs/grappler.md, MobileNetV2 with random weights
    python benchmarks/grappler.py --model PATH         # another SavedModel

Nodes are those of the written graph. *Offline* is the latency of the model that is read, frozen and written without any
optimizer, divided by that of the model with this optimizer alone, on the same inputs in alternating calls, with its
99 % interval. Grappler runs at start for both models.
"""

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

from tfopt import keras_models, runtimes
from tfopt.artifacts import SavedModel
from tfopt.data.sample_inputs import random_batch
from tfopt.graph import grappler
from tfopt.graph_def import nodes
from tfopt.measurement.speedup import speedup
from tfopt.reports.benchmark_report import SpeedupEstimate
from tfopt.saved_models.saved_model import read, write

WARM_UP = 3  # calls


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        model = arguments.model or mobile_net(Path(scratch, "model"))
        folder = SavedModel.open(model).saved_model
        assert folder
        frozen = read(folder)
        write(frozen, Path(scratch, "frozen"))
        before = Counter(node.op for node in nodes(frozen.graph))
        print(f"frozen: {before.total()} nodes\n")
        print("| optimizer | nodes | ops gone | ops new | stored in the file | offline |\n|---|---|---|---|---|---|")
        for names in (*((name,) for name in grappler.OPTIMIZERS), grappler.PORTABLE, (*grappler.PORTABLE, "remapper")):
            written = Path(scratch, "-".join(names))
            write(grappler.run(frozen, names), written)
            after = Counter(node.op for node in nodes(read(written).graph))
            stored = "yes" if after != before else "nothing to do here"
            speed = measure(Path(scratch, "frozen"), written, arguments.rounds)
            print(
                f"| {title(names)} | {after.total()} | {listed(before - after)} | {listed(after - before)} "
                f"| {stored} | {speed.value:.2f} ({speed.low:.2f} to {speed.high:.2f}) {speed.verdict} |",
                flush=True,
            )


def mobile_net(folder: Path) -> Path:
    """Export MobileNetV2 by Keras 3 with random weights, and return the folder."""
    import keras

    keras.utils.set_random_seed(0)
    keras_models.save(keras.applications.MobileNetV2(weights=None), folder)
    return folder


def measure(baseline: Path, child: Path, rounds: int) -> SpeedupEstimate:
    """Return the speedup of the child at batch size 1, in alternating calls; a difference under 3 % is noise."""
    models = [runtimes.load(SavedModel(path)) for path in (baseline, child)]
    batch = random_batch(models[0].inputs, records=1, seed=0)
    times: list[list[float]] = [[], []]
    for number in range(rounds + WARM_UP):
        for model, own in zip(models, times, strict=True):
            start = time.perf_counter()
            model.run(batch)
            if number >= WARM_UP:
                own.append(time.perf_counter() - start)
    return speedup(np.array(times[0]), np.array(times[1]), min_effect=0.03)


def title(names: tuple[str, ...]) -> str:
    """Return the row title of some optimizers."""
    if len(names) == 1:
        return f"`{names[0]}`"
    return "the default (all that are portable)" + (", and `remapper`" if "remapper" in names else "")


def listed(ops: Counter[str]) -> str:
    """Return the three most frequent ops with their counts."""
    return ", ".join(f"{count} {op}" for op, count in ops.most_common(3)) or "-"


if __name__ == "__main__":
    main()
