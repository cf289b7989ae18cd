"""What tfopt chooses against what each peer gives by default: how fast, on four models, in one run.

    python benchmarks/peers.py                                  # a quiet machine of two cores; an hour and a half
    python benchmarks/peers.py --models MobileNetV2 --side 96 --threads 1 --seconds 2      # a look, in minutes

The peers are tf.lite's converter, tf2onnx with ONNX Runtime, OpenVINO's converter, and NNCF on what that gives, each
called as its documentation begins. tfopt makes the menu of `pipelines/optimize.py` and chooses by a measurement of its
own; then what it chose, the peers' files and the plain SavedModel are measured again, in turns, so that no lucky
measurement chooses itself. All run in tfopt's runtimes, with as many threads as they are given.

The weights are random, and integer kinds are calibrated on random data: this is about speed only. A peer that cannot
convert a model, or whose file does not load, leaves its user with the SavedModel, and counts as that. Goals: on no row
is tfopt's choice slower than the fastest peer beyond noise, and in the geometric mean of all rows it is at least 1.1
times as fast as the best single peer.
"""

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from contenders import MODELS, menu, peers, write_examples, write_model
from kept import begun, keep

from tfopt.artifacts import Benchmark
from tfopt.cli.log_redirect import libraries_said_aside

PLAIN, GOAL, EFFECT = "SavedModel", 1.1, 0.03
Measured = dict[str, dict[str, Any]]  # of each contender, its row of benchmark.json, with the medians of its rounds


