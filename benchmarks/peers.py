"""Compare the model that tfopt selects with eight peers at their documented settings: speed, size, loss at equal bits.

    pip install --no-deps --target PACKAGES onnx-ir sympy mpmath       # for ONNX Runtime's 4 bits
    PYTHONPATH=PACKAGES python benchmarks/peers.py --folder F --json F/peers.json    # ten models, quiet machine; hours
    python benchmarks/peers.py --models "two inputs" --threads 1 --seconds 2    # a short run, in minutes
    python benchmarks/peers.py --models LSTM --folder F --only-make    # the files alone, to measure them later

The models are in peer_models.py, the peers and their settings in candidates.py: TensorFlow with oneDNN and XLA,
tf.lite, ai-edge-quantizer, tf2onnx, ONNX Runtime's quantizer, OpenVINO, NNCF and TFMOT. tfopt makes the candidates of
`pipelines/optimize.py` and those with fewer channels of `pipelines/shrink.py`; of the peers TFMOT trains, too, and none
removes channels. All calibrate on the same records, and run in tfopt's runtimes with equal
numbers of threads.

A file has equal quality if the pessimistic bound of its accuracy on the split ``test`` (all files of a model together)
is at most 1 % below the float model's. In a first measurement tfopt and each peer select their fastest file of equal
quality; these are measured again in turns, so that a lucky measurement selects nothing. A peer without such a file
leaves its user with the SavedModel, and counts as that.

Goals: no row in which tfopt's selection is significantly slower than the fastest peer; 2.2 times the geometric mean of
the best single peer; the smallest int8 file within 3 % of the peers' smallest one; a mix of 4 and 8 bits 1.5 times
smaller, at a loss of under one point, on the four largest models; at equal bits no larger loss than a peer's. A peer
whose file in 4 bits is over 20 % larger than tfopt's has fewer layers in 4 bits, and is not compared there.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from candidates import MIX, NARROW, PEERS, convert_with_peers, make_candidates
from peer_models import NETWORKS, write_model
from stored_results import load_results, save_results

from tfopt.artifacts import Benchmark, Evaluation, Model
from tfopt.cli.terminal.log_redirect import capture_library_logs
from tfopt.measurement.speedup import FEWEST_ROUNDS
from tfopt.processes.preloaded_processes import preloading

PLAIN, GOAL, EFFECT, SIZE_GOAL, MIX_GOAL, LARGEST = "SavedModel", 2.2, 0.03, 1.03, 1.5, 4
LARGER = 1.2  # than a file of tfopt: the bits are not equal
QUALITY = "quality max_degradation 1%"
BITS = {  # a file of tfopt, and those of peers with as many bits in the same runtime, in 4 bits in any
    "tflite int8": ("ai-edge-quantizer: int8", "tf.lite: int8"),
    "onnx int8": ("onnxruntime: int8",),
    "openvino int8": ("nncf: int8",),
    "tflite int16x8": ("ai-edge-quantizer: int16x8", "tf.lite: int16x8"),
    "tflite int4": ("ai-edge-quantizer: int4", "nncf: int4", "onnxruntime: int4"),
}
Row = dict[str, Any]
Measurements = dict[str, Row]  # by file: its row of benchmark.json, with the medians of its rounds


def main() -> None:
    """Measure every model that has no result yet, and print the tables and the goals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=NETWORKS, choices=NETWORKS)
    parser.add_argument("--batches", nargs="*", default=["1", "32"])
    parser.add_argument("--threads", nargs="*", type=int, default=[2])
    parser.add_argument("--seconds", type=float, default=4.0, help="for each file, over all batch sizes")
    parser.add_argument("--rounds", type=int, default=8, help="number of processes for each file in that time")
    parser.add_argument("--folder", type=Path, help="store the files of each model there, and reuse them")
    parser.add_argument("--only-make", action="store_true", help="make and evaluate the files, and measure nothing")
    parser.add_argument("--json", type=Path, help="write the results there after each model, and resume from it")
    options = parser.parse_args()
    if options.rounds < FEWEST_ROUNDS:
        parser.error(f"--rounds {options.rounds}: an interval needs at least {FEWEST_ROUNDS}")
    settings = {name: getattr(options, name) for name in ("batches", "threads", "seconds", "rounds")}
    result = load_results(options.json, settings, "models")
    for name in options.models:
        if name not in {model["model"] for model in result["models"]}:
            place: Any = nullcontext(options.folder / name) if options.folder else tempfile.TemporaryDirectory()
            with place as folder:
                Path(folder).mkdir(parents=True, exist_ok=True)
                model = compare_model(name, Path(folder), options)
            if not options.only_make:
                result["models"].append(model)
                save_results(options.json, result)
    print("\n".join(describe(result["models"])))


