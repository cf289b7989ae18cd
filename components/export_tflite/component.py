from tfopt.artifacts import Examples, Model, Sensitivities, TFLiteModel
from tfopt.component import Group, Input, Output, component
from tfopt.components.export_tflite.parameters import CALIBRATED, TFLiteConversion
from tfopt.conversion.convert import check_conversion, check_limit, convert_in_child
from tfopt.errors import ComponentError


@component(image="tf", purpose="conversion", memory="8Gi", model_signature=True, on_failure=True, concurrent=True)
def export_tflite(
    model: Input[Model],
    exported: Output[TFLiteModel],
    examples: Input[Examples] | None = None,
    sensitivities: Input[Sensitivities] | None = None,
    *,
    conversion: Group[TFLiteConversion],
) -> None:
    """Convert a model to a LiteRT (TFLite) file, run it and compare it with its parent.

    The file has the signature ``serving_default``, with its input and output names and an open batch size. It is
    stored as ``Format-Serving/tflite``, where TFX's own Evaluator finds it with the model type ``tf_lite``.

    Outputs in float32 match the parent's. float16 halves the file and changes outputs by about a thousandth. dynamic
    stores weights in 8 bits and needs no data; int4 stores them in 4 bits, those of tables of embeddings with a scale
    for each row, and auto each layer's in the fewest bits that keep the answers. With examples, 4-bit weights are
    rounded so that the outputs of each layer change least (GPTQ), where that degrades held-out records less than every
    way to choose scales; the model card reports it under ``weight_scales``. int8 computes in 8 bits, the fastest on
    most phones and on CPUs with VNNI. int16x8 has activations in 16 bits: the most exact of the integer precisions, and
    slow on CPUs. In int8, a dense layer has one scale instead of one for each of its channels if that saves 2 % of the
    file and changes the class of at most one record in 256; the model card reports this under ``dense_scales``.

    In int8 and int16x8, operations before the first layers stay in float that need exact values (comparisons, casts to
    integers, lookups, rounding, phases) or scale columns, such as a normalization; the model card lists them under
    ``float_part``. So do, in int8, softmax, sigmoid, tanh and unit norm, with what reads them, whose values are below a
    quarter of their fixed 8-bit range, as the weights of an attention over many steps. Masks of -1e4 or less, and what
    replaces infinite values, stay in float up to the softmax or layer that follows. Layer normalizations and others
    that divide by a deviation stay in float, too, as a variance has twice the bits of its values. In int8, operations
    with a fixed range at the outputs stay in float as well, where steps of 1/256 would make small probabilities zeros,
    unless the outputs are integers (integer_io). With integer_io, normalizations are integers, and models that need
    exact values of floats are refused; columns that are scaled are rounded, and listed under ``rounded``.

    LiteRT must know the sizes of the lists of a loop. A model with recurrent layers and an open batch size therefore
    becomes a file that takes one record a call, which the model card reports under ``batch_size``.

    A model with text, serialized records, or tables and hashes that the format lacks is converted from where these end;
    what is before stays a SavedModel in ``Format-Serving/Format-Preprocessing/``, and both run as one model
    (docs/tfx.md).

    Args:
        model: A SavedModel or a Keras model.
        exported: The LiteRT file.
        examples: Real inputs, matched by input name. Required to calibrate int8 and int16x8, unless `quantize` trained
            the ranges. For the other precisions they replace random inputs in the comparison with the parent.
        sensitivities: The report of `measure_sensitivities` for this model. A search with max_degradation then ranks
            layers by it instead of by files of its own, and begins near the mix that it predicts.
        conversion: Format, calibration and comparison.

    Raises:
        ComponentError: If calibration data is missing or too little, if an op cannot be converted (the ops are
            named), or if the outputs of the file do not match its parent's outputs.
    """
    exported.metadata["name"] = f"tflite {conversion.precision}" + (" integer io" if conversion.integer_io else "")
    _check(model, examples, sensitivities, conversion)
    from tfopt.components.export_tflite.export import export  # imports NumPy

    convert_in_child(export, model, examples, exported, conversion, sensitivities)


def _check(
    model: Model, examples: Examples | None, sensitivities: Sensitivities | None, parameters: TFLiteConversion
) -> None:
    parameters.rules()
    precision = parameters.precision
    trained = check_conversion(
        *(model, examples, precision, parameters, ("saved_model", "keras")),
        calibrated=CALIBRATED if precision != "auto" or parameters.activation_bits is None else (*CALIBRATED, "auto"),
        without_examples="dynamic",
    )
    if parameters.integer_io and precision not in CALIBRATED:
        fix = "leave integer_io out: the other precisions compute in floats"
        raise ComponentError(f"integer_io with precision={precision!r}", f"precision {' or '.join(CALIBRATED)}", fix)
    if parameters.sparse and (precision in ("int4", "auto") or parameters.recipe):
        received = f"sparse with precision={precision!r}" + (" and a recipe" if parameters.recipe else "")
        fix = "leave sparse out: such layers are quantized one by one, and stored densely"
        raise ComponentError(received, "precision float32 or float16", fix)
    if parameters.recipe and trained:
        fix = "leave recipe out, or name in quantize the layers to leave in float32"
        raise ComponentError("a recipe for a model whose 8-bit ranges were trained", "a model before quantize", fix)
    limit, minimize = parameters.max_degradation, parameters.minimize
    check_limit(precision, limit, (precision,), sensitivities=sensitivities, minimize=minimize)
    if parameters.max_degradation is not None and examples is None:
        received = f"max_degradation={parameters.max_degradation} without examples"
        raise ComponentError(received, "examples to measure it on", "pass examples=PATH")
