"""Where the models come from and how to do it all again, from their cards and the reports."""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from tfopt.artifacts import Model
from tfopt.component import find
from tfopt.errors import ComponentError


def lineage(model: Model, listed: Mapping[str, Any]) -> dict[str, Any]:
    """The steps from the first ancestor to a model, as its card tells them."""
    card = model.card
    ancestors = [step for step in card.get("lineage") or [] if step]
    steps = [
        {"does": step.get("component") or step.get("name"), "said": "", "digest": step["digest"]} for step in ancestors
    ]
    own = " ".join(
        f"{key}={_short(value)}" for key, value in (card.get("parameters") or {}).items() if value not in (None, [], "")
    )
    steps.append({"does": card.get("component") or "as it came", "said": own, "digest": listed["digest"]})
    versions = ", ".join(f"{name} {version}" for name, version in (card.get("versions") or {}).items())
    return {
        "name": listed["name"],
        "steps": steps,
        "verified": _short(card["verified"]) if card.get("verified") else "",
        "data": ((card.get("data") or {}).get("digest") or "")[:12],
        "versions": versions,
    }


def commands(
    models: Sequence[Model],
    listed: Sequence[Mapping[str, Any]],
    decision: Mapping[str, Any],
    evaluation: Mapping[str, Any],
    benchmark: Mapping[str, Any],
) -> list[str]:
    """The command lines that measure these models again and decide again; folders stand by the models' names."""
    baseline, *candidates = (_folder(row["name"]) for row in listed)
    both = ["--baseline", baseline, *(["--candidates", *candidates] if candidates else [])]
    seed = (evaluation.get("interval") or {}).get("seed", 0)
    sizes = [str(size) for size in benchmark.get("batch_sizes", [])]
    lines = [words for model, row in zip(models, listed, strict=True) if (words := _made(model, row))]
    lines.append(
        ["tfopt", "evaluate", *both, "--examples", "examples/", "--evaluation", "evaluation/", "--label",
         str(evaluation["label"]), "--split", str(evaluation["split"]), "--seed", str(seed)]
    )  # fmt: skip
    lines.append(
        ["tfopt", "benchmark", *both, "--examples", "examples/", "--benchmark", "benchmark/", "--batch-sizes", *sizes,
         "--threads", str(benchmark.get("threads", 1))]
    )  # fmt: skip
    lines.append(
        ["tfopt", "select_model", *both, "--evaluation", "evaluation/", "--benchmark", "benchmark/",
         "--selected", "selected/", "--decision", "decision/", "--blessing", "blessing/",
         "--goals", *decision["goals"], "--objective", decision["objective"],
         "--confidence", decision["confidence"]]
    )  # fmt: skip
    return [shlex.join(line) for line in lines]


def flattened(facts: Mapping[str, Any], above: str = "") -> list[tuple[str, str]]:
    """Nested facts as pairs of a name and text, for a list.

    >>> flattened({"cpu": {"model": "A", "flags": ["x", "y"]}, "load": None})
    [('cpu model', 'A'), ('cpu flags', 'x, y')]
    """
    pairs: list[tuple[str, str]] = []
    for key, value in facts.items():
        name = f"{above} {key}".strip().replace("_", " ")
        if isinstance(value, Mapping):
            pairs += flattened(value, name)
        elif value not in (None, [], ""):
            pairs.append((name, _short(value)))
    return pairs


def _made(model: Model, listed: Mapping[str, Any]) -> list[str]:
    """The command that made a model; empty when no shipped component did."""
    card = model.card
    try:
        component = find(str(card.get("component")))
    except ComponentError:
        return []
    places = {"model": _folder(str((card.get("parent") or {}).get("name", "model"))), "examples": "examples/"}
    words = ["tfopt", component.name]
    for port in component.inputs.values():
        if port.name != "examples" or card.get("data"):
            words += [_option(port.name), places.get(port.name, port.name.upper())]
    words += [_option(next(iter(component.outputs))), _folder(listed["name"])]
    for name, value in (card.get("parameters") or {}).items():
        if isinstance(value, bool):
            words.append(_option(name) if value else _option(f"no-{name}"))
        elif value not in (None, []):
            words += [_option(name), *(map(str, value) if isinstance(value, list) else [str(value)])]
    return words


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _folder(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name).strip("_") + "/"


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_short(item)}" for key, item in value.items() if item is not None)
    if isinstance(value, list):
        return ", ".join(_short(item) for item in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)
