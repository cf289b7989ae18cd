"""The part after training: fold, export, measure against the parent, choose one, push it."""

from tfopt.artifacts import Examples, SavedModel
from tfopt.component import Input
from tfopt.trace import Steps

LITERT = ("float32", "dynamic", "int8")
ONNX = ("float32", "int8")
OPENVINO = ("float32", "int8")


def optimize(
    steps: Steps,
    model: Input[SavedModel],
    examples: Input[Examples],
    *,
    label: str = "label",
    goals: list[str] = ["quality max_degradation 1%"],  # noqa: B006  (a default is read, never changed)
    objective: str = "latency",
    seconds: float = 6.0,
    destination: str = "pushed",
    layout: str = "auto",
) -> None:
    """Make a trained model smaller and faster, prove it, and push the one that won.

    Args:
        steps: The components, of whichever engine runs this.
        model: A trained model, the parent every candidate is compared with.
        examples: Examples with the splits train (calibration) and eval, and test where there is one (measurement).
        label: The feature that holds the truth.
        goals: What a candidate must satisfy, such as "accuracy max_degradation 0.5%"; quality is the main metric.
        objective: What the winner is best at among those that satisfy the goals.
        seconds: How long the speed of each model is measured.
        destination: The folder that receives numbered versions.
        layout: How a version lies there: as its format's usual server wants it (auto), or tf_serving, triton or plain.
    """
    folded = steps.fold_batch_norm(model=model, examples=examples, on_failure="row").outputs["folded"]
    given = {"model": folded, "examples": examples, "on_failure": "row"}  # one that fails does not end the run
    exported = [
        *(steps.export_tflite(id=f"export_tflite_{kind}", precision=kind, **given) for kind in LITERT),
        *(steps.export_onnx(id=f"export_onnx_{kind}", precision=kind, **given) for kind in ONNX),
        *(steps.export_openvino(id=f"export_openvino_{kind}", precision=kind, **given) for kind in OPENVINO),
    ]
    candidates = [folded, *(step.outputs["exported"] for step in exported)]
    evaluated = steps.evaluate(baseline=model, candidates=candidates, examples=examples, label=label)
    measured = steps.benchmark(baseline=model, candidates=candidates, examples=examples, seconds=seconds)
    chosen = steps.select_model(
        baseline=model,
        candidates=candidates,
        evaluation=evaluated.outputs["evaluation"],
        benchmark=measured.outputs["benchmark"],
        goals=goals,
        objective=objective,
        history=destination,
    )
    steps.push_model(
        model=chosen.outputs["selected"],
        blessing=chosen.outputs["blessing"],
        decision=chosen.outputs["decision"],
        destination=destination,
        layout=layout,
    )
