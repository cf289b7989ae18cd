"""Measure graph optimizations: load time, nodes and latency of a SavedModel and its optimized forms, as a table.

`benchmarks/graph.py --latency` calls this. Each setting of oneDNN has its own process, and each contender a process in
it. Programs compiled by XLA are cached in a folder, so that later rounds do not compile again. At the end, the
optimized model with oneDNN is compared with the SavedModel without oneDNN.

A goal with oneDNN on is checked against the SavedModel with and without oneDNN, because earlier published ratios used
either of them.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

CONTENDERS = {"grappler": "Grappler alone", "optimized": "optimize_graph", "xla": "XLA"}
SETTINGS = {"0": "oneDNN off", "1": "oneDNN on"}
BATCHES = ("1", "32")
# Minimal speedup over the SavedModel, by batch size; all others must not be slower.
GOALS = {"MobileNetV2": {"oneDNN off": {"1": 1.3, "32": 1.1}, "oneDNN on": {"1": 1.6, "32": 2.5}}}
GOALS |= {name: {"oneDNN on": {"1": 1.3, "32": 1.15}} for name in ("transformer", "transformer, tanh")}


@dataclass(frozen=True)
class Timing:
    """Settings of a measurement.

    Attributes:
        contenders: Models that are compared with the plain SavedModel.
        batches: Batch sizes.
        seconds: Time of measurement per model and oneDNN setting, for all batch sizes together, without loading.
        rounds: Number of loads of each model.
        threads: Threads and cores of each model.
    """

    contenders: list[str]
    batches: list[str]
    seconds: float
    rounds: int
    threads: int


def compare(name: str, folder: Path, timing: Timing) -> dict[str, Any]:
    """Measure the models ``plain`` and ``optimized`` in a folder and the other contenders, and print tables.

    Args:
        name: The name of the model, which selects its goals.
        folder: The folder; the SavedModels of Grappler and XLA are written there too.
        timing: Settings of the measurement.
    """
    prepare(folder, timing.contenders)
    nodes = {name: count(folder / name) for name in ("plain", *timing.contenders)}
    results: dict[str, Any] = {"nodes": nodes}
    goals = GOALS.get(name, {})
    for value, setting in SETTINGS.items():
        command = [sys.executable, __file__, str(folder), json.dumps(asdict(timing))]
        cache = folder / f"compiled-{value}"
        cache.mkdir()
        flags = f"--tf_xla_persistent_cache_directory={cache}"
        subprocess.run(command, check=True, env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": value, "TF_XLA_FLAGS": flags})
        results[setting] = rows = json.loads((folder / "measured.json").read_text())
        print_table(rows, nodes, timing.batches, setting, goals.get(setting, {}))
    if "optimized" in timing.contenders:
        results["together"] = together(folder, timing, goals.get(SETTINGS["1"], {}))
    return results


def prepare(folder: Path, contenders: list[str]) -> None:
    """Write the contenders of Grappler and XLA, if they are measured."""
    from tfopt.components.compile_xla.saved_model import write_compiled
    from tfopt.graph import grappler
    from tfopt.graph.law_order import NORMALIZING
    from tfopt.graph.law_runner import optimize
    from tfopt.graph.report import Report
    from tfopt.saved_models.saved_model import read, write

    frozen = read(folder / "plain")
    if "grappler" in contenders:
        write(grappler.run(frozen), folder / "grappler")
    if "xla" in contenders:
        write_compiled(optimize(frozen, NORMALIZING, Report()), folder / "xla", [])


def count(folder: Path) -> int:
    """Count the nodes of a SavedModel as it is served, without those that save and restore variables."""
    from tfopt.artifacts import SavedModel
    from tfopt.graph_def import nodes
    from tfopt.saved_models.saved_model import opened

    with opened(SavedModel.open(folder)) as frozen:
        return sum(1 for _ in nodes(frozen.graph))


def print_table(
    rows: list[dict[str, Any]], nodes: dict[str, int], batches: list[str], setting: str, goals: dict[str, float]
) -> None:
    """Print a row for each contender, and the verdicts on the goals."""
    width = 44
    print(
        f"  {setting:<15}{'nodes':>7}{'load':>9}{'first call':>12}",
        *(f"  batch {size:<{width - 6}}" for size in batches),
    )
    for row, name in zip(rows, nodes, strict=True):
        title = CONTENDERS.get(name, "SavedModel")
        if row["error"]:
            print(f"  {title:<15}{nodes[name]:>7}  {row['error'].splitlines()[0][:90]}")
            continue
        times = f"{row['load_seconds']:>7.2f} s{row['first_call_seconds']:>10.2f} s"
        print(f"  {title:<15}{nodes[name]:>7}{times}", *(f"  {call_time(row, size):<{width}}" for size in batches))
        if row["notes"]:
            print(f"      {'; '.join(row['notes'])}")
    for optimized in (row for row in rows if row["name"] == "optimized"):
        verdicts = [f"batch {size}: {goal_verdict(optimized, size, goals.get(size))}" for size in batches]
        print(f"  optimize_graph: {'; '.join(verdicts)}", flush=True)


def together(folder: Path, timing: Timing, goals: dict[str, float]) -> dict[str, Any]:
    """Measure the speedup of laws and oneDNN together, print it, and return the row."""
    from tfopt.components.configure_runtime.component import configure_runtime

    configure_runtime(folder / "plain", folder / "off", onednn="off")
    configure_runtime(folder / "optimized", folder / "on", onednn="on")
    _, row = benchmarked(folder / "off", [folder / "on"], timing)
    print("  optimize_graph, oneDNN on, compared with the SavedModel, oneDNN off")
    for size in timing.batches:
        print(f"    batch {size}: {call_time(row, size)}; {goal_verdict(row, size, goals.get(size))}", flush=True)
    return row


def call_time(row: dict[str, Any], size: str) -> str:
    """Return the time of a call and the speedup over the SavedModel as text."""
    if size not in row["latency"]:
        return "not measured"
    call = f"{row['latency'][size]['p50']:#.3g} ms"
    if size not in row["speedup"]:
        return call
    ratio = row["speedup"][size]
    return f"{call}, {ratio['value']:.2f}x ({ratio['low']:.2f} to {ratio['high']:.2f}) {ratio['verdict']}"


def goal_verdict(row: dict[str, Any], size: str, goal: float | None) -> str:
    """Return the verdict on a goal as text: a minimal speedup, or not to be slower if ``goal`` is None."""
    if size not in row["speedup"]:
        return "missed, not measured"
    ratio, verdict = row["speedup"][size]["value"], row["speedup"][size]["verdict"]
    if goal is None:
        return f"goal not slower {'missed' if verdict == 'slower' else 'met'}"
    return f"goal {goal:g}x {'met' if ratio >= goal else 'missed'} ({ratio:.2f}x)"


def benchmarked(plain: Path, candidates: list[Path], timing: Timing) -> list[dict[str, Any]]:
    """Benchmark the models and return a row for each, the plain one first."""
    from tfopt.artifacts import Benchmark
    from tfopt.components.benchmark.component import benchmark

    with tempfile.TemporaryDirectory() as target:
        benchmark(
            *(plain, candidates, f"{target}/benchmark"),
            batch_sizes=timing.batches,
            threads=timing.threads,
            seconds=timing.seconds,
            rounds=timing.rounds,
        )
        return list(Benchmark(f"{target}/benchmark").read()["models"])


if __name__ == "__main__":
    timing = Timing(**json.loads(sys.argv[2]))
    folder = Path(sys.argv[1])
    (folder / "measured.json").write_text(
        json.dumps(benchmarked(folder / "plain", [folder / name for name in timing.contenders], timing))
    )
