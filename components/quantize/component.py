import logging

from tfopt.artifacts import Examples, KerasModel, Model, PythonModule, Sensitivities
from tfopt.component import Effect, Group, Input, Output, component
from tfopt.components.quantize.parameters import Settings
from tfopt.errors import ComponentError
from tfopt.training.fine_tuning_inputs import check_fine_tuning_inputs, check_teacher


@component(
    image="tf",
    purpose="fine_tuning",
    tolerance=None,
    model_signature=True,
    effect=Effect("quantization"),
    not_after={"quantization": "quantizing twice only adds rounding errors"},
)
def quantize(
    model: Input[KerasModel],
    examples: Input[Examples],
    module: Input[PythonModule],
    quantized: Output[KerasModel],
    sensitivities: Input[Sensitivities] | None = None,
    teacher: Input[Model] | None = None,
    *,
    settings: Group[Settings],
) -> None:
    """Fine-tune a model with simulated 8-bit activations and weights in 8 or 4 bits: quantization-aware training.

    During training the model rounds weights and activations as an integer runtime does. Its ranges are stored in the
    model; `export_tflite` with precision int8 uses them as scales and needs no calibration. Use this component if
    calibration after training loses too much quality.

    Layers can have weights in 4 bits: those that the ``recipe`` names, or with the report of `measure_sensitivities`
    those that lose least, for a mean number of ``weight_bits``. The LiteRT file stores them in 4 bits, and so does an
    ONNX file of the default opset. Keras 3 models only.

    The float model is the teacher: the loss is computed from the labels and from its outputs (docs/training.md). A
    model with a loss that has no form for a teacher is trained on the labels alone.

    The module is the one that the model was trained with; its loss, optimizer and metrics are used. Keras 3 models are
    trained with layers of tfopt, Keras 2 models with TensorFlow's Model Optimization Toolkit. Sequential, Functional
    and nested Keras 3 models are supported; Keras 2 models must not be nested. Layers without an 8-bit form here stay
    in floats; the model card lists them with the reason under ``report``. Zeros from `prune` stay zeros, and weights
    shared by `cluster` stay shared, also in the 8-bit file.

    Args:
        model: A trained Keras model; it may be folded, pruned or clustered.
        examples: With the split ``train``, to train on, and ``eval``.
        module: The Python file with ``build_model`` that the model was trained with.
        quantized: The model with its ranges: its Keras form and its SavedModel, which compute in floats what the 8-bit
            file computes in integers.
        sensitivities: The report of `measure_sensitivities` for this model, required by weight_bits below 8.
        teacher: Another model to learn from, in any format that takes features of the examples. By default it is the
            model itself, in floats.
        settings: How the model is quantized and fine-tuned.

    Raises:
        ComponentError: If the model was quantized before, it is not a graph of layers, none of its layers has an 8-bit
            form, a name matches no layer, weight_bits cannot be reached, or the module, the examples and the model do
            not fit.

    Reference:
        ``docs/adr/0005-quantization-aware-training.md``, ``docs/adr/0095-training-in-mixed-bits.md``; Jacob et al.,
        "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference", CVPR 2018; Esser
        et al., "Learned Step Size Quantization", ICLR 2020.
    """
    check_fine_tuning_inputs(examples, module, verb="quantize", recover=settings.recover)
    if settings.weight_bits < 8 and sensitivities is None:
        received = f"weight_bits={settings.weight_bits:g} without sensitivities"
        fix = "pass those of tfopt measure_sensitivities, or name the layers: recipe=['NAME=int4']"
        raise ComponentError(received, "the report that chooses the layers with 4 bits", fix)
    if settings.weight_bits == 8 and sensitivities is not None:
        logging.getLogger(__name__).warning("weight_bits is 8: the sensitivities are not used")
        sensitivities = None
    check_teacher(teacher, settings, module)
    from tfopt.components.quantize.quantize_aware import quantize_model  # more than a declaration needs
    from tfopt.conversion.mixes.sensitivity_table import SensitivityTable

    table = SensitivityTable(sensitivities.load()) if sensitivities else None
    quantized.metadata |= quantize_model(model, examples, module.path, quantized.path, settings, table, teacher)
