"""The door of `quantize`: what it promises, and what it refuses in the first second."""

from typing import Annotated

from tfopt.artifacts import Examples, KerasModel, PythonModule
from tfopt.artifacts.lineage import check_order
from tfopt.component import Between, Input, Output, Reads, component
from tfopt.measurement.goals import read_goals


@component(image="tf")
def quantize(
    model: Input[KerasModel],
    examples: Input[Examples],
    module: Input[PythonModule],
    quantized: Output[KerasModel],
    *,
    keep_float: list[str] = [],  # noqa: B006  (a default is read, never changed)
    keep_zeros: bool = True,
    keep_clusters: bool = True,
    label: str = "label",
    epochs: Annotated[int, Between(1, None)] = 5,
    recover: Annotated[int, Between(0, None)] = 0,
    goals: Annotated[list[str], Reads(read_goals, ("quality max_degradation 1%",))] = ["quality max_degradation 1%"],  # noqa: B006  (a declared default, never changed)
    batch_size: Annotated[int, Between(1, None)] = 64,
    learning_rate: Annotated[float, Between(0, None)] | None = 1e-4,
    calibration_count: Annotated[int, Between(2, None)] = 512,
    seed: int = 0,
) -> None:
    """Train a model to answer well with 8-bit weights and activations: quantization-aware training.

    While it learns, the model computes with weights and activations rounded as an 8-bit runtime rounds them. Its ranges
    are stored in the model, and `export_tflite` with precision int8 takes its scales from there and needs no
    calibration. Where calibration after training loses too much, this is the way to an 8-bit file.

    The module is the one the model was trained with, and gives the loss, the optimizer and the metrics. Keras 3 models
    learn with tfopt's own layers, Keras 2 models with TensorFlow's Model Optimization Toolkit. Sequential, Functional
    and nested Keras 3 models are taken, those of Keras 2 without nesting. Layers that have no 8-bit form here stay in
    floats, and the model card says under ``report`` which and why. Zeros left by `prune` stay zeros, and weights shared
    by `cluster` stay shared, in the 8-bit file too.

    Args:
        model: A trained Keras model; folded, pruned or clustered before, if wanted.
        examples: With the splits ``train``, which is learnt, and ``eval``.
        module: The Python file with ``build_model`` that the model was trained with.
        quantized: The model with its ranges: its Keras form and its SavedModel, which compute in floats what the 8-bit
            file will compute in integers.
        keep_float: Names of layers to leave in floats.
        keep_zeros: Keep the zeros of pruned kernels.
        keep_clusters: Keep weights together that share a value.
        label: The feature to learn.
        epochs: Go at most so many times over the split.
        recover: Epochs of a second round, for a model that misses a goal on examples of ``train`` held out of both.
        goals: What it must meet there, such as "accuracy max_degradation 0.5%"; quality is the module's first metric.
        batch_size: How many examples a step learns from.
        learning_rate: In place of that of the module's optimizer, whose schedule may have brought it to nothing.
        calibration_count: How many examples of ``train`` set the ranges before learning starts.
        seed: Draws the order of the examples.

    Raises:
        ComponentError: When the model was quantized before, it is no graph of layers, none of its layers has an 8-bit
            form, a name fits no layer, or the module, the examples and the model do not fit.

    Reference:
        ``docs/adr/0005-quantization-aware-training.md``; Jacob et al., "Quantization and Training of Neural Networks
        for Efficient Integer-Arithmetic-Only Inference", CVPR 2018.
    """
    check_order(model, "quantize")
    from tfopt.training.fine_tuning_inputs import check_fine_tuning_inputs

    check_fine_tuning_inputs(examples, module, verb="quantize", recover=recover)
    from tfopt.components.quantize.quantize_aware import Request, quantize_model
    from tfopt.training.second_round import Recovery

    request = Request(
        keep_float=keep_float,
        keep_zeros=keep_zeros,
        keep_clusters=keep_clusters,
        calibration_count=calibration_count,
        label=label,
        epochs=epochs,
        recovery=Recovery(recover, goals),
        batch_size=batch_size,
        learning_rate=learning_rate,
        seed=seed,
    )
    quantized.metadata |= quantize_model(model, examples, module.path, quantized.path, request)
