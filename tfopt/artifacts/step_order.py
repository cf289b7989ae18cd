"""Check the order of steps: reject a step that would undo the effect of an earlier one.

The legal order is fold_batch_norm, prune, cluster, quantize, then an exporter; each may be left out. Zeros survive
clustering and quantization, shared weights survive quantization, and no model is quantized twice. The runner of
components checks the lineage of a step's input, and a DAG is checked when it is built.
"""

from collections.abc import Sequence

from tfopt.artifacts import LineageStep, Model
from tfopt.errors import ComponentError

ORDER = ("fold_batch_norm", "prune", "cluster", "quantize")
EFFECTS = {"prune": "zeros", "cluster": "shared weights", "quantize": "quantization"}
# The effects that a step must not meet, and the reasons.
CONFLICTS = {
    "fold_batch_norm": {
        "shared weights": "folding scales each channel by its own factor, so channels would no longer share weights",
        "quantization": "the trained ranges fit the unfolded layers",
    },
    "prune": {
        "zeros": "its masks are not stored, so the zeros would move",
        "shared weights": "new zeros and fine-tuning would make shared weights differ",
        "quantization": "the trained ranges fit the unchanged weights",
    },
    "cluster": {
        "shared weights": "clustering twice only adds rounding errors",
        "quantization": "the trained ranges fit the unchanged weights",
    },
    "quantize": {"quantization": "quantizing twice only adds rounding errors"},
    "cast_precision": {"quantization": "the trained ranges would be rounded again"},
    "quantize_graph": {"quantization": "the trained ranges would be replaced by calibrated ones"},
}
# A second run of these finds nothing more to do, so it undoes no effect that followed the first one.
IDEMPOTENT = ("fold_batch_norm",)


def check_order(model: Model, step: str) -> None:
    """Raise ComponentError if a component would undo the effect of an earlier step in the model's lineage.

    Args:
        model: The component's input; its model card is only read if the component may not follow some steps.
        step: The component's name.
    """
    if step in CONFLICTS:
        check_steps(model.name, applied_steps(model), step)


def check_steps(name: str, done: Sequence[LineageStep], step: str) -> None:
    """Raise ComponentError if a step would undo the effect of an earlier one.

    Args:
        name: The model or step named in the error.
        done: The earlier steps, first to last.
        step: The component's name.
    """
    if step in IDEMPOTENT and any(previous.component == step for previous in done):
        return
    for effect, reason in CONFLICTS.get(step, {}).items():
        earlier = next((previous.component for previous in done if effect_of(previous) == effect), None)
        if earlier:
            raise ComponentError(
                f"{name}: {step} after {earlier}",
                f"the order {', '.join(ORDER)}: {reason}",
                f"give {step} the model from before {earlier}"
                + (f", and let {earlier} follow" if _precedes(step, earlier) else ""),
            )


def applied_steps(model: Model) -> list[LineageStep]:
    """Return the steps by which components made the model, first to last."""
    return [step for step in (*model.card.lineage, model.card.step) if step.component]


def effect_of(step: LineageStep) -> str | None:
    """Return the effect of a step on the weights: zeros, shared weights, quantization; None if it has none of them.

    >>> effect_of(LineageStep(component="prune", parameters={"pattern": "channel"}))
    """
    pattern = (step.parameters or {}).get("pattern", "magnitude")
    physical = step.component == "prune" and pattern not in ("magnitude", "n_m", "block")
    return None if physical else EFFECTS.get(step.component or "")


def _precedes(step: str, other: str) -> bool:
    return step in ORDER and other in ORDER and ORDER.index(step) < ORDER.index(other)
