"""The door of `export_tflite`: what it promises, and what it refuses in the first second."""

from typing import Annotated, Literal

from tfopt.artifacts import Examples, Model, TFLiteModel
from tfopt.component import Between, Input, Output, component
from tfopt.components.export_tflite.checks import check, rules_of
from tfopt.conversion import convert as conversion
from tfopt.execution.failed_models import OnFailure


@component(image="tf", memory="8Gi")
def export_tflite(
    model: Input[Model],
    exported: Output[TFLiteModel],
    examples: Input[Examples] | None = None,
    *,
    precision: Literal["float32", "float16", "dynamic", "int4", "int8", "int16x8"] = "float32",
    integer_io: bool = False,
    calibration_count: Annotated[int, Between(2, None)] = 200,
    split: str = "train",
    seed: int = 0,
    tolerance: Annotated[float, Between(0, None)] | None = None,
    select_tf_ops: bool = False,
    sparse: bool = False,
    recipe: list[str] = [],  # noqa: B006  (a default is read, never changed)
    max_degradation: Annotated[float, Between(0, 1)] | None = None,
    on_failure: OnFailure = "raise",
) -> None:
    """Convert a model to a LiteRT (TFLite) file that was run and compared with its parent.

    The file keeps the ``serving_default`` signature, its input and output names and a free batch size, and lies in
    ``Format-Serving/tflite`` beside the SavedModel it came from, where TFX's own Evaluator finds it.

    Float32 answers as its parent does; float16 halves the file and changes answers by about a thousandth; dynamic
    stores weights in 8 bits and needs no data, int4 does so in 4 bits; int8 computes in 8 bits, the fastest on most
    phones and on CPUs with VNNI; int16x8 keeps activations in 16 bits, which is the most exact of the integer kinds,
    and slow on CPUs. In int8 a dense layer has one scale in place of one for each of its channels, where that saves a
    fiftieth of the file and loses no more than one record's class in 256; the model card tells under ``dense_scales``.

    Args:
        model: A SavedModel or a Keras model.
        exported: The LiteRT file with its parent's SavedModel.
        examples: Real inputs, found by input name. Needed to calibrate int8 and int16x8, unless `quantize` trained the
            ranges; for the others they make the comparison with the parent a real one, in place of random inputs.
        precision: How weights and activations are stored and computed.
        integer_io: Take and give integers at the inputs and outputs as well, for devices without floats. Only for int8
            and int16x8; TFX's own Evaluator does not round such inputs, so leave it off for use with that.
        calibration_count: How many examples set the ranges of the activations, drawn evenly from the split.
        split: The split to calibrate on. The comparison uses another one where there is one.
        seed: Draws the examples, and the random inputs.
        tolerance: Refuse the file when any output differs from the parent's by more than this fraction of its range.
            When not given, it is 0.0001 for float32. The other kinds are then refused when they are broken: under half
            of the records keep their class (float16: 95 %) or, without classes, the correlation is under 0.5 (0.99).
        select_tf_ops: Allow ops that LiteRT lacks, to be run by TensorFlow's Flex delegate. A file that has them cannot
            be run, and so not verified, where that delegate is not linked in, and that includes this machine.
        sparse: Store weights that are mostly zeros by their other values, as of a pruned model: a smaller file, no
            faster. For float32 and float16: LiteRT does not load such files of the other kinds.
        recipe: Another kind for some layers, as "NAME=KIND": NAME is a regular expression found in what the layer
            returns, KIND is float32, int8, int4, or int4x32 (also x64, x128, x256: dense layers with a scale for each
            block of so many weights). The last that matches counts. For dynamic, int4, int8 and int16x8.
        max_degradation: The largest share of records that may change their class, or loss of correlation where there
            are no classes; accuracy cannot fall by more. Where it is missed, the layers that add most error are left
            in float32, twice as many at each try and at most half, until it holds. Needs examples.
        on_failure: With ``row``, a model that cannot be made is no error: the output then says why, and evaluate,
            benchmark and select_model list it as a row that is never chosen, with the reason.

    Raises:
        ComponentError: When calibration data is missing or too little, when an op cannot be converted (the ops are
            named), or when the file does not answer as its parent does.
    """
    exported.metadata["name"] = f"tflite {precision}" + (" integer io" if integer_io else "")
    from tfopt.components.export_tflite.request import Request

    request = Request(
        precision=precision,
        integer_io=integer_io,
        calibration_count=calibration_count,
        split=split,
        seed=seed,
        tolerance=tolerance,
        select_tf_ops=select_tf_ops,
        sparse=sparse,
        recipe=rules_of(recipe, precision),
        max_degradation=max_degradation,
    )
    check(model, examples, request)
    from tfopt.components.export_tflite.export import export

    conversion.convert(export, model, examples, exported, request)
