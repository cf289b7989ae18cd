"""Checks of `export_tflite` before any work; they import nothing heavy."""

from tfopt.artifacts import Examples, Model
from tfopt.components.export_tflite.parameters import CALIBRATED, TFLiteConversion
from tfopt.conversion.convert import check_conversion
from tfopt.errors import ComponentError


def check(model: Model, examples: Examples | None, parameters: TFLiteConversion) -> None:
    """Raise ComponentError if the parameters contradict each other, the model or the examples."""
    parameters.rules()
    precision = parameters.precision
    trained = check_conversion(
        *(model, examples, precision, parameters.split, ("saved_model", "keras")),
        calibrated=CALIBRATED,
        without_examples="dynamic",
    )
    if parameters.integer_io and precision not in CALIBRATED:
        raise ComponentError(
            f"integer_io with precision={precision!r}",
            f"precision {' or '.join(CALIBRATED)}",
            "leave integer_io out: the other precisions compute in floats",
        )
    if parameters.sparse and (precision == "int4" or parameters.recipe):
        raise ComponentError(
            f"sparse with precision={precision!r}" + (" and a recipe" if parameters.recipe else ""),
            "precision float32 or float16",
            "leave sparse out: such layers are quantized one by one, and stored densely",
        )
    if parameters.recipe and trained:
        raise ComponentError(
            "a recipe for a model whose 8-bit ranges were trained",
            "a model before quantize",
            "leave recipe out, or name in quantize the layers to leave in float32",
        )
    if parameters.max_degradation is not None and examples is None:
        raise ComponentError(
            f"max_degradation={parameters.max_degradation} without examples",
            "examples to measure it on",
            "pass examples=PATH",
        )
