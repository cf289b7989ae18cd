"""What a graph optimization is worth: load time, nodes and latency of a SavedModel and what is made of it, as a table.

`benchmarks/graph.py --latency` calls this. Each setting of oneDNN has a process of its own, and each contender one in
that. What XLA compiles is kept in a folder, so that loading anew in every round does not compile anew. At last the laws
and oneDNN together are held against the SavedModel without oneDNN, in one run again.

A goal with oneDNN on is judged against both SavedModels: of the figures known before, one was of laws alone and one of
laws with oneDNN, both ratios to "the SavedModel", which had one speed.
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
# At least so many times as fast as the SavedModel, by batch size; the others may not be slower than within noise.
GOALS = {"MobileNetV2": {"oneDNN off": {"1": 1.3, "32": 1.1}, "oneDNN on": {"1": 1.6, "32": 2.5}}}


@dataclass(frozen=True)
class Timing:
    """What is measured, and how.

    Attributes:
        contenders: Against the plain SavedModel.
        batches: Examples in a call.
        seconds: How long each is measured with each setting, over all sizes of batch; loading comes on top.
        rounds: How often each is loaded.
        threads: And cores, of each.
    """

    contenders: list[str]
    batches: list[str]
    seconds: float
    rounds: int
    threads: int


def compare(name: str, folder: Path, timing: Timing) -> dict[str, Any]:
    """Measure what is in a folder, ``plain`` and ``optimized`` and what is made of plain here, and print a table each.

    Args:
        name: The model's, for its goals.
        folder: Grappler's and XLA's SavedModels are written there too.
        timing: What is measured, and how.
    """
    prepare(folder, timing.contenders)
    nodes = {name: count(folder / name) for name in ("plain", *timing.contenders)}
    found: dict[str, Any] = {"nodes": nodes}
    goals = GOALS.get(name, {})
    for value, setting in SETTINGS.items():
        words = [sys.executable, __file__, str(folder), json.dumps(asdict(timing))]
        kept = folder / f"compiled-{value}"
        kept.mkdir()
        flags = f"--tf_xla_persistent_cache_directory={kept}"
        subprocess.run(words, check=True, env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": value, "TF_XLA_FLAGS": flags})
        found[setting] = rows = json.loads((folder / "measured.json").read_text())
        print_table(rows, nodes, timing.batches, setting, goals.get(setting, {}))
    if "optimized" in timing.contenders:
        found["together"] = together(folder, timing, goals.get(SETTINGS["1"], {}))
    return found


def prepare(folder: Path, contenders: list[str]) -> None:
    """Write what Grappler and XLA make of the plain model, those of them that are wanted."""
    from tfopt.components.compile_xla.compile import PASSES
    from tfopt.components.compile_xla.saved_model import write_compiled
    from tfopt.graph import grappler
    from tfopt.graph import pass_manager as passes
    from tfopt.graph.report import Report
    from tfopt.graph.saved_model import read, write

    frozen = read(folder / "plain")
    if "grappler" in contenders:
        write(grappler.run(frozen), folder / "grappler")
    if "xla" in contenders:
        write_compiled(passes.optimize(frozen, PASSES, Report()), folder / "xla", [])


def count(folder: Path) -> int:
    """The nodes of a SavedModel as it is served, without those that save and restore its variables."""
    from tfopt.artifacts import SavedModel
    from tfopt.graph.frozen_model import nodes
    from tfopt.graph.saved_model import opened

    with opened(SavedModel.open(folder)) as frozen:
        return sum(1 for _ in nodes(frozen.graph))


def print_table(
    rows: list[dict[str, Any]], nodes: dict[str, int], batches: list[str], setting: str, goals: dict[str, float]
) -> None:
    """Print a row for each contender, and whether the goals are met."""
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
        print(f"  {title:<15}{nodes[name]:>7}{times}", *(f"  {said(row, size):<{width}}" for size in batches))
        if row["notes"]:
            print(f"      {'; '.join(row['notes'])}")
    for optimized in (row for row in rows if row["name"] == "optimized"):
        verdicts = [f"batch {size}: {judged(optimized, size, goals.get(size))}" for size in batches]
        print(f"  optimize_graph: {'; '.join(verdicts)}", flush=True)


def together(folder: Path, timing: Timing, goals: dict[str, float]) -> dict[str, Any]:
    """Measure what laws and oneDNN are worth together, print it, and return the row."""
    from tfopt.components.configure_runtime.component import configure_runtime

    configure_runtime(folder / "plain", folder / "off", onednn="off")
    configure_runtime(folder / "optimized", folder / "on", onednn="on")
    _, row = benchmarked(folder / "off", [folder / "on"], timing)
    print("  optimize_graph, oneDNN on, against the SavedModel, oneDNN off")
    for size in timing.batches:
        print(f"    batch {size}: {said(row, size)}; {judged(row, size, goals.get(size))}", flush=True)
    return row


def said(row: dict[str, Any], size: str) -> str:
    """The time of a call, and how much faster than the SavedModel that is."""
    if size not in row["latency"]:
        return "not measured"
    call = f"{row['latency'][size]['p50']:#.3g} ms"
    if size not in row["speedup"]:
        return call
    ratio = row["speedup"][size]
    return f"{call}, {ratio['value']:.2f}x ({ratio['low']:.2f} to {ratio['high']:.2f}) {ratio['verdict']}"


def judged(row: dict[str, Any], size: str, goal: float | None) -> str:
    """Whether a goal is met: a ratio where one is given, or else not to be slower."""
    if size not in row["speedup"]:
        return "missed, not measured"
    ratio, verdict = row["speedup"][size]["value"], row["speedup"][size]["verdict"]
    if goal is None:
        return f"goal not slower {'missed' if verdict == 'slower' else 'met'}"
    return f"goal {goal:g}x {'met' if ratio >= goal else 'missed'} ({ratio:.2f}x)"


def benchmarked(plain: Path, candidates: list[Path], timing: Timing) -> list[dict[str, Any]]:
    """A row for each model, the plain one first."""
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
    wanted = Timing(**json.loads(sys.argv[2]))
    place = Path(sys.argv[1])
    (place / "measured.json").write_text(
        json.dumps(benchmarked(place / "plain", [place / name for name in wanted.contenders], wanted))
    )
