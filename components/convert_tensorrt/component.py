from tfopt.artifacts import Examples, Model, Sensitivities, TensorRTModel
from tfopt.component import Group, Input, Output, component
from tfopt.components.convert_tensorrt.parameters import TensorRTConversion
from tfopt.conversion.convert import check_conversion, check_limit, convert_in_child, is_quantized
from tfopt.errors import ComponentError
from tfopt.tensorrt.machine import detect_machine


@component(
    image="gpu",
    purpose="conversion",
    memory="16Gi",
    gpu=1,
    model_signature=True,
    on_failure=True,
    concurrent=True,
)
def convert_tensorrt(
    model: Input[Model],
    converted: Output[TensorRTModel],
    examples: Input[Examples] | None = None,
    sensitivities: Input[Sensitivities] | None = None,
    *,
    conversion: Group[TensorRTConversion],
) -> None:
    """Convert a model to a TensorRT engine for the GPU of the machine that runs the step.

    The model is converted to ONNX first. The ONNX file contains the precision of each operator, and is compared with
    its parent on the CPU. TensorRT builds it as a strongly typed network, and the engine is compared with the parent
    again. It is stored as ``Format-Serving/model.plan``, next to ``compatibility.json`` with the TensorRT version, GPU
    and driver of the build, which are checked before an engine is loaded. The model card has the precision of every
    layer; layers whose precision TensorRT does not report are counted as ``unknown``.

    With max_degradation, layers that 8 bits break get a higher precision, the worst ones first, before an engine is
    built. ``auto`` computes in float16 what is not in int8, where ``int8`` computes it in float32.

    The step needs an NVIDIA GPU with TensorRT 10 or 11 and CUDA's Python bindings, as in the image ``gpu``. An
    engine runs only on GPUs of the same compute capability.

    Args:
        model: A SavedModel, a Keras or an ONNX model. String and float64 inputs are rejected: TensorRT has none.
        converted: The engine.
        examples: Real inputs, matched by input name. Required to calibrate fp8 and auto, and int8 unless the model has
            its ranges. For the other precisions they replace random inputs in the comparison with the parent.
        sensitivities: The report of `measure_sensitivities` for this model. A search with max_degradation then ranks
            layers by it instead of by files of its own, and begins near the mix that it predicts.
        conversion: Precision, build options, calibration and comparison.

    Raises:
        ComponentError: If this machine has no GPU or TensorRT, an argument is missing or contradicts another one,
            TensorRT cannot build the model (the layers are named), or the outputs of the engine do not match those of
            its parent.
    """
    converted.metadata["name"] = f"tensorrt {conversion.precision}"
    from tfopt.components.convert_tensorrt.convert import convert  # imports NumPy

    _check(model, examples, conversion, sensitivities)
    convert_in_child(convert, model, examples, converted, conversion, sensitivities)


def _check(
    model: Model, examples: Examples | None, parameters: TensorRTConversion, sensitivities: Sensitivities | None
) -> None:
    """Raise ComponentError if the parameters contradict each other or the model, or this machine has no GPU."""
    ranges = "which has 8-bit levels in it" if is_quantized(model) else None
    has_ranges = check_conversion(
        *(model, examples, parameters.precision, parameters, ("saved_model", "keras", "onnx")),
        calibrated=("int8", "fp8", "auto"),
        without_examples="fp16",
        ranges=ranges,
    )
    check_limit(
        *(parameters.precision, parameters.max_degradation, ("int8", "auto")),
        trained=has_ranges,
        sensitivities=sensitivities,
    )
    if parameters.usual_batch > parameters.largest_batch:
        received = f"usual_batch={parameters.usual_batch} with largest_batch={parameters.largest_batch}"
        raise ComponentError(received, "a usual batch of at most the largest", "pass a larger largest_batch")
    if parameters.calibration_cache and parameters.calibrator != "entropy":
        raise ComponentError(
            "calibration_cache with calibrator='explicit'",
            "calibrator='entropy', whose results can be stored",
            "leave it out: explicit ranges are in the ONNX file, which export_onnx can write once for many conversions",
        )
    if parameters.calibrator == "entropy" and parameters.precision != "int8":
        received = f"calibrator='entropy' with precision={parameters.precision!r}"
        raise ComponentError(received, "precision='int8'", "leave calibrator out")
    if parameters.calibrator == "entropy" and parameters.calibration != "min_max":
        received = f"calibration={parameters.calibration!r} with calibrator='entropy', which takes no ranges"
        raise ComponentError(
            received, "one of them", "leave calibrator out, which calibrates by this method on the CPU"
        )
    if parameters.calibrator == "entropy" and parameters.max_degradation is not None:
        received = f"max_degradation={parameters.max_degradation:g} with calibrator='entropy', which runs on the GPU"
        expected = "calibrator='explicit', whose ONNX file is measured on the CPU"
        raise ComponentError(received, expected, "leave one of them out")
    if has_ranges and parameters.calibrator == "entropy":
        received = f"calibrator='entropy' for {model.name}, {ranges or 'whose 8-bit ranges were trained'}"
        expected = "a float model, without ranges"
        raise ComponentError(received, expected, "leave calibrator out, or pass the model from before it was quantized")
    machine = detect_machine()
    if parameters.precision == "fp8":
        from tfopt.components.convert_tensorrt.float8_scales import check_capability  # imports ONNX

        check_capability(machine.compute_capability, machine.gpu)
