"""The part after training: every form of a model that may be better, measured against it, and one of them pushed."""

from tfopt.artifacts import Examples, SavedModel
from tfopt.component import Input
from tfopt.trace import Steps
from tfopt.model_store.last_run import Destination

# What is made of a model: a step's word, and the precision where it has several.
FORMATS = (
    *("folded", "tflite float32", "tflite dynamic", "tflite int8"),
    *("onnx float32", "onnx int8", "openvino float32", "openvino int8"),
)
MENU = ("folded", "optimized", "configured", "compiled", "tflite float16", *FORMATS[1:])


def optimize(
    steps: Steps,
    model: Input[SavedModel],
    examples: Input[Examples],
    *,
    label: str = "label",
    output: str | None = None,
    goals: list[str] = ["quality max_degradation 1%"],  # noqa: B006  (a default is read, never changed)
    objective: str = "latency",
    seconds: float = 6.0,
    batch_sizes: list[str] = ["1", "32"],  # noqa: B006  (a default is read, never changed)
    destination: Destination = "pushed",
    layout: str = "auto",
) -> None:
    """Make a trained model smaller and faster in every way there is for CPUs, prove it, and push the one that won.

    Args:
        steps: The components, of whichever engine runs this.
        model: A trained model, the parent every candidate is compared with.
        examples: Examples with the splits train (calibration) and eval, and test where there is one (measurement).
        label: The feature that holds the truth.
        output: Which output is judged, where the model has several.
        goals: What a candidate must satisfy, such as "accuracy max_degradation 0.5%"; quality is the main metric.
        objective: What the winner is best at among those that satisfy the goals.
        seconds: How long the speed of each model is measured.
        batch_sizes: Examples in a call whose speed is measured; "1-64" is 1, 2, 4 and so on up to 64.
        destination: The folder that receives numbered versions.
        layout: How a version lies there: as its format's usual server wants it (auto), or tf_serving, triton or plain.
    """
    candidates = make(steps, model, examples, MENU)
    asked = {"label": label, "output": output, "goals": goals, "objective": objective}
    timed = {"seconds": seconds, "batch_sizes": batch_sizes}
    prove(steps, model, candidates, examples, **asked, **timed, destination=destination, layout=layout)


def make(steps: Steps, model: object, examples: object, menu: tuple[str, ...]) -> list[object]:
    """Make candidates; one that cannot be made is a row of the report and does not end the run.

    Args:
        steps: The components.
        model: The parent.
        examples: To calibrate on and to compare with.
        menu: Any of `MENU`, and ``tensorrt`` with a precision.
    """
    given = {"examples": examples, "on_failure": "row"}
    made = {"folded": steps.fold_batch_norm(model=model, **given).outputs["folded"]}
    if {"optimized", "configured", "compiled"} & set(menu):
        made["optimized"] = steps.optimize_graph(model=made["folded"], **given).outputs["optimized"]
    for name in menu:
        kind, _, precision = name.partition(" ")
        if name == "configured":
            step = steps.configure_runtime(model=made["optimized"], on_failure="row")
        elif name == "compiled":
            step = steps.compile_xla(model=made["optimized"], batch_sizes=["1", "32"], **given)
        elif precision:
            word = f"convert_{kind}" if kind == "tensorrt" else f"export_{kind}"
            convert = getattr(steps, word)
            step = convert(id=f"{word}_{precision}", model=made["folded"], precision=precision, **given)
        else:
            continue
        (made[name],) = step.outputs.values()
    return [made[name] for name in menu]


def prove(
    steps: Steps,
    model: object,
    candidates: list[object],
    examples: object,
    *,
    label: object,
    output: object,
    goals: object,
    objective: object,
    seconds: object,
    batch_sizes: object,
    destination: object,
    layout: object,
    **kept: object,
) -> None:
    """Measure candidates against their parent, choose one, try it as its server would load it, and push it.

    One that cannot be served is not pushed; its parent is in its place.

    Args: as `optimize`, and ``trained`` and ``recipe``: what the next run may start from.
    """
    compared = {"baseline": model, "candidates": candidates, "examples": examples}
    evaluated = steps.evaluate(**compared, label=label, output=output)
    measured = steps.benchmark(**compared, seconds=seconds, batch_sizes=batch_sizes)
    chosen = steps.select_model(
        baseline=model,
        candidates=candidates,
        evaluation=evaluated.outputs["evaluation"],
        benchmark=measured.outputs["benchmark"],
        goals=goals,
        objective=objective,
        history=destination,
        layout=layout,
    )
    pushed = {"model": chosen.outputs["selected"], "fallback": model, "examples": examples}
    pushed |= {"destination": destination, "layout": layout}
    served = steps.validate_serving(**pushed)
    steps.push_model(
        blessing=chosen.outputs["blessing"],
        infra_blessing=served.outputs["infra_blessing"],
        decision=chosen.outputs["decision"],
        **pushed,
        **kept,
    )
