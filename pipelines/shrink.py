"""A trained model made smaller in every way, alone and combined: measured against each other, and one chosen."""

from tfopt.artifacts import Examples, KerasModel, PythonModule
from tfopt.component import Input
from tfopt.trace import Steps


def shrink(
    steps: Steps,
    model: Input[KerasModel],
    examples: Input[Examples],
    module: Input[PythonModule],
    *,
    label: str = "label",
    sparsity: float = 0.8,
    channels: float = 0.5,
    clusters: int = 32,
    epochs: int = 10,
    goals: list[str] = ["quality max_degradation 1%"],  # noqa: B006  (a default is read, never changed)
    objective: str = "latency",
    destination: str = "pushed",
) -> None:
    """Prune, cluster and quantize a trained model, alone and combined, prove it, and push the one that won.

    Args:
        steps: The components, of whichever engine runs this.
        model: A trained Keras model, the parent every candidate is compared with.
        examples: Examples with the splits train (fine-tuning, calibration) and eval (measurement).
        module: The Python file with build_model() that the model was trained with.
        label: The feature that holds the truth.
        sparsity: The part of each kernel that becomes zero.
        channels: The part of the FLOPs that goes when channels are removed.
        clusters: How many values the weights of a layer share.
        epochs: The passes over the data of each fine-tuning.
        goals: What a candidate must satisfy, such as "accuracy max_degradation 0.5%"; quality is the main metric.
        objective: What the winner is best at among those that satisfy the goals.
        destination: The folder that receives numbered versions.
    """
    data = {"examples": examples, "label": label}
    tuned = {**data, "module": module, "epochs": epochs}
    zeros = steps.prune(id="prune_weights", model=model, sparsity=sparsity, **tuned).outputs["pruned"]
    slim = steps.prune(id="prune_channels", model=model, pattern="channel", sparsity=channels, **tuned).outputs[
        "pruned"
    ]
    shared = steps.cluster(id="cluster", model=model, clusters=clusters, **tuned).outputs["clustered"]
    both = steps.cluster(id="cluster_pruned", model=zeros, clusters=clusters, **tuned).outputs["clustered"]
    floats = {"trained": model, "pruned": zeros, "slim": slim, "clustered": shared, "pruned_clustered": both}
    exported = [
        steps.export_tflite(id=f"export_{name}_{precision}", model=given, examples=examples, precision=precision)
        for name, given in floats.items()
        for precision in ("float32", "int8")
    ]
    for name, given in floats.items():
        aware = steps.quantize(id=f"quantize_{name}", model=given, **tuned).outputs["quantized"]
        exported.append(
            steps.export_tflite(id=f"export_{name}_aware", model=aware, examples=examples, precision="int8")
        )
    candidates = [slim, *(step.outputs["exported"] for step in exported)]
    evaluated = steps.evaluate(baseline=model, candidates=candidates, **data)
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
