"""The door of `export_openvino`: what it promises, and what it refuses in the first second."""

from typing import Annotated, Literal

from tfopt.artifacts import Examples, Model, OpenVINOModel
from tfopt.component import Between, Input, Output, component
from tfopt.conversion import convert as conversion
from tfopt.errors import ComponentError
from tfopt.execution.failed_models import OnFailure


@component(image="tf", memory="8Gi")
def export_openvino(
    model: Input[Model],
    exported: Output[OpenVINOModel],
    examples: Input[Examples] | None = None,
    *,
    precision: Literal["float32", "float16", "int8"] = "float32",
    preset: Literal["auto", "performance", "mixed"] = "auto",
    reduce_range: Literal["auto", "on", "off"] = "auto",
    calibration_count: Annotated[int, Between(2, None)] = 200,
    split: str = "train",
    seed: int = 0,
    tolerance: Annotated[float, Between(0, None)] | None = None,
    max_degradation: Annotated[float, Between(0, 1)] | None = None,
    on_failure: OnFailure = "raise",
) -> None:
    """Convert a model to OpenVINO files that were run and compared with their parent.

    The files keep the ``serving_default`` signature, its input and output names, dtypes and open sizes, and lie in
    ``Format-Serving/`` as ``model.xml`` and ``model.bin``, where OpenVINO's servers and tools take them from.

    Float32 answers as its parent does; float16 halves the files, and CPUs compute it in float32; int8 computes in
    8 bits what OpenVINO has such kernels for, with ranges that NNCF finds on the examples or `quantize` trained.
    The rest is computed in float32 here: OpenVINO left to itself takes bfloat16 on CPUs that have it.

    Args:
        model: A SavedModel, a Keras or an ONNX model. Text is refused: OpenVINO has no kernels for it.
        exported: The OpenVINO files.
        examples: Real inputs, found by input name. Needed to calibrate int8, unless `quantize` trained the ranges; for
            the others they make the comparison with the parent a real one, in place of random inputs.
        precision: How weights and activations are stored and computed.
        preset: In int8, ``performance`` puts zero in the middle of each range, and ``mixed`` fits the ranges of
            activations, which is more exact where they lean to one side. ``auto`` is mixed where the model has
            attention, whose ranges are then set with more care too, and performance elsewhere.
        reduce_range: In int8, leave a bit of the weights unused. An x86 CPU without VNNI adds two products in 16 bits,
            where 8-bit weights overflow and answers go wrong. ``auto`` does so when this machine's CPU is such a one;
            say ``on`` or ``off`` when the model will run on another kind.
        calibration_count: How many examples set the ranges of the activations, drawn evenly from the split.
        split: The split to calibrate on. The comparison uses another one where there is one.
        seed: Draws the examples, and the random inputs.
        tolerance: Refuse the files when any output differs from the parent's by more than this fraction of its range.
            When not given, it is 0.0001 for float32. The other kinds are then refused when they are broken: under half
            of the records keep their class (float16: 95 %) or, without classes, the correlation is under 0.5 (0.99).
        max_degradation: In int8, the largest share of records that may change their class, or loss of correlation where
            there are no classes; accuracy cannot fall by more. Where it is missed, the layers that cost most are left
            in float32, one after another, until it holds.
        on_failure: With ``row``, a model that cannot be made is no error: the output then says why, and evaluate,
            benchmark and select_model list it as a row that is never chosen, with the reason.

    Raises:
        ComponentError: When calibration data is missing or too little, when an op cannot be converted (the ops are
            named), or when the files do not answer as their parent does.
    """
    exported.metadata["name"] = f"openvino {precision}"
    from tfopt.components.export_openvino.request import Request

    request = Request(
        precision=precision,
        preset=preset,
        reduce_range=reduce_range,
        calibration_count=calibration_count,
        split=split,
        seed=seed,
        tolerance=tolerance,
        max_degradation=max_degradation,
    )
    trained = conversion.check(model, examples, request, ("saved_model", "keras", "onnx"), needs_none="float16")
    if max_degradation is not None and (precision != "int8" or trained):
        raise ComponentError(
            f"max_degradation={max_degradation:g} with "
            + ("trained ranges" if trained else f"precision={precision!r}"),
            "precision='int8' and a model in floats, of which layers can stay as they are",
            "leave max_degradation out, or say in quantize which layers stay in float" if trained else "leave it out",
        )
    from tfopt.components.export_openvino.export import export

    conversion.convert(export, model, examples, exported, request)
