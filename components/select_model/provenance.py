"""Where the models come from and how to do it all again, from their cards and the reports."""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from tfopt import formatting as wording
from tfopt.artifacts import Model
from tfopt.component import find
from tfopt.errors import ComponentError


def lineage(model: Model, listed: Mapping[str, Any]) -> dict[str, Any]:
    """The steps from the first ancestor to a model, as its card tells them."""
    card = model.card
    ancestors = [step for step in card.get("lineage") or [] if step]
    steps = [
        {
            "does": step.get("component") or step.get("name"),
            "said": _second_round(step.get("recovery")),
            "digest": step["digest"],
        }
        for step in ancestors
    ]
    own = " ".join(
        f"{key}={_short(value)}" for key, value in (card.get("parameters") or {}).items() if value not in (None, [], "")
    )
    rounds = _second_round((card.get("fine_tuned") or {}).get("recovery"))
    own = "; ".join(said for said in (own, rounds) if said)
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
    lines = []
    for model, row in zip(models, listed, strict=True):
        lines += [words for words in _chain(model, row, listed[0]) if words and words not in lines]
    lines.append(
        ["tfopt", "evaluate", *both, "--examples", "examples/", "--evaluation", "evaluation/", "--label",
         str(evaluation["label"]), "--split", str(evaluation["split"]), "--seed", str(seed)]
    )  # fmt: skip
    lines.append(["tfopt", "benchmark", *both, "--benchmark", "benchmark/", *_measured(benchmark)])
    lines.append(
        ["tfopt", "select_model", *both, "--evaluation", "evaluation/", "--benchmark", "benchmark/",
         "--selected", "selected/", "--decision", "decision/", "--blessing", "blessing/",
         "--goals", *decision["goals"], "--objective", decision["objective"],
         "--confidence", decision["confidence"], "--layout", decision["layout"], "--watch", *decision["watch"],
         *(["--history", "served/"] if decision["history"]["runs"] else [])]
    )  # fmt: skip
    return [shlex.join(line) for line in lines]


def _measured(benchmark: Mapping[str, Any]) -> list[str]:
    """The options that a benchmark was made with."""
    examples = ["--examples", "examples/", "--split", benchmark["split"]] if benchmark["split"] else []
    words = [*examples, "--batch-sizes", *map(str, benchmark["batch_sizes"])]
    for name in ("threads", "seconds", "rounds", "seed"):
        words += [_option(name), str(benchmark[name])]
    return [*words, "--min-effect", str(benchmark["interval"]["min_effect"])]


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


def _second_round(found: Mapping[str, Any] | None) -> str:
    """What a second round of fine-tuning gained; nothing where there was none."""
    if not found or "second" not in found:
        return ""
    metric = found["metric"]
    first, second = (wording.amount(metric, found[turn][metric]) for turn in ("first", "second"))
    where = f"on {found['records']:,} examples that it did not learn"
    kept = "kept" if found["kept"] == "second" else "dropped"
    return f"second round of {found['epochs']} epochs, {kept}: {wording.title(metric)} {first} to {second} {where}"


def _chain(model: Model, listed: Mapping[str, Any], baseline: Mapping[str, Any]) -> list[list[str]]:
    """The commands that made a model of the baseline, step by step; folders stand by what was done up to there."""
    card = model.card
    ancestors = [step for step in card.get("lineage") or [] if step]
    of_baseline = next((n + 1 for n, step in enumerate(ancestors) if step["digest"] == baseline["digest"]), 0)
    given = baseline["name"] if of_baseline else "model"
    made, names = [], []
    for step in ancestors[of_baseline:]:
        names.append(str(step.get("name")))
        made.append(_made(step, given, " + ".join(names), with_examples=bool(card.get("data"))))
        given = " + ".join(names)
    return [*made, _made(card, given, listed["name"], with_examples=bool(card.get("data")))]


def _made(step: Mapping[str, Any], given: str, name: str, *, with_examples: bool) -> list[str]:
    """The command that does a step; empty when no shipped component did."""
    try:
        component = find(str(step.get("component")))
    except ComponentError:
        return []
    places = {"model": _folder(given), "examples": "examples/"}
    words = ["tfopt", component.name]
    for port in component.inputs.values():
        if port.name != "examples" or with_examples:
            words += [_option(port.name), places.get(port.name, port.name.upper())]
    words += [_option(next(iter(component.outputs))), _folder(name)]
    for name, value in (step.get("parameters") or {}).items():
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
