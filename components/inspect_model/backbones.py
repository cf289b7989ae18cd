"""Lighter backbones for image classification, against a budget.

The table is what `inspect` counts of ``keras.applications`` without their heads at 224x224x3; printed by
``python benchmarks/backbones.py``. Their accuracy on your task is not known here: `compare_backbones`
measures it, and their speed.
"""

from typing import Any

from tfopt.graph.frozen_model import Signature

SIDE = 224
# Name: parameters, million floating-point operations at 224x224.
TABLE: dict[str, tuple[int, float]] = {
    "MobileNet 0.25": (218_544, 85),
    "MobileNetV3Small": (939_120, 117),
    "MobileNetV2 0.35": (410_208, 125),
    "MobileNetV2 0.5": (706_224, 202),
    "MobileNet 0.5": (829_536, 306),
    "MobileNetV3Large": (2_996_352, 447),
    "MobileNetV2": (2_257_984, 619),
    "EfficientNetB0": (4_049_570, 807),
    "MobileNet": (3_228_864, 1151),
    "NASNetMobile": (4_269_716, 1155),
    "EfficientNetB1": (6_575_238, 1189),
    "EfficientNetB2": (7_768_568, 1370),
    "EfficientNetV2B0": (5_919_318, 1459),
    "EfficientNetV2B2": (8_769_380, 2371),
    "DenseNet121": (7_037_504, 5716),
    "ResNet50": (23_587_712, 7760),
}


def lighter(
    signature: Signature, parameters: int, flops: int, budget_mflops: float | None, budget_parameters: int | None
) -> dict[str, Any]:
    """Return which backbones of the table are lighter than the model and within the budget, the largest first.

    Args:
        signature: What the model takes and returns: its task class, and its image's size, are told from that.
        parameters: The model's own.
        flops: The model's own.
        budget_mflops: The most million floating-point operations; no limit when None.
        budget_parameters: The most parameters; no limit when None.
    """
    budget = {"mflops": budget_mflops, "parameters": budget_parameters}
    within = _fits(parameters, flops / 1e6, budget_mflops, budget_parameters)
    size, reason = _image(signature)
    if size is None:
        return {"task": None, "reason": reason, "budget": budget, "model_fits": within, "fitting": []}
    area = size[0] * size[1] / SIDE**2  # convolutions, nearly all of the work, grow with the area
    rows: list[dict[str, Any]] = [
        {"name": name, "parameters": count, "mflops": mflops * area} for name, (count, mflops) in TABLE.items()
    ]
    fitting = [
        row
        for row in rows
        if row["mflops"] < flops / 1e6
        and row["parameters"] < parameters
        and _fits(row["parameters"], row["mflops"], budget_mflops, budget_parameters)
    ]
    fitting.sort(key=lambda row: -row["mflops"])
    return {"task": "image classification", "reason": None, "budget": budget, "model_fits": within, "fitting": fitting}


def _fits(parameters: float, mflops: float, budget_mflops: float | None, budget_parameters: float | None) -> bool:
    light = budget_mflops is None or mflops <= budget_mflops
    return light and (budget_parameters is None or parameters <= budget_parameters)


def _image(signature: Signature) -> tuple[tuple[int, int] | None, str | None]:
    if len(signature.inputs) != 1 or len(signature.outputs) != 1:
        return None, "it has not just one input and one output"
    (taken,), (given,) = signature.inputs.values(), signature.outputs.values()
    shape = taken.shape or ()
    if len(shape) != 4 or shape[3] not in (1, 3) or not shape[1] or not shape[2]:
        return None, "it takes no image of a fixed size"
    if len(given.shape or ()) != 2 or "float" not in given.dtype:
        return None, "it gives no scores of classes"
    return (shape[1], shape[2]), None
