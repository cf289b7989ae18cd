"""List backbones for image classification that are lighter than a model and within a budget.

Costs come from `tfopt.keras_models.backbones`. Accuracy and speed are unknown; `compare_backbones` measures them.
"""

from tfopt.graph.frozen_model import Signature
from tfopt.keras_models.backbones import COSTS, COUNTED_SIDE
from tfopt.reports.inspection_report import CostBudget, LighterBackbone, LighterBackbones


def list_lighter_backbones(signature: Signature, parameters: int, flops: int, budget: CostBudget) -> LighterBackbones:
    """Return the backbones that are lighter than a model with these parameters and operations, within the budget.

    The task and the size of the images are determined from the model's signature.
    """
    mflops = flops / 1e6
    model_fits = _is_within(budget, parameters, mflops)
    size, reason = _image_size(signature)
    if size is None:
        return LighterBackbones(task=None, reason=reason, budget=budget, model_fits=model_fits, fitting=[])
    area = size[0] * size[1] / COUNTED_SIDE**2  # convolutions are nearly all of the work, and grow with the area
    rows = [LighterBackbone(name, cost.parameters, cost.mflops * area) for name, cost in COSTS.items()]
    lighter = [row for row in rows if row.mflops < mflops and row.parameters < parameters]
    fitting = [row for row in lighter if _is_within(budget, row.parameters, row.mflops)]
    fitting.sort(key=lambda row: -row.mflops)
    return LighterBackbones("image classification", None, budget, model_fits, fitting)


def _is_within(budget: CostBudget, parameters: int, mflops: float) -> bool:
    fits = budget.mflops is None or mflops <= budget.mflops
    return fits and (budget.parameters is None or parameters <= budget.parameters)


def _image_size(signature: Signature) -> tuple[tuple[int, int] | None, str | None]:
    """Return height and width of an image classifier's input; else None and the reason."""
    if len(signature.inputs) != 1 or len(signature.outputs) != 1:
        return None, "the model does not have exactly one input and one output"
    (image,), (scores,) = signature.inputs.values(), signature.outputs.values()
    shape = image.shape or ()
    if len(shape) != 4 or shape[3] not in (1, 3) or not shape[1] or not shape[2]:
        return None, "the input is not an image of a fixed size"
    if len(scores.shape or ()) != 2 or "float" not in scores.dtype:
        return None, "the output is not a score for each class"
    return (shape[1], shape[2]), None
