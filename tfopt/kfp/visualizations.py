"""Confusion matrix and, for two classes, ROC curve of an evaluation, in the form that KFP's interface draws.

The interface draws one of each from an artifact's metadata, so each evaluated model gets an additional output:
``evaluation_baseline``, ``evaluation_candidates_1``, … Needs no kfp.
"""

from collections.abc import Mapping

from tfopt.artifacts import Evaluation, Model
from tfopt.component import Component
from tfopt.reports.evaluation_report import EvaluationReport


def classification_outputs(component: Component, inputs: Mapping[str, list[str]]) -> dict[str, tuple[str, int]]:
    """Return the additional outputs, each with the output it is computed from and the model's index in its JSON.

    The KFP inputs of a declared input are several for a list, and none for an optional one that is not set.
    """
    models = [
        name for port in component.inputs.values() if issubclass(port.type, Model) for name in inputs.get(port.name, [])
    ]
    return {
        f"{port.name}_{model}": (port.name, index)
        for port in component.outputs.values()
        if issubclass(port.type, Evaluation)
        for index, model in enumerate(models)
    }


def classification_metrics(evaluation: EvaluationReport, index: int) -> dict[str, object]:
    """Return the metadata of a ``system.ClassificationMetrics``, as kfp's ``dsl.ClassificationMetrics`` builds it."""
    model = evaluation.models[index]
    metadata: dict[str, object] = {"model": model.name}
    if model.confusion:
        metadata["confusionMatrix"] = {
            "annotationSpecs": [{"displayName": name} for name in evaluation.classes],
            "rows": [{"row": row} for row in model.confusion],
        }
    if model.roc:
        metadata["confidenceMetrics"] = [
            {
                "confidenceThreshold": point.threshold,
                "recall": point.true_positive_rate,
                "falsePositiveRate": point.false_positive_rate,
            }
            for point in model.roc
        ]
    return metadata
