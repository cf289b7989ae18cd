"""Which step may follow which: what one step leaves in the weights, and what a later one would undo.

The legal order is fold_batch_norm, prune, cluster, quantize, then an exporter; each may be left out. Zeros survive
clustering and quantization, shared values survive quantization, and nothing is quantized twice.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tfopt.artifacts import Model
from tfopt.errors import ComponentError

ORDER = ("fold_batch_norm", "prune", "cluster", "quantize")
LEAVES = {"prune": "zeros", "cluster": "shared weights", "quantize": "quantization"}
# What each step may not meet, and why.
UNDOES = {
    "fold_batch_norm": {
        "shared weights": "folding scales each channel by another number, and no two channels would share weights",
        "quantization": "the ranges that were learnt are those of the layers as they are",
    },
    "prune": {
        "zeros": "its masks are not kept, so that the zeros would move",
        "shared weights": "new zeros and fine-tuning would take the shared weights apart",
        "quantization": "the ranges that were learnt are those of the weights as they are",
    },
    "cluster": {
        "shared weights": "clustering twice only adds up two roundings",
        "quantization": "the ranges that were learnt are those of the weights as they are",
    },
    "quantize": {"quantization": "quantizing twice only adds up two roundings"},
    "cast_precision": {"quantization": "the ranges that were learnt would be rounded again"},
}


def check_order(model: Model, step: str) -> None:
    """Raise ComponentError when a component's step would undo what an earlier one left, by the model's card.

    Args:
        model: What the step is given.
        step: The component's name.
    """
    check_steps(model.name, history(model), step)


def check_steps(name: str, done: Sequence[Mapping[str, Any]], step: str) -> None:
    """Raise ComponentError when a step would undo what one of the earlier ones left.

    Args:
        name: What to call the model, or the step, in the error.
        done: ``component`` and ``parameters`` of the earlier steps, first to last.
        step: The component's name.
    """
    for left, why in UNDOES.get(step, {}).items():
        earlier = next((made["component"] for made in done if leaves(made) == left), None)
        if earlier:
            raise ComponentError(
                f"{name}: {step} after {earlier}",
                f"the order {', '.join(ORDER)}: {why}",
                f"give {step} the model from before {earlier}"
                + (f", and let {earlier} follow" if _precedes(step, earlier) else ""),
            )


def history(model: Model) -> list[Mapping[str, Any]]:
    """What was done to the model, first to last: ``component`` and ``parameters`` of each step that left a card."""
    return [step for step in [*model.card.get("lineage", []), model.card] if step and step.get("component")]


def leaves(made: Mapping[str, Any]) -> str | None:
    """What a step left in the weights: zeros, shared weights, quantization, or nothing that could be undone.

    >>> leaves({"component": "prune", "parameters": {"pattern": "channel"}})
    """
    pattern = (made.get("parameters") or {}).get("pattern", "magnitude")
    physical = made["component"] == "prune" and pattern not in ("magnitude", "n_m", "block")
    return None if physical else LEAVES.get(made["component"])


def _precedes(step: str, other: str) -> bool:
    return step in ORDER and other in ORDER and ORDER.index(step) < ORDER.index(other)
