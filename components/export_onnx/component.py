from tfopt.artifacts import Examples, Model, OnnxModel, Sensitivities
from tfopt.component import Group, Input, Output, component
from tfopt.components.export_onnx.parameters import OnnxConversion
from tfopt.conversion.convert import check_conversion, check_limit, convert_in_child
from tfopt.errors import ComponentError


@component(image="tf", purpose="conversion", memory="8Gi", model_signature=True, on_failure=True, concurrent=True)
def export_onnx(
    model: Input[Model],
    exported: Output[OnnxModel],
    examples: Input[Examples] | None = None,
    sensitivities: Input[Sensitivities] | None = None,
    *,
    conversion: Group[OnnxConversion],
) -> None:
    """Convert a model to an ONNX file, run it and compare it with its parent.

    The file has the inputs and outputs of the signature, with their names, dtypes and open sizes.
    It is stored as ``Format-Serving/model.onnx``.

    Outputs in float32 match the parent's. float16 halves the file; CPUs compute most of it in float32, so that it is no
    precision of a mix. dynamic stores the weights of products, convolutions, LSTMs and lookups in 8 bits and needs no
    examples: each call computes the ranges of their inputs over its whole batch, so that a record with unusual values
    makes the answers to the others less exact. ONNX Runtime has an LSTM of 8 bits in this form only. int8 computes in 8
    bits where ONNX Runtime has such kernels, with a scale for each activation that is calibrated on the examples
    (pairs of QuantizeLinear and DequantizeLinear). For a model from `quantize`, int8 uses the trained ranges and
    levels, and needs no examples; the other precisions are rejected.

    With max_degradation, layers that 8 bits break get a higher precision, the worst ones first. auto begins with
    products of activations and stored matrices in int4, whose next precisions are int8 (static ranges), dynamic (8 bits
    with ranges that are found in each call) and float32; all other layers begin in int8. Weights in int4 are rounded
    so that the outputs of each product change least on the calibration records (GPTQ). The model card lists the layers
    under ``raised``, and the measured degradation with its interval under ``degradation``.

    In int8, operations before the first layers stay in float that need exact values (comparisons, casts to integers,
    lookups, rounding, phases) or scale columns, such as a normalization; the card lists them under ``float_part``.
    So do softmaxes whose values are below a quarter of their fixed 8-bit range, as the weights of an attention over
    many steps, masks of -1e4 or less and what replaces infinite values, up to the softmax or layer that follows, and
    activations and biases at the outputs, whose range would cut off rare values.

    A model with text, serialized records, or tables and hashes that the format lacks is converted from where these end;
    what is before stays a SavedModel in ``Format-Serving/Format-Preprocessing/``, and both run as one model
    (docs/tfx.md).

    Args:
        model: A SavedModel or a Keras model.
        exported: The ONNX file.
        examples: Real inputs, matched by input name. Required to calibrate int8. For the other precisions they replace
            random inputs in the comparison with the parent.
        sensitivities: The report of `measure_sensitivities` for this model. A search with max_degradation then ranks
            layers by it instead of by files of its own, and begins near the mix that it predicts.
        conversion: Format, calibration and comparison.

    Raises:
        ComponentError: If calibration data is missing or too little, if an op cannot be converted (the ops are
            named), or if the outputs of the file do not match its parent's outputs.
    """
    exported.metadata["name"] = f"onnx {conversion.precision}"
    trained = check_conversion(
        *(model, examples, conversion.precision, conversion, ("saved_model", "keras")),
        calibrated=("int8", "auto"),
        without_examples="dynamic",
    )
    check_limit(
        *(conversion.precision, conversion.max_degradation, ("int8", "auto")),
        trained=trained,
        sensitivities=sensitivities,
        minimize=conversion.minimize,
    )
    if trained and conversion.reduce_range == "on":
        received = f"reduce_range='on' for {model.name}, whose 8-bit ranges were trained"
        fix = "leave reduce_range out, or pass the model from before it was quantized"
        raise ComponentError(received, "kernels with as many levels as in training", fix)
    from tfopt.components.export_onnx.export import export  # imports NumPy

    convert_in_child(export, model, examples, exported, conversion, sensitivities)
