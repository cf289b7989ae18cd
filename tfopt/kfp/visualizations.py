"""What KFP's interface draws of an evaluation: a confusion matrix, and a ROC curve where there are two classes.

It draws one of each from an artifact's metadata, so each model that was judged gets an output of its own, beside the
declared one: ``evaluation_baseline``, ``evaluation_candidates_1``, … Needs no kfp.
"""

from collections.abc import Mapping
from typing import Any

from tfopt.artifacts import Evaluation, Model
from tfopt.component import Component


def drawn_outputs(component: Component, inputs: Mapping[str, list[str]]) -> dict[str, tuple[str, int]]:
    """The outputs that hold what is drawn: which output each is drawn from, and the model's place in its JSON.

    Args:
        component: The declaration.
        inputs: KFP's inputs of each input: several where it is a list, none where it was left out.
    """
    judged = [
        name for port in component.inputs.values() if issubclass(port.type, Model) for name in inputs.get(port.name, [])
    ]
    return {
        f"{port.name}_{model}": (port.name, place)
        for port in component.outputs.values()
        if issubclass(port.type, Evaluation)
        for place, model in enumerate(judged)
    }


def drawn(evaluation: Mapping[str, Any], place: int) -> dict[str, Any]:
    """The metadata of a ``system.ClassificationMetrics``, as kfp's ``dsl.ClassificationMetrics`` builds it.

    Args:
        evaluation: The content of ``evaluation.json``.
        place: Which of its models.
    """
    model = evaluation["models"][place]
    found: dict[str, Any] = {"model": model["name"]}
    if model["confusion"]:
        found["confusionMatrix"] = {
            "annotationSpecs": [{"displayName": name} for name in evaluation["classes"]],
            "rows": [{"row": row} for row in model["confusion"]],
        }
    if model["roc"]:
        found["confidenceMetrics"] = [
            {
                "confidenceThreshold": point["threshold"],
                "recall": point["true_positive_rate"],
                "falsePositiveRate": point["false_positive_rate"],
            }
            for point in model["roc"]
        ]
    return found
