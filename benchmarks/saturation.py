"""Batch size and number of clients at which the throughput of a model saturates, measured twice.

    python benchmarks/saturation.py [--model FILE] [--seconds 6] [--largest 256] [--clients 16] [--json FILE]

Each sweep runs twice: `benchmark` measures batch sizes 1, 2, 4, …, and `validate_serving` 1, 2, 4, … concurrent
clients. Both report from where on the model is saturated. The default model is the stack of layers of `verdicts.py`, in
LiteRT.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"


def main() -> None:
    """Run both sweeps twice and print their results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="a model of any format")
    parser.add_argument(
        "--seconds", type=float, default=6.0, help="duration of a batch sweep, and of each number of clients"
    )
    parser.add_argument("--largest", type=int, default=256, help="largest batch size")
    parser.add_argument("--clients", type=int, default=16, help="largest number of clients")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tfopt-bench-") as folder:
        model = arguments.model or default_model(Path(folder))
        sweeps: dict[str, tuple[Callable[[Path, int, float], dict[str, Any]], int]] = {
            "batch size": (by_batch_size, arguments.largest),
            "clients": (by_clients, arguments.clients),
        }
        result = {}
        for name, (sweep, most) in sweeps.items():
            result[name] = [sweep(model, most, arguments.seconds) for _ in range(2)]
            print_sweep(name, *result[name])
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


def by_batch_size(model: Path, most: int, seconds: float) -> dict[str, Any]:
    """Return the throughput by batch size; a model with a fixed batch size has only that one."""
    from tfopt.artifacts import Benchmark
    from tfopt.components.benchmark.component import benchmark

    with tempfile.TemporaryDirectory(prefix="tfopt-bench-") as target:
        # The candidate is required; only the baseline's throughput is used.
        artifact = benchmark(model, [model], f"{target}/benchmark", batch_sizes=[f"1-{most}"], seconds=seconds)[
            "benchmark"
        ]
        baseline = Benchmark(artifact.path).load().models[0]
    return {"rates": baseline.throughput, "saturation": baseline.saturation and asdict(baseline.saturation)}


def by_clients(model: Path, most: int, seconds: float) -> dict[str, Any]:
    """Return the requests of one example per second, by the number of concurrent clients."""
    from tfopt.artifacts import InfraBlessing
    from tfopt.components.validate_serving.component import validate_serving

    with tempfile.TemporaryDirectory(prefix="tfopt-bench-") as target:
        validate_serving(model, f"{target}/infra", sweep=most, seconds=seconds)
        report = InfraBlessing(f"{target}/infra").load()
    sweep = report.models[0].sweep
    if not report.blessed or not sweep:
        raise SystemExit(report.reason)
    rates = {str(row.concurrency): row.requests_per_second for row in sweep.clients}
    return {"rates": rates, "saturation": sweep.saturation and asdict(sweep.saturation)}


def print_sweep(name: str, first: dict[str, Any], second: dict[str, Any]) -> None:
    """Print a line for each size, and the saturation of both runs."""
    print(f"\n{name:>10}  a second   again    ratio")
    ratios = {size: second["rates"][size] / rate for size, rate in first["rates"].items()}
    for size, ratio in ratios.items():
        print(f"{size:>10}  {first['rates'][size]:8.4g}  {second['rates'][size]:8.4g}  {ratio:.3f}")
    texts = [run["saturation"]["summary"] if run["saturation"] else "one size only" for run in (first, second)]
    difference = max(abs(ratio - 1) for ratio in ratios.values())
    print(f"{texts[0]}; again, {texts[1]}; the runs differ by at most {difference:.1%}")


def default_model(folder: Path) -> Path:
    """Write the stack of layers of `verdicts.py`."""
    from verdicts import write_models

    return write_models(folder, "tflite")[0]


if __name__ == "__main__":
    main()
