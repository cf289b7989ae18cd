"""Compare the speed of the candidate that tfopt selects with the default of each peer, on six models.

    python benchmarks/peers.py                                  # a quiet machine of two cores; two hours
    python benchmarks/peers.py --models MobileNetV2 --side 96 --threads 1 --seconds 2      # a short run, in minutes
    python benchmarks/peers.py --models LSTM "two inputs"          # the two small models, 15 minutes

The peers are tf.lite's converter, tf2onnx with ONNX Runtime, OpenVINO's converter, and NNCF on OpenVINO's result, each
called as at the start of its documentation. tfopt makes the candidates of `pipelines/optimize.py` and selects one in a
measurement of its own. Then the selected candidate, the peers' files and the plain SavedModel are measured again, in
turns, so that a lucky measurement cannot select itself. All run in tfopt's runtimes, with the given number of threads.

The weights are random, and integer precisions are calibrated on random data: the comparison is about speed only. A peer
that cannot convert a model, or whose file does not load, leaves its user with the SavedModel, and counts as that.
Goals: in no row is tfopt's selection significantly slower than the fastest peer, and in the geometric mean of all rows
it is at least 1.4 times as fast as the best single peer.
"""

import argparse
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from candidates import MODELS, convert_with_peers, make_tfopt_candidates, write_examples, write_model
from stored_results import load_results, save_results

from tfopt.artifacts import Benchmark
from tfopt.cli.terminal.log_redirect import capture_library_logs
from tfopt.measurement.speedup import FEWEST_ROUNDS

PLAIN, GOAL, EFFECT = "SavedModel", 1.4, 0.03
Measurements = dict[str, dict[str, Any]]  # by candidate: its row of benchmark.json, with the medians of its rounds


def main() -> None:
    """Measure every model, print a table for each row, and the goals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=MODELS, choices=MODELS)
    parser.add_argument("--batches", nargs="*", default=["1", "32"])
    parser.add_argument("--threads", nargs="*", type=int, default=[1, 2])
    parser.add_argument("--side", type=int, help="height and width of the images, instead of 224")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each candidate, over all batch sizes")
    parser.add_argument("--rounds", type=int, default=8, help="number of processes for each candidate in that time")
    parser.add_argument("--json", type=Path, help="write the results there after each model, and resume from it")
    options = parser.parse_args()
    if options.rounds < FEWEST_ROUNDS:
        parser.error(f"--rounds {options.rounds}: an interval needs at least {FEWEST_ROUNDS}")
    settings = {name: getattr(options, name) for name in ("batches", "threads", "side", "seconds", "rounds")}
    result = load_results(options.json, settings, "rows")
    rows: list[dict[str, Any]] = result["rows"]
    for row in rows:
        print_row(row)
    for name in options.models:
        if name not in {row["model"] for row in rows}:
            with tempfile.TemporaryDirectory(prefix="tfopt-bench-") as folder:
                rows += compare_model(name, Path(folder), options)
            save_results(options.json, result)
    print_goals(rows)


def compare_model(name: str, folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Make and measure all candidates of a model; return a row for each number of threads and batch size."""
    with capture_library_logs():
        write_model(name, folder / "plain", options.side)
        write_examples(folder / "plain", folder / "examples")
        peers, candidates = convert_with_peers(folder), make_tfopt_candidates(folder)
    rows = []
    for threads in options.threads:
        trial = measure(folder, candidates, threads, options.batches, options.seconds / 2, options.rounds)
        chosen = {size: fastest(trial, size) for size in options.batches}
        selected = {f"tfopt: {name}": candidates[name] for name in dict.fromkeys(chosen.values()) if name != PLAIN}
        measurements = measure(folder, peers | selected, threads, options.batches, options.seconds, options.rounds)
        for size in options.batches:
            choice = PLAIN if chosen[size] == PLAIN else f"tfopt: {chosen[size]}"
            row = {"model": name, "threads": threads, "batch": size}
            rows.append(row | compare_candidates(measurements, list(peers), choice, size))
            print_row(rows[-1])
    return rows


def measure(
    folder: Path, candidates: dict[str, Path], threads: int, sizes: list[str], seconds: float, rounds: int
) -> Measurements:
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


