"""How many examples in a call, and how many clients at once, until a model gives no more; and whether a rerun agrees.

    python benchmarks/saturation.py [--model FILE] [--seconds 6] [--largest 256] [--clients 16] [--json FILE]

Each sweep is run twice: batch sizes 1, 2, 4, … take turns in `benchmark`, and 1, 2, 4, … clients ask at once in
`validate_serving`; both say from where on the model is saturated. Without a model it is the stack of layers of
`verdicts.py`, in LiteRT.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"


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
        sweeps: dict[str, tuple[Callable[[Path, int, float], dict[str, Any]], int]] = {
            "batch size": (by_batch_size, given.largest),
            "clients": (by_clients, given.clients),
        }
        result = {}
        for name, (sweep, most) in sweeps.items():
            result[name] = [sweep(model, most, given.seconds) for _ in range(2)]
            print_sweep(name, *result[name])
    if given.json:
        given.json.write_text(json.dumps(result, indent=1) + "\n")


def by_batch_size(model: Path, most: int, seconds: float) -> dict[str, Any]:
    """Examples a second with so many in a call; a model of a fixed batch size has that one only."""
    from tfopt.artifacts import Benchmark
    from tfopt.components.benchmark.component import benchmark

    with tempfile.TemporaryDirectory(prefix="tfopt-bench-") as target:
        benchmark(model, [model], f"{target}/benchmark", batch_sizes=[f"1-{most}"], seconds=seconds)
        row = Benchmark(f"{target}/benchmark").read()["models"][0]  # the other is there as `benchmark` compares
    return {"rates": row["throughput"], "saturation": row["saturation"]}


def by_clients(model: Path, most: int, seconds: float) -> dict[str, Any]:
    """Requests of one example answered a second when so many clients ask at once."""
    from tfopt.artifacts import InfraBlessing
    from tfopt.components.validate_serving.component import validate_serving

    with tempfile.TemporaryDirectory(prefix="tfopt-bench-") as target:
        validate_serving(model, f"{target}/infra", sweep=most, seconds=seconds)
        said = InfraBlessing(f"{target}/infra").read()
    if not said["blessed"]:
        raise SystemExit(said["reason"])
    found = said["models"][0]["sweep"]
    rates = {str(row["concurrency"]): row["requests_per_second"] for row in found["clients"]}
    return {"rates": rates, "saturation": found["saturation"]}


def print_sweep(name: str, first: dict[str, Any], second: dict[str, Any]) -> None:
    """A line for each size, and what the two runs say together."""
    print(f"\n{name:>10}  a second   again    ratio")
    ratios = {size: second["rates"][size] / rate for size, rate in first["rates"].items()}
    for size, ratio in ratios.items():
        print(f"{size:>10}  {first['rates'][size]:8.4g}  {second['rates'][size]:8.4g}  {ratio:.3f}")
    said = [run["saturation"]["said"] if run["saturation"] else "one size only" for run in (first, second)]
    apart = max(abs(ratio - 1) for ratio in ratios.values())
    print(f"{said[0]}; again, {said[1]}; the runs differ by at most {apart:.1%}")


def default_model(folder: Path) -> Path:
    """The stack of `verdicts.py`."""
    from verdicts import write_models

    return write_models(folder, "tflite")[0]


if __name__ == "__main__":
    main()