def main() -> None:
    """Measure every model, print a table for each row, and the goals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=MODELS, choices=MODELS)
    parser.add_argument("--batches", nargs="*", default=["1", "32"])
    parser.add_argument("--threads", nargs="*", type=int, default=[1, 2])
    parser.add_argument("--side", type=int, help="height and width of the images, in place of 224")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each contender, over all batch sizes")
    parser.add_argument("--rounds", type=int, default=8, help="how many processes each contender has for that")
    parser.add_argument("--json", type=Path, help="write the figures there, model by model, and go on from it")
    given = parser.parse_args()
    settings = {name: getattr(given, name) for name in ("batches", "threads", "side", "seconds", "rounds")}
    result = begun(given.json, settings, "rows")
    rows: list[dict[str, Any]] = result["rows"]
    for row in rows:
        print_row(row)
    for name in given.models:
        if name not in {row["model"] for row in rows}:
            with tempfile.TemporaryDirectory(prefix="tfopt-bench-") as folder:
                rows += one_model(name, Path(folder), given)
            keep(given.json, result)
    judge(rows)


def one_model(name: str, folder: Path, given: argparse.Namespace) -> list[dict[str, Any]]:
    """Make all contenders of a model; a row for each number of threads and batch size."""
    with libraries_said_aside():
        write_model(name, folder / "plain", given.side)
        write_examples(folder / "plain", folder / "examples")
        theirs, ours = peers(folder), menu(folder)
    found = []
    for threads in given.threads:
        tried = measure(folder, ours, threads, given.batches, given.seconds / 2, given.rounds)
        chosen = {size: fastest(tried, size) for size in given.batches}
        again = {f"tfopt: {name}": ours[name] for name in dict.fromkeys(chosen.values()) if name != PLAIN}
        measured = measure(folder, theirs | again, threads, given.batches, given.seconds, given.rounds)
        for size in given.batches:
            choice = PLAIN if chosen[size] == PLAIN else f"tfopt: {chosen[size]}"
            where = {"model": name, "threads": threads, "batch": size}
            found.append(where | compared(measured, list(theirs), choice, size))
            print_row(found[-1])
    return found


def measure(
    folder: Path, candidates: dict[str, Path], threads: int, sizes: list[str], seconds: float, rounds: int
) -> Measured:
    """Benchmark candidates with the plain SavedModel."""
    import pyarrow.parquet as pq

    from tfopt.components.benchmark.component import benchmark

    with tempfile.TemporaryDirectory(dir=folder) as target:
        benchmark(
            *(folder / "plain", list(candidates.values()), f"{target}/benchmark"),
            examples=folder / "examples",
            batch_sizes=sizes,
            threads=threads,
            seconds=seconds,
            rounds=rounds,
            min_effect=EFFECT,
        )
        rows = Benchmark(f"{target}/benchmark").read()["models"]
        calls = pq.read_table(f"{target}/benchmark/samples.parquet").to_pandas()
    medians = calls.groupby(["model", "batch_size", "round"], observed=True)["nanoseconds"].median()
    for row in rows:
        row["rounds"] = {size: medians[row["name"], int(size)].to_numpy() for size in row["latency"]}
    return dict(zip([PLAIN, *candidates], rows, strict=True))


def fastest(measured: Measured, size: str) -> str:
    """Which has the shortest calls, of those that ran."""
    ran = {name: row["latency"][size]["p50"] for name, row in measured.items() if size in row["latency"]}
    return min(ran, key=ran.__getitem__)


def compared(measured: Measured, theirs: list[str], choice: str, size: str) -> dict[str, Any]:
    """The figures of a row: each contender against the SavedModel, and the choice against the fastest peer."""
    from tfopt.components.benchmark.model_process import ANOTHER_ORIGIN
    from tfopt.measurement.speedup import speedup

    shown = [PLAIN, *theirs, *([choice] if choice != PLAIN else [])]
    best = fastest({name: measured[name] for name in [*theirs, PLAIN]}, size)
    pair = measured[best]["rounds"][size], measured[choice]["rounds"][size]
    alike = all(measured[best][key] == measured[choice][key] for key in ("format", "environment"))
    return {
        "milliseconds": {name: measured[name]["latency"].get(size, {}).get("p50") for name in shown},
        "speedup": {name: measured[name]["speedup"].get(size) for name in shown},
        "errors": {name: measured[name]["error"] for name in shown if measured[name]["error"]},
        "unstable": [name for name in shown if not measured[name]["latency"].get(size, {}).get("stable", True)],
        "choice": choice,
        "best peer": best,
        "against it": speedup(*pair, min_effect=EFFECT, unsure=0.0 if alike else ANOTHER_ORIGIN).facts(),
    }


def print_row(row: dict[str, Any]) -> None:
    """Print what was measured of a model with a number of threads at a batch size."""
    print(f"{row['model']}, {row['threads']} threads, batch {row['batch']}")
    for name, milliseconds in row["milliseconds"].items():
        ratio = row["speedup"][name]
        said = f"{ratio['value']:6.2f}x ({ratio['low']:.2f} to {ratio['high']:.2f}) {ratio['verdict']}" if ratio else ""
        said += "  not stable" if name in row["unstable"] else ""
        call = f"{milliseconds:#9.3g} ms" if milliseconds else f"  {row['errors'].get(name, 'not measured')[:80]}"
        print(f"  {name:<28}{call}  {said}")
    print(f"  {row['choice']} against {row['best peer']}: {in_words(row['against it'])}", flush=True)


def judge(rows: list[dict[str, Any]]) -> None:
    """Print the geometric means over all rows, and whether the goals are met."""
    names = dict.fromkeys(name for row in rows for name in row["milliseconds"] if not name.startswith("tfopt"))
    means = {name: geometric([_value(row, name) for row in rows]) for name in names}
    ours = geometric([_value(row, row["choice"]) for row in rows])
    print(f"geometric mean over {len(rows)} rows, against the SavedModel")
    for name, mean in {**means, "tfopt": ours}.items():
        print(f"  {name:<28}{mean:6.2f}x")
    best = max((name for name in means), key=means.__getitem__)
    slower = [row for row in rows if row["against it"]["verdict"] == "slower"]
    where = ", ".join(f"{row['model']} {row['threads']} threads batch {row['batch']}" for row in slower)
    print(f"goal never slower than the fastest peer of the row: {'missed on ' + where if slower else 'met'}")
    each = geometric([row["against it"]["value"] for row in rows])
    print(f"  in the geometric mean {each:.2f}x as fast as the fastest peer of each row")
    ratio = ours / means[best]
    print(f"goal {GOAL}x the best single peer, {best}: {'met' if ratio >= GOAL else 'missed'} ({ratio:.2f}x)")


def geometric(values: list[float]) -> float:
    """The geometric mean."""
    return float(np.exp(np.mean(np.log(values))))


def in_words(ratio: dict[str, Any]) -> str:
    """A ratio with its interval and verdict."""
    return f"{ratio['value']:.2f}x ({ratio['low']:.2f} to {ratio['high']:.2f}), {ratio['verdict']}"


def _value(row: dict[str, Any], name: str) -> float:
    """How many times as fast as the SavedModel; that itself where there is nothing else."""
    ratio = row["speedup"].get(name)
    return float(ratio["value"]) if ratio else 1.0


if __name__ == "__main__":
    main()