def fastest(measurements: Measurements, size: str) -> str:
    """Return the candidate with the lowest median latency, of those that ran."""
    latencies = {name: row["latency"][size]["p50"] for name, row in measurements.items() if size in row["latency"]}
    return min(latencies, key=latencies.__getitem__)


def compare_candidates(measurements: Measurements, peers: list[str], choice: str, size: str) -> dict[str, Any]:
    """Compare each candidate with the SavedModel, and the selected one with the fastest peer."""
    from tfopt.components.benchmark.model_process import RUNTIME_DIFFERENCE
    from tfopt.measurement.speedup import speedup

    shown = [PLAIN, *peers, *([choice] if choice != PLAIN else [])]
    best = fastest({name: measurements[name] for name in [*peers, PLAIN]}, size)
    pair = measurements[best]["rounds"][size], measurements[choice]["rounds"][size]
    same_runtime = all(measurements[best][key] == measurements[choice][key] for key in ("format", "environment"))
    difference = 0.0 if same_runtime else RUNTIME_DIFFERENCE
    latency = {name: measurements[name]["latency"].get(size, {}) for name in shown}
    return {
        "milliseconds": {name: latency[name].get("p50") for name in shown},
        "speedup": {name: measurements[name]["speedup"].get(size) for name in shown},
        "errors": {name: measurements[name]["error"] for name in shown if measurements[name]["error"]},
        "unstable": [name for name in shown if not latency[name].get("stable", True)],
        "choice": choice,
        "best peer": best,
        "against it": asdict(speedup(*pair, min_effect=EFFECT, systematic_error=difference)),
    }


def print_row(row: dict[str, Any]) -> None:
    """Print the measurements of a model with a number of threads at a batch size."""
    print(f"{row['model']}, {row['threads']} threads, batch {row['batch']}")
    for name, milliseconds in row["milliseconds"].items():
        ratio = row["speedup"][name]
        text = f"{ratio['value']:6.2f}x ({ratio['low']:.2f} to {ratio['high']:.2f}) {ratio['verdict']}" if ratio else ""
        text += "  not stable" if name in row["unstable"] else ""
        call = f"{milliseconds:#9.3g} ms" if milliseconds else f"  {row['errors'].get(name, 'not measured')[:80]}"
        print(f"  {name:<28}{call}  {text}")
    print(f"  {row['choice']} against {row['best peer']}: {format_speedup(row['against it'])}", flush=True)


def print_goals(rows: list[dict[str, Any]]) -> None:
    """Print the geometric means over all rows, and whether the goals are met."""
    names = dict.fromkeys(name for row in rows for name in row["milliseconds"] if not name.startswith("tfopt"))
    means = {name: geometric_mean([_speedup(row, name) for row in rows]) for name in names}
    ours = geometric_mean([_speedup(row, row["choice"]) for row in rows])
    print(f"geometric mean over {len(rows)} rows, against the SavedModel")
    for name, mean in {**means, "tfopt": ours}.items():
        print(f"  {name:<28}{mean:6.2f}x")
    best = max((name for name in means), key=means.__getitem__)
    slower = [row for row in rows if row["against it"]["verdict"] == "slower"]
    where = ", ".join(f"{row['model']} {row['threads']} threads batch {row['batch']}" for row in slower)
    print(f"goal never slower than the fastest peer of the row: {'missed on ' + where if slower else 'met'}")
    each = geometric_mean([row["against it"]["value"] for row in rows])
    print(f"  in the geometric mean {each:.2f}x as fast as the fastest peer of each row")
    ratio = ours / means[best]
    print(f"goal {GOAL}x the best single peer, {best}: {'met' if ratio >= GOAL else 'missed'} ({ratio:.2f}x)")


def geometric_mean(values: list[float]) -> float:
    """Return the geometric mean."""
    return float(np.exp(np.mean(np.log(values))))


def format_speedup(ratio: dict[str, Any]) -> str:
    """Format a speedup with its interval and verdict."""
    return f"{ratio['value']:.2f}x ({ratio['low']:.2f} to {ratio['high']:.2f}), {ratio['verdict']}"


def _speedup(row: dict[str, Any], name: str) -> float:
    ratio = row["speedup"].get(name)
    return float(ratio["value"]) if ratio else 1.0  # 1 for the SavedModel, and for a peer that has no result


if __name__ == "__main__":
    main()
