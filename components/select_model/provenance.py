"""Lineage of the models, and the commands that repeat the run, from the model cards and the reports."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tfopt import formatting
from tfopt.artifacts import LineageStep, Model
from tfopt.artifacts.formats import FORMATS
from tfopt.component import find
from tfopt.errors import ComponentError
from tfopt.measurement.evidence import DEGRADATION_NOTE
from tfopt.reports.benchmark_report import BenchmarkReport
from tfopt.reports.decision_report import DecisionReport, ModelDecision
from tfopt.reports.evaluation_report import EvaluationReport
from tfopt.value_types import JsonObject

EMPTY: tuple[object, ...] = (None, [], "")


def lineage(model: Model, decided: ModelDecision) -> JsonObject:
    """Return the steps from the first ancestor to a model, from its model card."""
    card = model.card
    steps = [
        {
            "component": step.component or step.name,
            "settings": _describe_second_round(step.recovery),
            "digest": step.digest,
        }
        for step in card.lineage
    ]
    parameters = (card.parameters or {}).items()
    settings = " ".join(f"{key}={_to_text(value)}" for key, value in parameters if value not in EMPTY)
    second_round = _describe_second_round(card.step.recovery)
    note = card.facts.get(DEGRADATION_NOTE)
    steps.append({
        "component": card.component or "input",
        "settings": "; ".join(text for text in (settings, second_round) if text),
        "digest": decided.digest,
    })  # fmt: skip
    return {
        "name": decided.name,
        "steps": steps,
        "verified": "; ".join(filter(None, (_to_text(card.facts.get("verified") or ""), note))),
        "data": ((card.data and card.data.digest) or "")[:12],
        "versions": ", ".join(f"{name} {version}" for name, version in card.versions.items()),
    }


def commands(
    models: Sequence[Model], decision: DecisionReport, evaluation: EvaluationReport, benchmark: BenchmarkReport
) -> list[str]:
    """Return the command lines that make, measure and select the models again; folders are named like the models."""
    baseline, *candidates = (_folder(decided.name) for decided in decision.models)
    compared = ["--baseline", baseline, *(["--candidates", *candidates] if candidates else [])]
    lines: list[list[str]] = []
    tried = evaluation.interval.candidates
    for model, decided in zip(models, decision.models, strict=True):
        lines += [words for words in _commands_from_baseline(model, decided, decision.parent) if words not in lines]
    lines.append(
        ["tfopt", "evaluate", *compared, "--examples", "examples/", "--evaluation", "evaluation/", "--label",
         evaluation.label, "--split", evaluation.split, "--seed", str(evaluation.interval.seed),
         *(["--module", "module.py", "--metrics", *evaluation.metrics] if evaluation.metrics else []),
         *(["--tried", str(tried)] if tried > len(candidates) else [])]
    )  # fmt: skip
    lines.append(["tfopt", "benchmark", *compared, "--benchmark", "benchmark/", *_benchmark_options(benchmark)])
    lines.append(
        ["tfopt", "select_model", *compared, "--evaluation", "evaluation/", "--benchmark", "benchmark/",
         "--selected", "selected/", "--decision", "decision/", "--blessing", "blessing/",
         "--goals", *decision.goals, "--objective", decision.objective,
         "--confidence", decision.confidence, "--layout", decision.layout, "--watch", *decision.watch,
         *(["--destination", "served/"] if decision.history.runs else [])]
    )  # fmt: skip
    return [shlex.join(line) for line in lines]


def graph_viewers(model: Model, decided: ModelDecision) -> list[str]:
    """Return the commands that show the graph of a model; none if no viewer opens its format, or it was not made."""
    kind = FORMATS.get(decided.format)
    file = kind.find(model.path) if kind and kind.name != "tensorrt" else None
    if not file:
        return []
    folder = _folder(decided.name)
    path = f"{folder}{file.relative_to(model.path)}" if file != model.path else f"{folder}{file.name}"
    lines = [["netron", path]]
    if decided.format == "tflite" and file.suffix != ".tflite":  # Model Explorer reads the suffix, Netron the content
        lines += [["cp", path, "model.tflite"], ["model-explorer", "model.tflite"]]
    elif decided.format in ("saved_model", "tflite"):
        lines += [["model-explorer", path]]
    elif decided.format == "onnx":
        lines += [["model-explorer", "--extensions=model_explorer_onnx", path]]
    return [shlex.join(line) for line in lines]


def flatten(facts: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Flatten nested facts into pairs of name and text.

    >>> flatten({"cpu": {"model": "A", "flags": ["x", "y"]}, "load": None})
    [('cpu model', 'A'), ('cpu flags', 'x, y')]
    """
    pairs: list[tuple[str, str]] = []
    for key, value in facts.items():
        name = f"{prefix} {key}".strip().replace("_", " ")
        if isinstance(value, Mapping):
            pairs += flatten(value, name)
        elif value not in EMPTY:
            pairs.append((name, _to_text(value)))
    return pairs


