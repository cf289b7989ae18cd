"""Advice: the next commands for a model, those first that the measurements of this project suggest gain most.

Each reason contains what the inspection measured on this model. Gains are those of ``docs/benchmarks.md``, section
*Shrinking*, on the machine that it names: no gain is predicted for the inspected model. Costs of lighter backbones come
from `tfopt.keras_models.backbones`; their accuracy and speed are unknown, and `compare_backbones` measures them.
"""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from tfopt.artifacts import Model
from tfopt.formatting import count, data_size
from tfopt.graph.frozen_model import Signature
from tfopt.keras_models.backbones import COSTS, COUNTED_SIDE
from tfopt.reports.inspection_report import Advice, CostBudget, InspectionReport, LighterBackbone, LighterBackbones

MOSTLY = 0.9  # share of the work with integer kernels from which a conversion to int8 is the first advice
SOME = 0.5  # share below which it is not advised
FEW_PARAMETERS = 100_000  # below, int8 was measured to be no faster
SPARSE = 0.5  # share of zeros from which sparse storage is advised


@dataclass(frozen=True)
class MeasuredRange:
    """Lowest and highest result of a technique in ``docs/benchmarks.md``, over all networks there."""

    technique: str
    low: float
    high: float

    def __str__(self) -> str:
        """Return the range as text."""
        return f"{self.low:g}x to {self.high:g}x"


INT8_SPEED = MeasuredRange("int8", 1.29, 4.16)  # of LiteRT, for networks with more than `FEW_PARAMETERS`
SLIM_SPEED = MeasuredRange("half the FLOPs", 1.25, 1.95)  # of LiteRT
DYNAMIC_SIZE = MeasuredRange("dynamic", 2.88, 3.78)  # gzipped
SPARSE_SIZE = MeasuredRange("80% zeros, sparse file", 3.16, 4.08)  # gzipped
SOURCE = "at one example in a call (docs/benchmarks.md)"


def advise(report: InspectionReport, model: Model) -> list[Advice]:
    """Return the next commands, those with the largest expected gain first."""
    ranked = sorted(_applicable(report, model), key=lambda pair: -pair[0])  # stable: equal ranks as they are listed
    return [advice for _, advice in ranked]


def _applicable(report: InspectionReport, model: Model) -> Iterator[tuple[float, Advice]]:
    """Yield each applicable command with its rank: the largest measured gain of the share of the work it applies to."""
    covered = report.quantizable.flops or 0.0
    if covered >= SOME and report.parameters.count >= FEW_PARAMETERS:
        if report.loops:
            yield 1.005, _int8_loops(report, model)  # after what has a measured gain
        else:
            yield _speedup(covered, INT8_SPEED.high), _int8(report, model, covered)
    prunable = report.flops.prunable / max(report.flops.total, 1)
    if model.keras and prunable >= SOME:
        yield _speedup(prunable, SLIM_SPEED.high), _fewer_channels(model, prunable)
    if report.backbones.task and report.backbones.fitting:
        yield 1.03, _lighter_backbone(report)  # after what keeps the network: it needs a new training
    if report.sparsity.fraction >= SPARSE:
        gain = f"a sparse file with 80% zeros was measured to be {SPARSE_SIZE} smaller, gzipped, and no faster {SOURCE}"
        command = _command("export_tflite", model, exported="sparse", sparse=None)
        yield 1.02, Advice(command, f"{report.sparsity.fraction:.0%} of the weights are zero; {gain}.")
    if report.batch_norms.foldable:
        norms = report.batch_norms
        why = f"{norms.foldable} of {norms.found} batch norms can be folded into kernels: less work, the same outputs."
        yield 1.01, Advice(_command("fold_batch_norm", model, folded="folded"), f"{why} Exporters convert the result.")
    if report.parameters.count:
        gain = f"8-bit weights were measured to make the file {DYNAMIC_SIZE} smaller, gzipped (docs/benchmarks.md)"
        why = (
            f"Weights of {data_size(report.parameters.bytes)}; {gain}. Needs no data; the speed depends on the network."
        )
        yield 1.0, Advice(_command("export_tflite", model, exported="dynamic", precision="dynamic"), why)


def _speedup(share: float, ratio: float) -> float:
    """Return the speedup of the whole if a share of the work becomes faster by a ratio (Amdahl's law)."""
    return 1 / (1 - share + share / ratio)


def _int8(report: InspectionReport, model: Model, covered: float) -> Advice:
    work = f"{covered:.0%} of the work has integer kernels"
    if covered < MOSTLY and report.quantizable.left_out:
        work += f", not {', '.join(list(report.quantizable.left_out)[:5])}"
    gain = f"LiteRT in int8 was measured to be {INT8_SPEED} as fast as in float32 {SOURCE}"
    command = _command("export_tflite", model, examples="EXAMPLES", exported="int8", precision="int8")
    return Advice(command, f"{work}; {gain}. Needs examples, no retraining.")


def _int8_loops(report: InspectionReport, model: Model) -> Advice:
    share = f"{report.flops.in_loops / max(report.flops.total, 1):.0%} of the work is in loops"
    why = f"{share}, which LiteRT does not convert to integers, and OpenVINO does; no gain was measured."
    command = _command("export_openvino", model, examples="EXAMPLES", exported="int8", precision="int8")
    return Advice(command, f"{why} Needs examples, no retraining.")


def _fewer_channels(model: Model, prunable: float) -> Advice:
    gain = f"half of the FLOPs was measured to be {SLIM_SPEED} as fast in LiteRT {SOURCE}"
    files = {"examples": "EXAMPLES", "module": "MODULE", "pruned": "slim"}
    half = {"pattern": "channel", "measure": "flops", "sparsity": "0.5"}
    command = _command("prune", model, **files, label="LABEL", **half)
    where = "" if prunable >= MOSTLY else f" {prunable:.0%} of the work is in layers with channels to remove."
    return Advice(command, f"The Keras form can be fine-tuned; {gain}.{where} Needs examples and a fine-tuning.")


def _lighter_backbone(report: InspectionReport) -> Advice:
    heaviest, lightest = report.backbones.fitting[0], report.backbones.fitting[-1]
    mflops = f"{lightest.mflops:.0f} to {heaviest.mflops:.0f} million FLOP"
    why = (
        f"{len(report.backbones.fitting)} backbones need less: {mflops}, this model {count(report.flops.total)}FLOP. "
        "Accuracy and speed on your task are unknown until they are measured. Needs a new training."
    )
    command = "tfopt compare_backbones --examples EXAMPLES --label LABEL --comparison comparison --chosen backbone"
    return Advice(command, why)


def _command(component: str, model: Model, **arguments: str | None) -> str:
    """Return a command for the shell; words in capitals are to be replaced."""
    words = ["tfopt", component, "--model", model.uri]
    for name, value in arguments.items():
        words += [f"--{name.replace('_', '-')}", *([value] if value is not None else [])]
    return shlex.join(words)


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
