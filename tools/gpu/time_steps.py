"""Time the training steps of a module in each precision, with and without XLA, as ``train --precision auto`` does.

python tools/gpu/time_steps.py EXAMPLES MODULE --batch-size 64 [--deterministic]
"""

import argparse
import statistics

from tfopt.components.train.auto_settings import time_choices
from tfopt.components.train.parameters import Settings


def main() -> None:
    """Print the median, the smallest and the largest time of a step for each choice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("examples")
    parser.add_argument("module")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--deterministic", action="store_true")
    options = parser.parse_args()
    settings = Settings(
        batch_size=options.batch_size, deterministic=options.deterministic, precision="auto", jit_compile="auto"
    )
    times, failures = time_choices(options.examples, options.module, settings)
    for (precision, jit), seconds in times.items():
        median = statistics.median(seconds)
        spread = f"{1e3 * min(seconds):.2f} to {1e3 * max(seconds):.2f}"
        print(
            f"{precision} jit_compile={jit}: {1e3 * median:.2f} ms ({spread}), {options.batch_size / median:.0f} per s"
        )
    for (precision, jit), reason in failures.items():
        print(f"{precision} jit_compile={jit} is not possible: {reason}")


if __name__ == "__main__":
    main()