def _benchmark_options(benchmark: BenchmarkReport) -> list[str]:
    examples = ["--examples", "examples/", "--split", benchmark.split] if benchmark.split else []
    words = [*examples, "--batch-sizes", *map(str, benchmark.batch_sizes)]
    for name in ("threads", "seconds", "rounds", "seed"):
        words += [_option(name), str(getattr(benchmark, name))]
    for name, value in asdict(benchmark.load).items() if benchmark.load else ():
        words += [_option(name), str(value)] if value is not None else []
    return [*words, "--min-effect", str(benchmark.interval["min_effect"])]


def _describe_second_round(recovery: Mapping[str, Any] | None) -> str:
    """Describe a second round of fine-tuning and its gain; empty if there was none."""
    if not recovery or "second" not in recovery:
        return ""
    metric = recovery["metric"]
    first, second = (formatting.amount(metric, recovery[turn][metric]) for turn in ("first", "second"))
    data = f"on {recovery['records']:,} examples that it was not trained on"
    result = "used" if recovery["kept"] == "second" else "discarded"
    title = formatting.title(metric)
    return f"second round of {recovery['epochs']} epochs, {result}: {title} {first} to {second} {data}"


def _commands_from_baseline(model: Model, decided: ModelDecision, baseline: ModelDecision) -> list[list[str]]:
    """Return the commands that make a model from the baseline; a folder is named after the steps up to it."""
    card = model.card
    ancestors = card.lineage
    after_baseline = next((n + 1 for n, step in enumerate(ancestors) if step.digest == baseline.digest), 0)
    source = baseline.name if after_baseline else "model"
    with_examples = bool(card.data)
    lines, names = [], []
    for step in ancestors[after_baseline:]:
        names.append(str(step.name))
        lines.append(_command(step, source, " + ".join(names), with_examples=with_examples))
        source = " + ".join(names)
    lines.append(_command(card.step, source, decided.name, with_examples=with_examples))
    return [line for line in lines if line]


def _command(step: LineageStep, source: str, name: str, *, with_examples: bool) -> list[str]:
    try:
        component = find(str(step.component))
    except ComponentError:
        return []
    folders = {"model": _folder(source), "examples": "examples/"}
    words = ["tfopt", component.name]
    ports = step.inputs
    if ports is None:  # an older card: all that the component needs
        needed = [port.name for port in component.inputs.values() if not port.optional and port.name != "examples"]
        ports = [*needed, "examples"] if with_examples else needed
    for port in component.inputs.values():
        if port.name in ports:
            words += [_option(port.name), folders.get(port.name, port.name.upper())]
    words += [_option(next(iter(component.outputs))), _folder(name)]
    for parameter, value in (step.parameters or {}).items():
        if isinstance(value, bool):
            words.append(_option(parameter) if value else _option(f"no-{parameter}"))
        elif value not in (None, []):
            words += [_option(parameter), *(map(str, value) if isinstance(value, list) else [str(value)])]
    return words


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _folder(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name).strip("_") + "/"


def _to_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_to_text(item)}" for key, item in value.items() if item is not None)
    if isinstance(value, list):
        return ", ".join(_to_text(item) for item in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)
