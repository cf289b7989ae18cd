"""Time SavedModels with the layout of convolutions that TensorFlow chooses for a GPU, and with that of the file.

python tools/gpu/time_layout.py MODEL ... --batch-sizes 1 32
"""

import argparse
import statistics
import time
from typing import Any

import numpy as np
import tensorflow as tf

from tfopt import runtimes
from tfopt.artifacts import Model

ROUNDS, TURN_S, WARM_UP = 12, 0.15, 3


def main() -> None:
    """Print, for each model and batch size, the ratio of the file's layout to the chosen one: above 1, it is faster."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 32])
    options = parser.parse_args()
    for path in options.models:
        model = runtimes.load(Model(path))
        for size in options.batch_sizes:
            inputs = draw_inputs(model, size)
            rounds = [{chosen: seconds(model, inputs, chosen) for chosen in (True, False)} for _ in range(ROUNDS)]
            ratios = [each[True] / each[False] for each in rounds]
            median = 1e3 * statistics.median(each[True] for each in rounds)
            text = f"{statistics.median(ratios):.2f}x ({min(ratios):.2f} to {max(ratios):.2f})"
            print(f"{path} batch {size}: {median:.3f} ms; with the layout of the file {text}")


def draw_inputs(model: Any, size: int) -> dict[str, Any]:
    """Return random inputs."""
    random = np.random.default_rng(0)
    inputs = {}
    for name, spec in model.inputs.items():
        shape = (size, *(side or 1 for side in spec.shape[1:]))
        values = random.normal(size=shape) if "float" in spec.dtype else random.integers(0, 9, shape)
        inputs[name] = values.astype(spec.dtype)
    return inputs


def seconds(model: Any, inputs: dict[str, Any], chosen: bool) -> float:
    """Return the seconds of a call, the mean of a turn, with or without TensorFlow's choice of a layout.

    The option is part of the key by which this thread finds the optimized graph, so both are optimized once.
    """
    tf.config.optimizer.set_experimental_options({"layout_optimizer": chosen})
    for _ in range(WARM_UP):
        model.run_without_limit(inputs)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < TURN_S:
        model.run_without_limit(inputs)
        count += 1
    return (time.perf_counter() - start) / count


if __name__ == "__main__":
    main()
