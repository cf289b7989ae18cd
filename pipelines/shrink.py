"""Make a trained model smaller by pruning, clustering and quantization, alone and combined, and select the best."""

from dataclasses import dataclass
from typing import Any

from tfopt.artifacts import Examples, Files, KerasModel, Model, PythonModule
from tfopt.component import Group, Input
from tfopt.pipelines.optimize import Replaying, Selection, replay_inputs, select_and_push
from tfopt.trace import Inherited, Steps

LITERT = ("tflite float32", "tflite int8", "aware tflite int8")
ONNX = ("onnx float32", "onnx int8")
SLIM = ("saved_model", *LITERT, *ONNX, "onnx dynamic", "openvino int8")
# The exports of each variant. Zero and shared weights make no runtime faster: for these variants the file size counts.
EXPORTS = {
    "trained": (*LITERT, *ONNX),
    "pruned": LITERT,
    "slim": SLIM,
    "taught": SLIM,  # with a teacher
    "clustered": LITERT,
    "pruned_clustered": LITERT,
}


@dataclass(frozen=True)
class Shrinking:
    """Parameters of pruning, clustering and the fine-tuning after them.

    Attributes:
        sparsity: The fraction of each kernel that becomes zero.
        channels: The fraction of the FLOPs that is removed with channels.
        clusters: The number of values that the weights of a layer share.
        epochs: Passes over the data of each fine-tuning.
    """

    recover: Inherited
    sparsity: Inherited = 0.8
    channels: Inherited = 0.5
    clusters: Inherited = 32
    epochs: Inherited = 10


def shrink(
    steps: Steps,
    model: Input[KerasModel],
    examples: Input[Examples],
    module: Input[PythonModule],
    recording: Input[Files] | None = None,
    teacher: Input[Model] | None = None,
    *,
    shrinking: Group[Shrinking],
    selection: Group[Selection],
    replaying: Group[Replaying],
) -> dict[str, object]:
    """Prune, cluster and quantize a trained model, alone and combined, measure every candidate, push the selected one.

    Args:
        steps: Adds the steps.
        model: A trained Keras model: the baseline that every candidate is compared with.
        examples: Examples with the splits train (fine-tuning, calibration) and eval, and test if there is one
            (measurement).
        module: The Python file with build_model() that the model was trained with, and optionally metrics.
        recording: Requests to the served version, which the selected model must answer as well before it is pushed.
        teacher: A model, for example ``model`` itself. If there is one, channels are removed a second time, and what
            remains learns from its outputs, too. Which of both is better depends on the network (docs/training.md).
        shrinking: Parameters of pruning, clustering and the fine-tuning after them.
        selection: Parameters of the measurement, the selection and the push.
        replaying: Parameters of the replay of the recording.
    """
    fine_tuning = {
        "examples": examples,
        "label": selection.label,
        "module": module,
        "epochs": shrinking.epochs,
        "recover": shrinking.recover,
        "goals": selection.goals,
    }
    variants = {"trained": model}

    def variant(name: str) -> Any:
        if name not in variants:
            variants[name] = make(name)
        return variants[name]

    def make(name: str) -> Any:
        if name == "pruned":
            step = steps.prune(id="prune_weights", model=model, sparsity=shrinking.sparsity, **fine_tuning)
            return step.outputs["pruned"]
        if name in ("slim", "taught"):
            options = {"pattern": "channel", "sparsity": shrinking.channels, **fine_tuning}
            return _remove_channels(steps, model, teacher if name == "taught" else None, **options)
        # Batch norms are folded before clustering: an exporter that folds them would give each channel its own values.
        parent = "pruned" if name == "pruned_clustered" else "trained"
        step = steps.fold_batch_norm(id=f"fold_{parent}", model=variant(parent), examples=examples)
        folded = step.outputs["folded"]
        step = steps.cluster(id=f"cluster_{parent}", model=folded, clusters=shrinking.clusters, **fine_tuning)
        return step.outputs["clustered"]

    def export(name: str, kind: str) -> Any:
        exported = variant(name)
        if kind == "saved_model":
            return exported
        *aware, runtime, precision = kind.split()
        if aware:
            exported = steps.quantize(id=f"quantize_{name}", model=exported, **fine_tuning).outputs["quantized"]
        options = {"model": exported, "examples": examples, "precision": precision, "on_failure": "row"}
        step = getattr(steps, f"export_{runtime}")(id="_".join(["export", name, *kind.split()]), **options)
        return step.outputs["exported"]

    candidates = [export(name, kind) for name, kinds in EXPORTS.items() for kind in kinds]
    replay = replay_inputs(recording, replaying)
    return select_and_push(steps, model, candidates, examples, selection, module=module, replay=replay)


def _remove_channels(steps: Steps, model: Any, teacher: Any, **options: Any) -> Any:
    """Add a step that removes channels; one with a teacher is left out of runs without that input."""
    id = "prune_channels"
    if teacher is not None:
        id = f"{id}_with_teacher"
        options |= {"teacher": teacher, "requires": ["teacher"]}
    return steps.prune(id=id, model=model, **options).outputs["pruned"]
