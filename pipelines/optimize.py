"""The part after training: fold, export, measure against the parent, choose one, push it."""

from tfopt.artifacts import Examples, SavedModel
from tfopt.component import Input
from tfopt.trace import Steps

PRECISIONS = ("float32", "dynamic", "int8")


def optimize(
    steps: Steps,
    model: Input[SavedModel],
    examples: Input[Examples],
    *,
    label: str = "label",
    goals: list[str] = ["quality max_degradation 1%"],  # noqa: B006  (a default is read, never changed)
    objective: str = "latency",
    destination: str = "pushed",
) -> None:
    """Make a trained model smaller and faster, prove it, and push the one that won.

    Args:
        steps: The components, of whichever engine runs this.
        model: A trained model, the parent every candidate is compared with.
        examples: Examples with the splits train (calibration) and eval (measurement).
        label: The feature that holds the truth.
        goals: What a candidate must satisfy, such as "accuracy max_degradation 0.5%"; quality is the main metric.
        objective: What the winner is best at among those that satisfy the goals.
        destination: The folder that receives numbered versions.
    """
    folded = steps.fold_batch_norm(model=model, examples=examples).outputs["folded"]
    exported = [
        steps.export_tflite(id=f"export_tflite_{precision}", model=folded, examples=examples, precision=precision)
        for precision in PRECISIONS
    ]
    candidates = [folded, *(step.outputs["exported"] for step in exported)]
    evaluated = steps.evaluate(baseline=model, candidates=candidates, examples=examples, label=label)
    measured = steps.benchmark(baseline=model, candidates=candidates, examples=examples)
    chosen = steps.select_model(
        baseline=model,
        candidates=candidates,
        evaluation=evaluated.outputs["evaluation"],
        benchmark=measured.outputs["benchmark"],
        goals=goals,
        objective=objective,
    )
    steps.push_model(model=chosen.outputs["selected"], blessing=chosen.outputs["blessing"], destination=destination)