def compare_model(name: str, folder: Path, options: argparse.Namespace) -> Row:
    """Make, evaluate and measure all files of a model; return its files, errors, and a row for each setting."""
    content = make_files(name, folder)
    files: dict[str, Row] = content["files"]
    model = {"model": name, **content, "rows": []}
    equal = [file for file, facts in files.items() if not facts["missed"]]
    for threads in () if options.only_make else options.threads:
        settings = folder, files, threads, options.batches
        trial = measure(*settings, equal, options.seconds / 2, options.rounds)
        chosen = {size: choose_files(trial, size) for size in options.batches}
        again = {file for choice in chosen.values() for file in choice.values()} - {PLAIN}
        measurements = measure(*settings, sorted(again), options.seconds, options.rounds)
        for size, choice in chosen.items():
            row = {"threads": threads, "batch": size, "chosen": choice}
            model["rows"].append(row | compare_choices(measurements, choice, size))
            print(f"{name}, {threads} threads, batch {size}: {format_row(model['rows'][-1])}", flush=True)
    return model


def make_files(name: str, folder: Path) -> Row:
    """Make and evaluate the files of a model, or read what an earlier run stored about them."""
    stored, made = folder / "files.json", folder / "made.json"
    if not stored.exists():
        with capture_library_logs(), preloading(is_run=True, will_fork=True):
            if not made.exists():
                write_model(name, folder)
                peers, errors = convert_with_peers(name, folder)
                candidates, refusals = make_candidates(name, folder)
                paths = {file: str(path) for file, path in (peers | candidates).items()}
                save_results(made, {"files": paths, "errors": errors | refusals})
            content = json.loads(made.read_text())
            files = {file: Path(path) for file, path in content["files"].items()}
            content |= evaluate_files(folder, files)
        save_results(stored, content)
    result: Row = json.loads(stored.read_text())
    return result


def evaluate_files(folder: Path, files: dict[str, Path]) -> Row:
    """Return the path, bytes, quality and loss of each file, and why its quality is not equal."""
    from tfopt.measurement.goals import read_goals, resolve_goals
    from tfopt.measurement.model_measurements import ModelMeasurements, main_metric

    report = evaluate(folder, folder / "plain", list(files.values()))
    measured = [ModelMeasurements(row.name, row.digest, row.format, row, None, None) for row in report.models[:1]]
    for row in report.models[1:]:
        measured.append(ModelMeasurements(row.name, row.digest, row.format, row, None, measured[0]))
    quality = main_metric(report)
    (goal,) = resolve_goals(read_goals([QUALITY]), quality, measured[0].metrics)
    counts = {"examples": report.counts.evaluated, "candidates": report.interval.candidates}
    facts: dict[str, Row] = {}
    for name, path, model in zip((PLAIN, *files), (folder / "plain", *files.values()), measured, strict=True):
        failure = None if name == PLAIN else model.error or goal.failure(model, proven=True, **counts)
        values = {"quality": model.value(quality), "loss": model.value("log_loss")} if not model.error else {}
        facts[name] = {"path": str(path), "bytes": Model(path).sizes()["raw"], "missed": failure, **values}
    return {"quality": quality, "files": facts, "bits": list(compare_bits(folder, facts))}


def evaluate(folder: Path, baseline: Path, files: Sequence[Path]) -> Any:
    """Return the evaluation of files on the split ``test``."""
    from tfopt.components.evaluate.component import evaluate as measure_quality

    with tempfile.TemporaryDirectory(dir=folder) as target:
        measure_quality(baseline, list(files), examples=folder / "examples", evaluation=f"{target}/evaluation")
        return Evaluation(f"{target}/evaluation").load()


def compare_bits(folder: Path, facts: dict[str, Row]) -> Iterator[Row]:
    """Yield for each file of BITS its loss and each peer's, with the interval of the difference where it is larger."""
    for name, peers in BITS.items():
        own = facts.get(name, {})
        for peer in (peer for peer in peers if "loss" in facts.get(peer, {})):
            other = facts[peer]
            row = {"file": name, "peer": peer, "loss": own.get("loss"), "loss of peer": other["loss"]}
            row["larger file"] = other["bytes"] / own["bytes"] if own else 1.0
            if own and row["larger file"] <= LARGER and own["loss"] > other["loss"]:
                difference = evaluate(folder, Path(other["path"]), [Path(own["path"])]).models[1].delta["log_loss"]
                row |= {"low": difference.low, "high": difference.high}
            yield row


