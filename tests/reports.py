"""Write evaluation, benchmark and search reports for a table of models."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tfopt.artifacts import Benchmark, Evaluation, Model, unique_names
from tfopt.measurement.model_measurements import ModelMeasurements, join_reports
from tfopt.model_store.run_history import measurement_conditions
from tfopt.reports.benchmark_report import BenchmarkReport
from tfopt.reports.decision_report import DecisionReport, HistoryComparison, ModelDecision
from tfopt.reports.evaluation_report import EvaluationReport
from tfopt.reports.recipe_report import RecipeReport, TrialReport
from tfopt.reports.report_schema import parse

EXAMPLES = 1000


@dataclass(frozen=True)
class Row:
    """The measurements of one model; intervals are (value, low, high)."""

    name: str
    format: str = "tflite"
    accuracy: float = 0.98
    delta: tuple[float, float, float] | None = (0.0, 0.0, 0.0)
    p50: float = 0.4
    speedup: tuple[float, float, float, str] | None = (1.0, 0.98, 1.02, "within noise")
    size: int = 150_000
    memory: int = 300_000_000
    batches: tuple[int, ...] = (1, 32)
    error: str | None = None
    benchmark_error: str | None = None
    over_fastest: tuple[float, float, float, str] | None = None


TRAINED = Row("trained", "saved_model", 0.981, None, 0.412, None, 186_400, 512_000_000)
DIGITS = [
    TRAINED,
    Row("folded", "saved_model", 0.981, (0.0, 0.0, 0.0), 0.301, (1.37, 1.33, 1.41, "faster"), 171_200, 508_000_000),
    Row("tflite float32", accuracy=0.981, p50=0.0612, speedup=(6.73, 6.6, 6.86, "faster"), size=158_300, memory=96e6),
    Row("tflite dynamic", "tflite", 0.980, (-0.001, -0.003, 0.001), 0.0574, (7.18, 7.0, 7.35, "faster"), 48_900, 95e6),
    Row("tflite int8", "tflite", 0.977, (-0.004, -0.0085, 0.0005), 0.0389, (10.6, 10.3, 10.9, "faster"), 45_100, 92e6),
    Row("pruned 90%", "saved_model", 0.96, (-0.021, -0.031, -0.012), 0.318, (1.3, 1.25, 1.34, "faster"), 171_900),
]


def make_models(rows: list[Row], folder: Path) -> list[Path]:
    """Write an artifact folder for each row, with a model card and placeholder files."""
    return [_make(row, number, folder / f"{number} {row.name}") for number, row in enumerate(rows)]


def write_reports(rows: list[Row], models: list[Path], folder: Path, *, samples: bool = True, slices: bool = True):
    """Write the reports of evaluate and benchmark, and return the two artifacts."""
    artifacts = [Model.open(model) for model in models]
    rows = [replace(row, name=name) for row, name in zip(rows, unique_names(artifacts), strict=True)]
    evaluation, benchmark = Evaluation(folder / "evaluation"), Benchmark(folder / "benchmark")
    evaluation.write(evaluation_content(rows, [model.digest for model in artifacts], slices=slices))
    benchmark.write(benchmark_content(rows, [model.digest for model in artifacts]))
    if samples:
        _write_samples(rows, benchmark.path / "samples.parquet")
    return evaluation, benchmark


def evaluation_content(rows: list[Row], digests: list[str], *, slices: bool = True) -> dict:
    return {
        "split": "eval",
        "chosen_on_it": [rows[0].name],
        "label": "label",
        "task": "classification",
        "output": "digit",
        "output_kind": "probabilities",
        "classes": [str(digit) for digit in range(10)],
        "counts": {"read": EXAMPLES + 2, "evaluated": EXAMPLES, "skipped": 2, "skipped_because": {"no label": 2}},
        "interval": {"method": "Bayesian bootstrap", "replicates": 400, "level": 0.95, "seed": 0},
        "baseline": rows[0].name,
        "models": [_evaluated(row, digest, slices) for row, digest in zip(rows, digests, strict=True)],
    }


def benchmark_content(rows: list[Row], digests: list[str]) -> dict:
    return {
        "environment": {
            "cpu": {"model": "Intel(R) Xeon(R) Processor @ 2.10GHz", "cores": 2, "instruction_sets": ["avx2", "fma"]},
            "versions": {"python": "3.11.7", "tensorflow": "2.21.0", "ai-edge-litert": "2.3.0"},
            "load": {"average_before": [0.2, 0.3, 0.2], "busy": 0.55},
        },
        "baseline": rows[0].name,
        "batch_sizes": [1, 32],
        "threads": 1,
        "seconds": 6.0,
        "rounds": 60,
        "seed": 0,
        "inputs": {},
        "split": "eval",
        "interval": {"level": 0.99, "min_effect": 0.03},
        "models": [_benchmarked(row, digest) for row, digest in zip(rows, digests, strict=True)],
    }


def join_rows(rows: list[Row], digests: list[str]) -> list[ModelMeasurements]:
    """Return the measurements of the rows, the first one as the parent."""
    models = [(row.name, digest, row.format) for row, digest in zip(rows, digests, strict=True)]
    return join_reports(models, *parsed_reports(rows, digests))


def parsed_reports(rows: list[Row], digests: list[str]) -> tuple[EvaluationReport, BenchmarkReport]:
    """Return the typed reports of the rows, without slices."""
    evaluation = parse(EvaluationReport, evaluation_content(rows, digests, slices=False), "evaluation")
    return evaluation, parse(BenchmarkReport, benchmark_content(rows, digests), "benchmark")


def baseline_metrics(size: float = 186_400) -> dict[str, float]:
    """Return the metrics of the baseline in the decision of `recipe_report`."""
    return {"accuracy": 0.981, "latency": 0.4, "size": float(size)}


def recipe_report(
    trials: Sequence[TrialReport] = (), *, parent: str = "", examples: str = "", day: int = 1, size: float = 186_400
) -> RecipeReport:
    """Return the report of a search in which the model itself won, on a day of October."""
    conditions = measurement_conditions(*parsed_reports([TRAINED, Row("child")], [parent, "c"]))
    decided = ModelDecision(
        "trained", parent, "saved_model", parent=True, passed=True, pareto=True, chosen=True, reasons=["chosen"],
        metrics=baseline_metrics(size),
    )  # fmt: skip
    decision = DecisionReport(
        "trained", blessed=True, reason="the model stays", objective="latency", goals=[], confidence="interval",
        layout="auto", watch=[], models=[decided], conditions=conditions,
        history=HistoryComparison([], 3, [], []), selected_digest=parent,
    )  # fmt: skip
    return RecipeReport(
        reason="the model itself stays", winner=None, blessed=True, reused=False, stopped="enough", goals=[],
        objective="latency", formats=["tflite"], seed=0, examples=examples, minutes=1.0,
        time=f"2026-10-{day:02}T03:00:00+00:00", trials=list(trials), decision=decision, earlier=[], left_out="",
    )  # fmt: skip


def _make(row: Row, number: int, path: Path) -> Path:
    serving = path / "Format-Serving"
    serving.mkdir(parents=True)
    name, content = {"saved_model": ("saved_model.pb", "graph"), "tflite": ("tflite", "flatbuffer")}[row.format]
    (serving / name).write_text(f"{content} {number}")
    component = {"saved_model": "fold_batch_norm", "tflite": "export_tflite"}[row.format] if number else "train"
    ancestor = {"name": "trained", "digest": "0" * 64, "component": "train"}
    card = {
        "name": row.name,
        "component": component,
        "parameters": {"precision": row.name.split()[-1]} if row.format == "tflite" else {},
        "parent": ancestor if number else None,
        "lineage": [ancestor] if number else [],
        "data": {"digest": "da7a" * 16},
        "versions": {"tfopt": "0.1.0", "tensorflow": "2.21.0"},
    }
    if number:
        card["verified"] = "64 records, largest difference 1.2e-06 of the output range"
    (path / "model_card.json").write_text(json.dumps(card))
    return path


def _evaluated(row: Row, digest: str, slices: bool) -> dict:
    facts = {"name": row.name, "digest": digest, "format": row.format, "error": row.error, "notes": []}
    if row.error:
        return facts | {"metrics": {}, "delta": {}, "parity": {}, "confusion": [], "roc": [], "slices": []}
    classes = [
        {"feature": "label", "value": value, "count": 90 + value}
        | _metrics(row, row.accuracy - 0.002 * value, None if row.delta is None else np.multiply(row.delta, value / 4))
        for value in range(10)
    ]
    worst = abs(row.delta[0]) if row.delta else 0
    return facts | {
        **_metrics(row, row.accuracy, row.delta),
        "parity": {"max_abs_error": 1e-6 + worst * 40, "mean_abs_error": 1e-7 + worst / 9, "agreement": 1 - worst * 1.5}
        if row.delta
        else {},
        "confusion": _confusion(row.accuracy),
        "roc": [],
        "slices": classes if slices else [],
    }


def _confusion(accuracy: float) -> list[list[int]]:
    """Return a confusion matrix with this accuracy; all errors are threes classified as eights."""
    counts = np.diag([EXAMPLES // 10] * 10)
    wrong = round(EXAMPLES * (1 - accuracy))
    counts[3, 3] -= wrong
    counts[3, 8] += wrong
    return counts.tolist()


def _metrics(row: Row, accuracy: float, delta) -> dict:
    metrics = {
        "accuracy": _interval(accuracy, accuracy - 0.009, accuracy + 0.008) | {"higher_is_better": True},
        "top_5_accuracy": _interval(0.999, 0.997, 1.0) | {"higher_is_better": True},
        "log_loss": _interval(0.0712, 0.0561, 0.0863) | {"higher_is_better": False},
    }
    deltas = {
        "accuracy": _interval(*delta),
        "top_5_accuracy": _interval(0.0, 0.0, 0.0),
        "log_loss": _interval(0.0009, -0.0003, 0.0021),
    } if delta is not None else {}  # fmt: skip
    return {"metrics": metrics, "delta": deltas}


def _benchmarked(row: Row, digest: str) -> dict:
    facts = {"name": row.name, "digest": digest, "format": row.format, "error": row.benchmark_error or row.error}
    facts |= {"environment": {}, "sizes": {"raw": row.size, "gzipped": int(row.size * 0.91)}, "notes": []}
    once = ("import_seconds", "load_seconds", "first_call_seconds", "runtime_memory_bytes", "peak_memory_bytes")
    facts |= dict.fromkeys((*once, "saturation"))
    if facts["error"]:
        return facts | {"latency": {}, "throughput": {}, "speedup": {}}
    latency = {
        "p50": row.p50, "p90": row.p50 * 1.09, "p99": row.p50 * 1.4, "mean": row.p50 * 1.03, "samples": 3000,
        "disturbed": 0.0, "stable": row.name != "folded",
    }  # fmt: skip
    large = {key: value * 25 if isinstance(value, float) else value for key, value in latency.items()}
    speedup, over_fastest = (
        dict(zip(("value", "low", "high", "verdict"), ratio, strict=True)) if ratio else None
        for ratio in (row.speedup, row.over_fastest)
    )
    return facts | {
        "load_seconds": 0.02,
        "first_call_seconds": 0.004,
        "peak_memory_bytes": int(row.memory),
        "latency": {"1": latency, "32": large},
        "throughput": {str(size): 1280 * size / (size + 0.28) / row.p50 for size in row.batches},
        "speedup": {"1": speedup, "32": speedup} if speedup else {},
        "over_fastest": {"1": over_fastest, "32": over_fastest} if over_fastest else {},
        "saturation": {
            "low": 4,
            "high": 8,
            "largest": max(row.batches),
            "gain": 0.05,
            "summary": "saturated from 4 or 8 on",
        },
        "notes": ["batch size 1: the middle half of the rounds spreads over 14%"] if row.name == "folded" else [],
    }


def _interval(value: float, low: float, high: float) -> dict:
    return {"value": float(value), "low": float(low), "high": float(high)}


def _write_samples(rows: list[Row], file: Path) -> None:
    random = np.random.default_rng(0)
    tables = []
    for row in rows:
        if row.error or row.benchmark_error:
            continue
        for size, scale in ((1, 1), (32, 25)):
            calls = row.p50 * scale * 1e6 * random.lognormal(0, 0.08, 3000) * (1 + 0.4 * (random.random(3000) < 0.02))
            tables.append(
                pa.table({
                    "model": pa.array([row.name] * 3000).dictionary_encode(),
                    "batch_size": pa.array([size] * 3000, pa.int32()),
                    "round": pa.array(np.repeat(range(30), 100), pa.int32()),
                    "call": pa.array(list(range(100)) * 30, pa.int32()),
                    "nanoseconds": pa.array(calls.astype("int64")),
                })
            )  # fmt: skip
    pq.write_table(pa.concat_tables(tables, promote_options="default"), file)
