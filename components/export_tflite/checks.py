"""What `export_tflite` refuses in the first second, before anything heavy is imported."""

import re

from tfopt.artifacts import Examples, Model
from tfopt.components.export_tflite.request import Request
from tfopt.conversion import convert as conversion
from tfopt.errors import ComponentError

CALIBRATED = ("int8", "int16x8")
KINDS = ("float32", "int8", "int4", "int4x32", "int4x64", "int4x128", "int4x256")


def check(model: Model, examples: Examples | None, request: Request) -> None:
    """Refuse a model, precision or data that cannot work, and what layers, zeros or a goal cannot be asked for."""
    trained = conversion.check(
        model, examples, request, ("saved_model", "keras"), calibrated=CALIBRATED, needs_none="dynamic"
    )
    if request.integer_io and request.precision not in CALIBRATED:
        raise ComponentError(
            f"integer_io with precision={request.precision!r}",
            f"precision {' or '.join(CALIBRATED)}",
            "leave integer_io out: the other kinds compute in floats",
        )
    if request.sparse and (request.precision == "int4" or request.recipe):
        raise ComponentError(
            f"sparse with precision={request.precision!r}" + (" and a recipe" if request.recipe else ""),
            "precision float32 or float16",
            "leave sparse out: such layers are quantized one by one, and stored whole",
        )
    if request.recipe and trained:
        raise ComponentError(
            "a recipe for a model whose 8-bit ranges were trained",
            "a model before quantize",
            "leave recipe out, or say in quantize which layers stay in float",
        )
    if request.max_degradation is not None and examples is None:
        raise ComponentError(
            f"max_degradation={request.max_degradation} without examples",
            "examples to measure it on",
            "pass examples=PATH",
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
