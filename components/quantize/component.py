from tfopt.artifacts import Examples, KerasModel, PythonModule
from tfopt.component import Effect, Group, Input, Output, component
from tfopt.components.quantize.parameters import Settings
from tfopt.training.fine_tuning_inputs import check_fine_tuning_inputs


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
    *,
    settings: Group[Settings],
) -> None:
    """Fine-tune a model with simulated 8-bit weights and activations: quantization-aware training.

    During training the model rounds weights and activations as an 8-bit runtime does. Its ranges are stored in the
    model; `export_tflite` with precision int8 uses them as scales and needs no calibration. Use this component if
    calibration after training loses too much quality.

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
        settings: How the model is quantized and fine-tuned.

    Raises:
        ComponentError: If the model was quantized before, it is not a graph of layers, none of its layers has an 8-bit
            form, a name matches no layer, or the module, the examples and the model do not fit.

    Reference:
        ``docs/adr/0005-quantization-aware-training.md``; Jacob et al., "Quantization and Training of Neural Networks
        for Efficient Integer-Arithmetic-Only Inference", CVPR 2018.
    """
    check_fine_tuning_inputs(examples, module, verb="quantize", recover=settings.recover)
    from tfopt.components.quantize.quantize_aware import quantize_model  # more than a declaration needs

    quantized.metadata |= quantize_model(model, examples, module.path, quantized.path, settings)
