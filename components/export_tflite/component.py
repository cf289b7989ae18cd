"""The door of `export_tflite`: what it promises, and what it refuses in the first second."""

import logging
from typing import Annotated, Literal

from tfopt.artifacts import Examples, Model, TFLiteModel
from tfopt.component import Between, Input, Output, component
from tfopt.components.export_tflite.checks import check, check_by_layer, rules_of
from tfopt.failures import OnFailure
from tfopt.wording import data_size


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
    and slow on CPUs.

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
    check(model, examples, precision, integer_io, split)
    rules = rules_of(recipe, precision)
    check_by_layer(model, examples, precision, sparse, rules, max_degradation)
    from tfopt.child import run_in_child
    from tfopt.components.export_tflite.exporting import export
    from tfopt.components.export_tflite.request import Request

    log = logging.getLogger("tfopt")
    log.info("converting %s to tflite %s", model.name, precision)
    request = Request(
        precision, integer_io, calibration_count, split, seed, tolerance, select_tf_ops, sparse, rules, max_degradation
    )
    exported.metadata |= run_in_child(export, model, examples, exported.path, request, doing="converting to TFLite")
    log.info("%s", summary(exported))


def summary(exported: TFLiteModel) -> str:
    """What came of it, in a line."""
    from tfopt.parity import in_words

    facts = exported.metadata
    verified, size = facts["verified"], (exported.path / "Format-Serving" / "tflite").stat().st_size
    answers = in_words(verified["outputs"]) if verified["run"] else f"not run: {verified['reason']}"
    return f"{facts['name']}: {data_size(size)}, {answers}"
