"""A trained model made smaller in every way, alone and combined: measured against each other, and one chosen."""

from tfopt.artifacts import Examples, KerasModel, PythonModule
from tfopt.component import Input
from tfopt.trace import Steps
from tfopt.model_store.last_run import Destination
from tfopt.pipelines.optimize import prove

LITERT = ("tflite float32", "tflite int8", "aware tflite int8")
ONNX = ("onnx float32", "onnx int8")
# What is measured of each variant. Zeros and shared weights make nothing faster: of these the size of the file counts.
EXPORTS = {
    "trained": (*LITERT, *ONNX),
    "pruned": LITERT,
    "slim": ("saved_model", *LITERT, *ONNX),
    "clustered": LITERT,
    "pruned_clustered": LITERT,
}


def shrink(
    steps: Steps,
    model: Input[KerasModel],
    examples: Input[Examples],
    module: Input[PythonModule],
    *,
    label: str = "label",
    output: str | None = None,
    sparsity: float = 0.8,
    channels: float = 0.5,
    clusters: int = 32,
    epochs: int = 10,
    recover: int = 0,
    goals: list[str] = ["quality max_degradation 1%"],  # noqa: B006  (a default is read, never changed)
    objective: str = "latency",
    seconds: float = 6.0,
    batch_sizes: list[str] = ["1", "32"],  # noqa: B006  (a default is read, never changed)
    destination: Destination = "pushed",
    layout: str = "auto",
) -> None:
    """Prune, cluster and quantize a trained model, alone and combined, prove it, and push the one that won.

    Args:
        steps: The components, of whichever engine runs this.
        model: A trained Keras model, the parent every candidate is compared with.
        examples: With the splits train (fine-tuning, calibration) and eval, and test where there is one (measurement).
        module: The Python file with build_model() that the model was trained with.
        label: The feature that holds the truth.
        output: Which output is judged, where the model has several.
        sparsity: The part of each kernel that becomes zero.
        channels: The part of the FLOPs that goes when channels are removed.
        clusters: How many values the weights of a layer share.
        epochs: The passes over the data of each fine-tuning.
        recover: The passes of one more round, for a model that misses a goal on examples held out of its fine-tuning.
        goals: What a candidate must satisfy, such as "accuracy max_degradation 0.5%"; quality is the main metric.
        objective: What the winner is best at among those that satisfy the goals.
        seconds: How long the speed of each model is measured.
        batch_sizes: Examples in a call whose speed is measured; "1-64" is 1, 2, 4 and so on up to 64.
        destination: The folder that receives numbered versions.
        layout: How a version lies there: as its format's usual server wants it (auto), or tf_serving, triton or plain.
    """
    data = {"examples": examples, "label": label}
    tuned = {**data, "module": module, "epochs": epochs, "recover": recover, "goals": goals}

    made: dict[str, object] = {"trained": model}

    def variant(name: str) -> object:
        if name not in made:
            made[name] = make(name)
        return made[name]

    def make(name: str) -> object:
        if name == "pruned":
            return steps.prune(id="prune_weights", model=model, sparsity=sparsity, **tuned).outputs["pruned"]
        if name == "slim":
            step = steps.prune(id="prune_channels", model=model, pattern="channel", sparsity=channels, **tuned)
            return step.outputs["pruned"]
        # Folded before values are shared: an exporter that folds would give each channel values of its own.
        parent = "pruned" if name == "pruned_clustered" else "trained"
        step = steps.fold_batch_norm(id=f"fold_{parent}", model=variant(parent), examples=examples)
        step = steps.cluster(id=f"cluster_{parent}", model=step.outputs["folded"], clusters=clusters, **tuned)
        return step.outputs["clustered"]

    def exported(name: str, kind: str) -> object:
        given = variant(name)
        if kind == "saved_model":
            return given
        *aware, runtime, precision = kind.split()
        if aware:
            given = steps.quantize(id=f"quantize_{name}", model=given, **tuned).outputs["quantized"]
        export = steps.export_onnx if runtime == "onnx" else steps.export_tflite
        wires = {"model": given, "examples": examples, "precision": precision, "on_failure": "row"}
        return export(id="_".join(["export", name, *kind.split()]), **wires).outputs["exported"]

    candidates = [exported(name, kind) for name, kinds in EXPORTS.items() for kind in kinds]
    asked = {"label": label, "output": output, "goals": goals, "objective": objective}
    timed = {"seconds": seconds, "batch_sizes": batch_sizes}
    prove(steps, model, candidates, examples, **asked, **timed, destination=destination, layout=layout)