def measure(
    folder: Path, files: dict[str, Row], threads: int, sizes: list[str], names: list[str], seconds: float, rounds: int
) -> Measurements:
    """Benchmark files with the plain SavedModel."""
    import pyarrow.parquet as pq

    from tfopt.components.benchmark.component import benchmark

    names = [name for name in names if name != PLAIN]
    with tempfile.TemporaryDirectory(dir=folder) as target, capture_library_logs():
        benchmark(
            *(folder / "plain", [Path(files[name]["path"]) for name in names], f"{target}/benchmark"),
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
    return dict(zip([PLAIN, *names], rows, strict=True))


def choose_files(measurements: Measurements, size: str) -> dict[str, str]:
    """Return the fastest file of tfopt and of each peer, the SavedModel included."""
    latencies = {name: row["latency"][size]["p50"] for name, row in measurements.items() if size in row["latency"]}

    def fastest(own: bool, prefix: str) -> str:
        names = [name for name in latencies if (":" not in name if own else name.startswith(f"{prefix}:"))]
        return min([PLAIN, *names], key=latencies.__getitem__)

    return {**{peer: fastest(False, peer) for peer in PEERS}, "tfopt": fastest(True, "")}


def compare_choices(measurements: Measurements, chosen: dict[str, str], size: str) -> Row:
    """Compare each choice with the SavedModel, and that of tfopt with the fastest peer's."""
    from tfopt.components.benchmark.model_process import RUNTIME_DIFFERENCE
    from tfopt.measurement.speedup import speedup

    latency = {who: measurements[file]["latency"].get(size, {}) for who, file in chosen.items()}
    peers = [who for who in PEERS if latency[who]]
    best = min(peers, key=lambda who: latency[who]["p50"])
    rows = measurements[chosen[best]], measurements[chosen["tfopt"]]
    same_runtime = all(rows[0][key] == rows[1][key] for key in ("format", "environment"))
    pair = [row["rounds"][size] for row in rows]
    against = speedup(*pair, min_effect=EFFECT, systematic_error=0.0 if same_runtime else RUNTIME_DIFFERENCE)
    speedups = {who: measurements[file]["speedup"].get(size) for who, file in chosen.items()}
    return {
        "milliseconds": {who: row.get("p50") for who, row in latency.items()},
        "speedup": {who: ratio["value"] if ratio else 1.0 for who, ratio in speedups.items()},
        "unstable": [who for who, row in latency.items() if not row.get("stable", True)],
        "best peer": best,
        "against it": asdict(against),
    }


def format_row(row: Row) -> str:
    """Return the choice of tfopt and its speed relative to the fastest peer."""
    ratio, best = row["against it"], row["best peer"]
    speed = f"{ratio['value']:.2f}x ({ratio['low']:.2f} to {ratio['high']:.2f}), {ratio['verdict']}"
    return f"{row['chosen']['tfopt']} against {row['chosen'][best]} of {best}: {speed}"


def describe(models: list[Row]) -> Iterator[str]:
    """Yield the lines of all tables and goals."""
    rows = [(model["model"], row) for model in models for row in model["rows"]]
    if rows:
        yield from describe_speed(rows)
    yield from describe_sizes(models)
    yield from describe_bits(models)
    for model in models:
        yield f"{model['model']}, without a file of equal quality:"
        failures = {name: facts["missed"] for name, facts in model["files"].items() if facts["missed"]}
        yield from (f"- {name}: {reason}" for name, reason in (model["errors"] | failures).items())


def describe_speed(rows: list[tuple[str, Row]]) -> Iterator[str]:
    """Yield the table of speeds relative to the SavedModel, its geometric means, and the two goals."""
    names = [*PEERS, "tfopt"]
    yield "| model | threads | batch | " + " | ".join(names) + " | against the fastest peer |"
    yield "|---" * (len(names) + 4) + "|"
    for model, row in rows:
        cells = [f"{row['speedup'][who]:#.3g}x" for who in names]
        for number, who in enumerate(names):
            file = row["chosen"][who].removeprefix(f"{who}: ")
            cells[number] = "-" if file == PLAIN else f"{cells[number]}, {file}"
        ratio = row["against it"]
        cells.append(f"{ratio['value']:.2f}x ({ratio['low']:.2f} to {ratio['high']:.2f})")
        yield f"| {model} | {row['threads']} | {row['batch']} | " + " | ".join(cells) + " |"
    means = {who: geometric_mean([row["speedup"][who] for _, row in rows]) for who in names}
    yield "| geometric mean | | | " + " | ".join(f"{mean:.2f}x" for mean in means.values()) + " | |"
    slower = [f"{model} batch {row['batch']}" for model, row in rows if row["against it"]["verdict"] == "slower"]
    yield f"goal never slower than the fastest peer: {'missed on ' + ', '.join(slower) if slower else 'met'}"
    best = max(PEERS, key=means.__getitem__)
    ratio = means["tfopt"] / means[best]
    yield f"goal {GOAL}x the best single peer, {best}: {'met' if ratio >= GOAL else 'missed'} ({ratio:.2f}x)"
    unstable = sum(bool(row["unstable"]) for _, row in rows)
    yield f"{unstable} of {len(rows)} rows have a file that was marked unstable"


def describe_sizes(models: list[Row]) -> Iterator[str]:
    """Yield the table of the smallest 8-bit files of equal quality and of the mixes, with the goals."""
    head = "| model | SavedModel | tfopt, 8 bits | peer, 8 bits | ratio | fewer channels, 8 bits | mix |"
    yield head + " smaller than 8 bits | loss, points |"
    yield "|---|---|---|---|---|---|---|---|---|"
    largest = sorted(models, key=lambda model: -model["files"][PLAIN]["bytes"])[:LARGEST]
    for model in models:
        files: dict[str, Row] = model["files"]
        ours, theirs = smallest_in_8_bits(files, of_peers=False), smallest_in_8_bits(files, of_peers=True)
        cells = [f"{files[PLAIN]['bytes'] / 1e3:.1f} kB", *(f"{size / 1e3:.1f} kB" for size in (ours, theirs))]
        cells.append(f"{ours / theirs:.2f}{'' if ours <= SIZE_GOAL * theirs else ', missed'}")
        narrow = smallest(files, filter(is_narrow, files))
        cells.append(f"{narrow / 1e3:.1f} kB" if narrow < np.inf else "-")
        mix = files.get(MIX, {})
        if "quality" in mix:
            loss, smaller = 100 * (files[PLAIN]["quality"] - mix["quality"]), ours / mix["bytes"]
            is_missed = model in largest and (smaller < MIX_GOAL or loss >= 1)
            cells += [f"{mix['bytes'] / 1e3:.1f} kB", f"{smaller:.2f}x{', missed' * is_missed}", f"{loss:+.2f}"]
        else:
            cells += ["-", "-", "-"]
        yield f"| {model['model']} | " + " | ".join(cells) + " |"


def smallest_in_8_bits(files: dict[str, Row], *, of_peers: bool) -> float:
    """Return the bytes of the smallest file of equal quality with weights in 8 bits; infinity without one."""
    return smallest(files, [name for name in files if (":" in name) == of_peers and not is_narrow(name)])


def smallest(files: dict[str, Row], names: Iterable[str]) -> float:
    """Return the bytes of the smallest of some files that has equal quality and weights in 8 bits."""
    names = [name for name in names if any(kind in name for kind in ("int8", "dynamic", "quantized"))]
    return min((float(files[name]["bytes"]) for name in names if not files[name]["missed"]), default=np.inf)


def is_narrow(name: str) -> bool:
    """Return True for a file of a network with channels removed."""
    return name.startswith(tuple(NARROW))


def describe_bits(models: list[Row]) -> Iterator[str]:
    """Yield the table of losses at equal bits, and the rows with a loss above a peer's."""
    yield "| model | loss in float32 | file | peer | its loss | loss of the peer | larger |"
    yield "|---|---|---|---|---|---|---|"
    for model in models:
        for row in model["bits"]:
            verdict = "no"
            if row["loss"] is None:
                verdict = "not made"
            elif row["larger file"] > LARGER:
                verdict = f"not compared: the peer's file is {row['larger file']:.1f}x as large"
            elif "low" in row:
                beyond = "beyond noise" if row["low"] > 0 else "within noise"
                more = row["loss"] - row["loss of peer"]
                verdict = f"by {more:.4f} ({row['low']:.4f} to {row['high']:.4f}), {beyond}"
            losses = ["-" if loss is None else f"{loss:.4f}" for loss in (row["loss"], row["loss of peer"])]
            cells = [model["model"], f"{model['files'][PLAIN]['loss']:.4f}", row["file"], row["peer"], *losses, verdict]
            yield "| " + " | ".join(cells) + " |"


def geometric_mean(values: list[float]) -> float:
    """Return the geometric mean."""
    return float(np.exp(np.mean(np.log(values))))


if __name__ == "__main__":
    main()
