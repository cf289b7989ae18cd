"""The door of `export_onnx`: what it promises, and what it refuses in the first second."""

from typing import Annotated, Literal

from tfopt.artifacts import Examples, Model, OnnxModel
from tfopt.component import Between, Input, Output, component
from tfopt.conversion import convert as conversion
from tfopt.errors import ComponentError
from tfopt.execution.failed_models import OnFailure


@component(image="tf", memory="8Gi")
def export_onnx(
    model: Input[Model],
    exported: Output[OnnxModel],
    examples: Input[Examples] | None = None,
    *,
    precision: Literal["float32", "float16", "int8"] = "float32",
    opset: Annotated[int, Between(13, 18)] = 18,
    per_channel: bool = True,
    reduce_range: Literal["auto", "on", "off"] = "auto",
    calibration_count: Annotated[int, Between(2, None)] = 200,
    split: str = "train",
    seed: int = 0,
    tolerance: Annotated[float, Between(0, None)] | None = None,
    on_failure: OnFailure = "raise",
) -> None:
    """Convert a model to an ONNX file that was checked, run and compared with its parent.

    The file keeps the ``serving_default`` signature, its input and output names, dtypes and open sizes, and lies in
    ``Format-Serving/model.onnx``. Any server or tool that reads ONNX takes it from there.

    Float32 answers as its parent does; float16 halves the file, and CPUs compute most of it in float32 again; int8
    computes in 8 bits where ONNX Runtime has such kernels, with a scale for each activation that is found on the
    examples (static quantization, as pairs of QuantizeLinear and DequantizeLinear). Of a model that went through
    `quantize` it takes the trained ranges and levels as they are, and needs no examples; the other kinds are refused.

    Args:
        model: A SavedModel or a Keras model.
        exported: The ONNX file.
        examples: Real inputs, found by input name. Needed to calibrate int8; for the others they make the comparison
            with the parent a real one, in place of random inputs.
        precision: How weights and activations are stored and computed.
        opset: The version of ONNX's operators; lower it for a runtime that is older.
        per_channel: In int8, give each output channel of a weight its own scale: more exact, and as fast.
        reduce_range: In int8, leave a bit of the weights unused. An x86 CPU without VNNI adds two products in 16 bits,
            where 8-bit weights overflow and answers go wrong. ``auto`` does so when this machine's CPU is such a one;
            say ``on`` or ``off`` when the model will run on another kind.
        calibration_count: How many examples set the ranges of the activations, drawn evenly from the split.
        split: The split to calibrate on. The comparison uses another one where there is one.
        seed: Draws the examples, and the random inputs.
        tolerance: Refuse the file when any output differs from the parent's by more than this fraction of its range.
            When not given, it is 0.0001 for float32. The other kinds are then refused when they are broken: under half
            of the records keep their class (float16: 95 %) or, without classes, the correlation is under 0.5 (0.99).
        on_failure: With ``row``, a model that cannot be made is no error: the output then says why, and evaluate,
            benchmark and select_model list it as a row that is never chosen, with the reason.

    Raises:
        ComponentError: When calibration data is missing or too little, when an op cannot be converted (the ops are
            named), or when the file does not answer as its parent does.
    """
    exported.metadata["name"] = f"onnx {precision}"
    from tfopt.components.export_onnx.request import Request

    request = Request(
        precision=precision,
        opset=opset,
        per_channel=per_channel,
        reduce_range=reduce_range,
        calibration_count=calibration_count,
        split=split,
        seed=seed,
        tolerance=tolerance,
    )
    trained = conversion.check(model, examples, request, ("saved_model", "keras"), needs_none="float16")
    if trained and reduce_range == "on":
        raise ComponentError(
            f"reduce_range='on' for {model.name}, whose 8-bit ranges were trained",
            "kernels of as many levels as were trained",
            "leave reduce_range out, or give the model from before it was quantized",
        )
    from tfopt.components.export_onnx.export import export

    conversion.convert(export, model, examples, exported, request)
