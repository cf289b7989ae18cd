from typing import Annotated

from tfopt.artifacts import Examples, SavedModel
from tfopt.component import Between, Input, Output, component
from tfopt.processes.subprocess_call import run_in_child


@component(
    image="tf",
    purpose="graph",
    memory="8Gi",
    model_signature=True,
    on_failure=True,
    concurrent=True,
    not_after={
        "shared weights": "each channel gets a factor of its own, so channels would no longer share weights",
        "quantization": "the trained ranges fit the channels as they are",
    },
)
def equalize_ranges(
    model: Input[SavedModel],
    examples: Input[Examples],
    equalized: Output[SavedModel],
    *,
    calibration_count: Annotated[int, Between(2)] = 200,
    split: str = "train",
    seed: int = 0,
    tolerance: Annotated[float, Between(0, 1)] | None = None,
) -> None:
    """Equalize the ranges of channels before a quantization: the same outputs in float, less noise in 8 bits.

    An 8-bit tensor has one scale, so that channels with small values have few levels if another channel has large ones.
    Here the channels are divided by factors, and the weights that read them are multiplied by these. Channels are
    those that convolutions, dense layers, batch norms and layer norms produce; ReLU, pooling and sums with a residual
    may follow. ReLU6, swish, GELU and outputs of the model end a group of tensors that cannot be equalized.

    The factors are powers of two, so floats have the same digits as before. Those of a group of tensors are
    ``(largest value) ^ alpha / (largest weight) ^ (1 - alpha)`` for each channel. Of five values of alpha, the one is
    used for which the rounding of activations and weights adds least noise, as estimated for one scale for each
    activation and each output channel of the weights, and neither of them adds more than before. Groups without an
    estimated gain of a tenth stay as they are.

    The model card lists under ``report`` each group, the spread of its ranges and the estimated noise before and after,
    and why others stay. Batch norms and constants are folded first, unless no group gains: then the graph stays as it
    is. The result has no variables and no Keras form; run it before `export_tflite`, `export_onnx`, `export_openvino`
    or `quantize_graph`, and compare both files: the gain depends on the network (docs/benchmarks.md).

    Args:
        model: A SavedModel or a Keras model.
        examples: Real inputs to measure the ranges of channels on and to compare with, matched by input name.
        equalized: The same model with other weights, without variables.
        calibration_count: Number of examples to measure the ranges on, drawn evenly from the split.
        split: The split to measure the ranges on.
        seed: Seed for drawing the examples.
        tolerance: Fail if an output differs by more than this fraction of its range. The default is 0.0001, or 0.01 if
            the graph computes in float16, or 0.05 if it computes in bfloat16.

    Raises:
        ComponentError: If the model cannot be frozen, has no group of channels, or the outputs differ.

    Reference:
        Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction", ICCV 2019; Xiao et al.,
        "SmoothQuant", ICML 2023.
    """
    examples.split(split)
    from tfopt.components.equalize_ranges.equalize import equalize  # imports NumPy
    from tfopt.conversion.parameters import Calibration

    parameters = Calibration(calibration_count=calibration_count, split=split, seed=seed, tolerance=tolerance)
    equalized.metadata |= run_in_child(
        *(equalize, model, equalized.path, examples, parameters), doing="equalizing ranges"
    )
