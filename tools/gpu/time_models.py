"""Time models of any format in turns in one process, each relative to the first.

python tools/gpu/time_models.py MODEL ... --examples EXAMPLES --batch-sizes 1 32

A call takes NumPy arrays and returns them, so copies to and from the GPU are included.
"""

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

from tfopt import runtimes
from tfopt.artifacts import Examples, Model
from tfopt.data.sample_inputs import draw_inputs, split_batches
from tfopt.error_messages import first_line

ROUNDS, TURN_S, WARM_UP = 12, 0.1, 3


def main() -> None:
    """Print the median time of a call, and the median, least and largest ratio of the first model's time to it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--examples", help="real inputs; without them, random ones")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 32])
    options = parser.parse_args()
    loaded = load(options.models)
    if not loaded:
        raise SystemExit("none of the models can be loaded: see the lines above")
    for size in options.batch_sizes:
        times = time_in_turns(loaded, size, options.examples)
        first = next(iter(times.values()), [])
        for name, seconds in times.items():
            ratios = [base / each for base, each in zip(first, seconds, strict=True)]
            spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
            print(
                f"batch {size} {name}: {1e3 * statistics.median(seconds):.3f} ms, "
                f"{statistics.median(ratios):.2f}x ({spread})",
                flush=True,
            )


def load(paths: list[str]) -> dict[str, Any]:
    """Return the runtimes of the models by name; a line is printed for each that cannot be loaded."""
    loaded = {}
    for path in paths:
        try:
            model = Model(path)
            name = model.name if model.name not in loaded else "/".join(Path(path).parts[-3:-1])  # of a run's artifact
            loaded[name] = runtimes.load(model)
        except Exception as error:  # of any runtime
            print(f"{path}: {first_line(error)}", flush=True)
    return loaded


def time_in_turns(models: dict[str, Any], size: int, examples: str | None) -> dict[str, list[float]]:
    """Return the seconds of a call of each model in each round; a model that cannot be called is left out."""
    times: dict[str, list[float]] = {}
    batches = {}
    for name, model in models.items():
        try:
            inputs, _ = draw_inputs(Examples(examples) if examples else None, model.inputs, records=size)
            batches[name] = next(split_batches(inputs, model.inputs, size))
            for _ in range(WARM_UP):
                model.run(batches[name])
            times[name] = []
        except Exception as error:  # of any runtime
            print(f"batch {size} {name}: {first_line(error)}", flush=True)
    for turn in range(ROUNDS):
        for name in sorted(times, reverse=bool(turn % 2)):
            start, count = time.perf_counter(), 0
            while time.perf_counter() - start < TURN_S:
                models[name].run_without_limit(batches[name])
                count += 1
            times[name].append((time.perf_counter() - start) / count)
    return times


if __name__ == "__main__":
    main()
