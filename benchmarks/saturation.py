"""How many examples in a call, and how many clients at once, until a model gives no more; and whether a rerun agrees.

    python benchmarks/saturation.py [--model FILE] [--seconds 6] [--largest 256] [--clients 16] [--json FILE]

Each sweep is run twice. Batch sizes 1, 2, 4, … take turns in one `benchmark` of the model; 1, 2, 4, … clients ask at
once in `validate_serving`. A sweep is saturated at the first size from which no larger one gives 5 % more examples a
second. Without a model it is the stack of layers of `verdicts.py`, in LiteRT.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

GAIN = 0.05  # less is not worth a longer queue
Rates = dict[int, float]


def main() -> None:
    """Sweep twice over each, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="any model that tfopt takes")
    parser.add_argument(
        "--seconds", type=float, default=6.0, help="of a whole batch sweep, and of each count of clients"
    )
    parser.add_argument("--largest", type=int, default=256, help="batch size")
    parser.add_argument("--clients", type=int, default=16, help="at most")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tfopt-bench-") as folder:
        model = given.model or default_model(Path(folder))
        sweeps: dict[str, tuple[Callable[[Path, list[int], float], Rates], int]] = {
            "batch size": (by_batch_size, given.largest),
            "clients": (by_clients, given.clients),
        }
        result = {}
        for name, (sweep, most) in sweeps.items():
            runs = [sweep(model, doublings(most), given.seconds) for _ in range(2)]
            print_sweep(name, runs)
            result[name] = {"runs": runs, "saturated at": [saturation(run) for run in runs]}
    if given.json:
        given.json.write_text(json.dumps(result, indent=1) + "\n")


def doublings(most: int) -> list[int]:
    """Powers of two up to a number.

    >>> doublings(10)
    [1, 2, 4, 8]
    """
    return [1 << power for power in range(most.bit_length())]


def by_batch_size(model: Path, sizes: Sequence[int], seconds: float) -> Rates:
    """Examples a second with so many in a call; a model of a fixed batch size has that one only."""
    from tfopt.artifacts import Benchmark
    from tfopt.components.benchmark import component

    with tempfile.TemporaryDirectory(prefix="tfopt-bench-") as target:
        component.benchmark(
            model, [model], f"{target}/benchmark", batch_sizes=[str(size) for size in sizes], seconds=seconds
        )
        row = Benchmark(f"{target}/benchmark").read()["models"][0]  # the other is there as `benchmark` compares
    return {int(size): rate for size, rate in row["throughput"].items()}


def by_clients(model: Path, counts: Sequence[int], seconds: float) -> Rates:
    """Requests of one example answered a second when so many clients ask at once."""
    from tfopt.artifacts import InfraBlessing
    from tfopt.components.validate_serving.component import validate_serving

    found: Rates = {}
    for count in counts:
        with tempfile.TemporaryDirectory(prefix="tfopt-bench-") as target:
            validate_serving(model, f"{target}/infra", concurrency=count, seconds=seconds)
            said = InfraBlessing(f"{target}/infra").read()
        if not said["blessed"]:
            raise SystemExit(f"{count} clients: {said['reason']}")
        found[count] = said["models"][0]["latency"]["requests_per_second"]
    return found


def saturation(rates: Rates) -> int | None:
    """The least size from which no larger one gives `GAIN` more; None when the last still did.

    >>> saturation({1: 100.0, 2: 190.0, 4: 300.0, 8: 301.0}), saturation({1: 100.0, 2: 190.0})
    (4, None)
    >>> saturation({1: 100.0, 2: 99.0, 4: 101.0})
    1
    """
    best = max(rates.values())
    least = next(size for size, rate in rates.items() if rate * (1 + GAIN) >= best)
    return None if len(rates) > 1 and least == max(rates) else least


def print_sweep(name: str, runs: Sequence[Rates]) -> None:
    """A line for each size, and what the two runs say together."""
    first, second = runs
    print(f"\n{name:>10}  a second   again    ratio")
    for size, rate in first.items():
        print(f"{size:10}  {rate:8.4g}  {second[size]:8.4g}  {second[size] / rate:.3f}")
    apart = max(abs(second[size] / rate - 1) for size, rate in first.items())
    said = [f"not up to {max(run)}" if (at := saturation(run)) is None else f"at {at}" for run in runs]
    print(f"saturated {said[0]}, again {said[1]}; the runs differ by at most {apart:.1%}")


def default_model(folder: Path) -> Path:
    """The stack of `verdicts.py`."""
    from verdicts import write_models

    return write_models(folder, "tflite")[0]


if __name__ == "__main__":
    main()
