"""What `export_tflite` refuses in the first second, before anything heavy is imported."""

import re

from tfopt.artifacts import Examples, Model
from tfopt.errors import ComponentError
from tfopt.trained_ranges import has_trained_ranges

CALIBRATED = ("int8", "int16x8")
KINDS = ("float32", "int8", "int4", "int4x32", "int4x64", "int4x128", "int4x256")


def check(model: Model, examples: Examples | None, precision: str, integer_io: bool, split: str) -> None:
    """Refuse a model, precision or data that cannot work."""
    if (not model.saved_model and not model.keras) or model.format == "tflite":
        raise ComponentError(
            f"{model.uri}: a {model.format} model",
            "a SavedModel or a Keras model",
            "give the model it was converted from",
        )
    trained = has_trained_ranges(model)
    if trained and precision != "int8":
        raise ComponentError(
            f"precision={precision!r} for {model.name}, whose 8-bit ranges were trained",
            "precision='int8', which takes them as they are",
            "pass precision='int8', or give the model from before it was quantized",
        )
    if precision in CALIBRATED and examples is None and not trained:
        raise ComponentError(
            f"precision={precision!r} without examples",
            "examples to calibrate on",
            "pass examples=PATH, or precision='dynamic', which needs none",
        )
    if precision in CALIBRATED and examples:
        examples.split(split)
    if integer_io and precision not in CALIBRATED:
        raise ComponentError(
            f"integer_io with precision={precision!r}",
            f"precision {' or '.join(CALIBRATED)}",
            "leave integer_io out: the other kinds compute in floats",
        )


def rules_of(recipe: list[str], precision: str) -> tuple[tuple[str, str], ...]:
    """Read NAME=KIND.

    Raises:
        ComponentError: When a rule is none, or of a kind that the precision cannot hold.
    """
    rules = []
    for rule in recipe:
        pattern, _, kind = rule.rpartition("=")
        try:
            re.compile(pattern)
            fits = bool(pattern) and kind in KINDS and not (precision in CALIBRATED and "x" in kind)
        except re.error:
            fits = False
        if not fits or precision in ("float32", "float16"):
            known = ", ".join(kind for kind in KINDS if precision not in CALIBRATED or "x" not in kind)
            raise ComponentError(
                f"recipe {rule!r} with precision={precision!r}",
                f"NAME=KIND with a regular expression and one of {known}, and precision dynamic, int4, int8 or int16x8",
                "write for example 'dense_1=float32'",
            )
        rules.append((pattern, kind))
    return tuple(rules)


def check_by_layer(
    model: Model,
    examples: Examples | None,
    precision: str,
    sparse: bool,
    rules: tuple[tuple[str, str], ...],
    max_degradation: float | None,
) -> None:
    """Refuse what the layers, the zeros or the goal cannot be asked for."""
    if sparse and (precision == "int4" or rules):
        raise ComponentError(
            f"sparse with precision={precision!r}" + (" and a recipe" if rules else ""),
            "precision float32 or float16",
            "leave sparse out: such layers are quantized one by one, and stored whole",
        )
    if rules and has_trained_ranges(model):
        raise ComponentError(
            "a recipe for a model whose 8-bit ranges were trained",
            "a model before quantize",
            "leave recipe out, or say in quantize which layers stay in float",
        )
    if max_degradation is not None and examples is None:
        raise ComponentError(
            f"max_degradation={max_degradation} without examples",
            "examples to measure it on",
            "pass examples=PATH",
        )
