from tfopt.artifacts import Examples, Model, OpenVINOModel, Sensitivities
from tfopt.component import Group, Input, Output, component
from tfopt.components.export_openvino.parameters import OpenVINOConversion
from tfopt.conversion.convert import check_conversion, check_limit, convert_in_child
from tfopt.errors import ComponentError


@component(image="tf", purpose="conversion", memory="8Gi", model_signature=True, on_failure=True, concurrent=True)
def export_openvino(
    model: Input[Model],
    exported: Output[OpenVINOModel],
    examples: Input[Examples] | None = None,
    sensitivities: Input[Sensitivities] | None = None,
    *,
    conversion: Group[OpenVINOConversion],
) -> None:
    """Convert a model to OpenVINO files, run them and compare them with their parent.

    The files have the inputs and outputs of the signature, with their names, dtypes and open sizes. They are stored in
    ``Format-Serving/`` as ``model.xml`` and ``model.bin``, where OpenVINO's servers and tools find them.

    Outputs in float32 match the parent's. float16 halves the files; CPUs compute it in float32. int8 computes in
    8 bits where OpenVINO has such kernels, with ranges that NNCF calibrates on the examples or that `quantize` trained.
    Everything else is computed in float32; OpenVINO's default is bfloat16 on CPUs that support it.

    auto is the smallest mix of precisions that meets max_degradation, or with minimize=latency the fastest one. A layer
    may have its weights in 4 bits (products and lookups, a scale for 64 or 32 weights), weights and activations in
    8 bits, or only its weights in 8 or 16 bits; these compute in float32. The model card lists the layers under
    ``raised``, and the measured degradation with its interval under ``degradation``.

    In int8, operations before the first layers stay in float that need exact values (comparisons, casts to integers,
    lookups, rounding, phases) or scale columns, such as a normalization; the card lists them under ``float_part``.

    A model with text, serialized records, or tables and hashes that the format lacks is converted from where these end;
    what is before stays a SavedModel in ``Format-Serving/Format-Preprocessing/``, and both run as one model
    (docs/tfx.md).

    Args:
        model: A SavedModel, a Keras or an ONNX model.
        exported: The OpenVINO files.
        examples: Real inputs, matched by input name. Required to calibrate int8 and auto, unless `quantize` trained
            the ranges. For the other precisions they replace random inputs in the comparison with the parent.
        sensitivities: The report of `measure_sensitivities` for this model. The search of auto then ranks layers by it
            instead of by files of its own, and begins near the mix that it predicts.
        conversion: Format, calibration and comparison.

    Raises:
        ComponentError: If calibration data is missing or too little, if an op cannot be converted (the ops are
            named), or if the outputs of the files do not match their parent's outputs.
    """
    exported.metadata["name"] = f"openvino {conversion.precision}"
    precision = conversion.precision
    trained = check_conversion(
        *(model, examples, precision, conversion, ("saved_model", "keras", "onnx")),
        calibrated=("int8", "auto"),
        without_examples="float16",
    )
    check_limit(
        *(precision, conversion.max_degradation, ("int8", "auto")),
        trained=trained,
        sensitivities=sensitivities,
        minimize=conversion.minimize,
    )
    if sensitivities is not None and precision != "auto":
        received = f"sensitivities with precision={precision!r}"
        fix = "leave sensitivities out, or pass precision='auto': in int8 NNCF ranks the layers"
        raise ComponentError(received, "precision='auto', whose search they are for", fix)
    from tfopt.components.export_openvino.export import export  # imports NumPy

    convert_in_child(export, model, examples, exported, conversion, sensitivities)
